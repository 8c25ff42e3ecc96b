"""What came of a script on real processes beside its reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Word = Literal["equal", "differs", "crash", "time-out", "exception"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """How one rank ended.

    ``word``: "equal", every parameter that it returned has the bits of the reference; "differs", some have not; "crash", a signal ended
    the process; "time-out", it waited too long; "exception". ``gap``: the largest absolute difference, inf where shapes or names differ
    or a number is none; ``first``: the first parameter that differs, in the order of the reference; ``said``: what went wrong, in a line.
    """

    rank: int
    word: Word
    gap: float = 0.0
    first: str = ""
    said: str = ""

    def text(self) -> str:
        """In a line."""
        match self.word:
            case "equal":
                return f"rank {self.rank}: equal"
            case "differs":
                return f"rank {self.rank}: differs by up to {self.gap:.3g}, first in {self.first}"
        return f"rank {self.rank}: {self.word}: {self.said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A script on real processes against its reference.

    ``agree``: all ranks that returned a parameter returned the same bits of it; None where not every rank ended. ``missing``: parameters
    of the reference that no rank returned.
    """

    path: Path
    world: int
    ranks: tuple[Rank, ...]
    agree: bool | None
    missing: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether all ranks together ended with what one process computes, bit by bit."""
        return not self.missing and all(rank.word == "equal" for rank in self.ranks)

    @property
    def word(self) -> str:
        """How it ended: "equal", "differs", "ranks disagree", or cut short: "crash", "time-out" or "exception"."""
        words = {rank.word for rank in self.ranks}
        for cut in ("crash", "time-out", "exception"):
            if cut in words:
                return cut
        if self.equal:
            return "equal"
        return "differs" if self.agree else "ranks disagree"

    @property
    def gap(self) -> float:
        """The largest absolute difference of any rank from the reference."""
        return max((rank.gap for rank in self.ranks), default=0.0)

    def text(self) -> str:
        """A line for the whole, and one for each rank."""
        lines = [f"{self.path.name} on {self.world} processes: {self.word}", *(rank.text() for rank in self.ranks)]
        lines += [f"no rank returned {name}" for name in self.missing]
        return "\n".join(lines)
