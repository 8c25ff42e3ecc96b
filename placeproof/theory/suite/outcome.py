"""What checking a theorem gives: plain data that is printed, cached and locked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Standing = Literal["passed", "failed", "skipped", "not applicable"]
#: What a theorem is about, from what says most of the product to what says nothing of it: step programs; costs that are derived from
#: them; closed forms, orders and rounds, code; the table of collectives; mathematics alone.
Subject = Literal["programs", "derivations", "forms", "tables", "mathematics"]
SUBJECTS: tuple[Subject, ...] = ("programs", "derivations", "forms", "tables", "mathematics")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of a theorem."""

    name: str
    standing: Standing
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How theorems are checked. ``seeds``: with how many random seeds each solver has to give the same verdict."""

    second_opinion: bool = True
    seeds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One theorem's result. ``opinion``: what the second solver says (``agree``, ``disagree``, ``silent`` or ``not asked``).

    ``about``: what its terms come from, one of :data:`SUBJECTS`.
    """

    id: str
    path: str
    line: int
    level: int
    says: str
    statement: str
    hypotheses: tuple[str, ...]
    expected: str
    because: str
    verdict: Literal["proved", "refuted", "unknown"]
    evidence: str
    witness: Mapping[str, str] = field(default_factory=dict)
    used: tuple[str, ...] = ()
    opinion: Literal["agree", "disagree", "silent", "not asked"] = "not asked"
    checks: tuple[Check, ...] = ()
    controls: tuple[Check, ...] = ()
    cite: tuple[str, ...] = ()
    about: Subject = "mathematics"
    seconds: float = 0.0
    cached: bool = False

    @property
    def standing(self) -> Literal["proved", "refuted as expected", "open", "unexpected", "undecided"]:
        """Where the theorem stands: as expected with all checks passed, or not."""
        if self.verdict == "unknown" and self.expected != "open":
            return "undecided"
        as_expected = self.verdict == ("unknown" if self.expected == "open" else self.expected)
        if not as_expected or self.failures():
            return "unexpected"
        return {"proved": "proved", "refuted": "refuted as expected", "unknown": "open"}[self.verdict]  # type: ignore[return-value]

    def failures(self) -> tuple[Check, ...]:
        """The checks and controls that failed."""
        return tuple(c for c in (*self.checks, *self.controls) if c.standing == "failed")

    def data(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def from_data(data: Mapping[str, Any]) -> Outcome:
    """The outcome that :meth:`Outcome.data` wrote. Raises TypeError or KeyError for anything else."""
    plain = dict(data)
    for name in ("checks", "controls"):
        plain[name] = tuple(Check(**c) for c in plain[name])
    for name in ("hypotheses", "used", "cite"):
        plain[name] = tuple(plain[name])
    return Outcome(**plain)
