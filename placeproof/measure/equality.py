"""Whether a training script ends, on real processes, with what one process computes: the same bits, or by how much not.

This module does without torch until a script is run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from placeproof.core.diagnostics import Problems

Word = Literal["equal", "differs", "crash", "time-out", "exception"]
#: How long the processes of a script may take in all, in seconds.
PATIENCE = 120.0
#: How long a collective waits for another rank, in seconds.
WAIT = 20.0


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
        return not self.missing and all(one.word == "equal" for one in self.ranks)

    @property
    def word(self) -> str:
        """How it ended: "equal", "differs", "ranks disagree", or cut short: "crash", "time-out" or "exception"."""
        words = {one.word for one in self.ranks}
        for cut in ("crash", "time-out", "exception"):
            if cut in words:
                return cut
        if self.equal:
            return "equal"
        return "differs" if self.agree else "ranks disagree"

    @property
    def gap(self) -> float:
        """The largest absolute difference of any rank from the reference."""
        return max((one.gap for one in self.ranks), default=0.0)

    def text(self) -> str:
        """A line for the whole, and one for each rank."""
        lines = [f"{self.path.name} on {self.world} processes: {self.word}", *(one.text() for one in self.ranks)]
        lines += [f"no rank returned {name}" for name in self.missing]
        return "\n".join(lines)


def compare(
    path: Path | str,
    world: int | None = None,
    *,
    timeout: float = PATIENCE,
    wait: float = WAIT,
    environment: Mapping[str, str] | None = None,
) -> Compared:
    """Run a script on gloo processes and in one process, and say where its parameters differ after the step.

    The script is one that defines ``train()``, which returns the full parameters as this rank ends with them, by name (a rank of a
    pipeline those that it has); ``reference()``, which returns what one process computes; and ``WORLD``, the number of processes where
    ``world`` does not say it. ``train`` finds the default process group initialised. ``timeout``: seconds for all; ``wait``: seconds for
    one collective. ``environment``: variables to set in the processes, TORCH_DISTRIBUTED_DEBUG among them.

    Raises InputError for a file that is no such script, and RuntimeError where its reference fails.
    """
    return compare_all([path], world, timeout=timeout, wait=wait, environment=environment)[0]


def compare_all(
    paths: Sequence[Path | str],
    world: int | None = None,
    *,
    timeout: float = PATIENCE,
    wait: float = WAIT,
    environment: Mapping[str, str] | None = None,
) -> list[Compared]:
    """As :func:`compare`, for several scripts: those of one folder and of equally many processes share these, one after the other.

    If anything goes wrong there, each of them is run again in processes of its own: what one script leaves behind decides about no
    other. ``timeout`` is for all that share processes.
    """
    files = [Path(p).resolve() for p in paths]
    _check(files)
    from placeproof.measure.equality_run import judge, read_all, train_all

    compared: dict[Path, Compared] = {}
    for folder in dict.fromkeys(file.parent for file in files):
        found = read_all([file for file in dict.fromkeys(files) if file.parent == folder], timeout)
        for size in dict.fromkeys(world or one.world for one in found.values()):
            group = [file for file, one in found.items() if (world or one.world) == size]
            ran = train_all(group, size, timeout=timeout, wait=wait, environment=environment or {})
            compared |= {file: judge(file, found[file].reference, ran[file]) for file in group}
    return [compared[file] for file in files]


def _check(files: Sequence[Path]) -> None:
    problems = Problems()
    if importlib.util.find_spec("torch") is None:
        problems.add("PP601", "torch is not installed: no script can be run", help="install torch")
    for file in files:
        if not file.is_file():
            problems.add("PP110", f"there is no script {file}", help="give the path of a Python file")
    problems.raise_if_any()
