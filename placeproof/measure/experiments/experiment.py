"""What an experiment is: predictions beside measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Unit = Literal["ratio", "passes", "bits", "steps", "difference"]
#: In words, what a line's numbers count.
UNITS: Mapping[Unit, str] = {
    "ratio": "one amount over the other",
    "passes": "bytes sent by a device, as multiples of P (N-1)/N",
    "bits": "bits of the longest sum",
    "steps": "steps",
    "difference": "largest absolute difference of a parameter",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One prediction beside one measurement, in ``unit``.

    ``ideal``: what the closed form says, None where there is none. ``predicted`` is what has to be measured exactly, or, where ``bound``,
    the most that may be. ``measured`` is None where nothing came of the measurement. ``how``: what was measured. ``note``: why the
    prediction departs from the ideal, or what went wrong.
    """

    what: str
    unit: Unit
    predicted: Fraction
    measured: Fraction | None
    how: str
    ideal: Fraction | None = None
    bound: bool = False
    note: str = ""

    @property
    def departs(self) -> bool:
        """Whether the prediction is not what the closed form says."""
        return self.ideal is not None and self.ideal != self.predicted

    @property
    def holds(self) -> bool:
        """Whether the measurement is as predicted, and the prediction is the closed form's or a note says why it is not."""
        if self.measured is None or (self.departs and not self.note):
            return False
        return self.measured <= self.predicted if self.bound else self.measured == self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment that was made. ``says``: what was asked, on which models, in sentences. ``seconds``: how long it took."""

    name: str
    title: str
    says: tuple[str, ...]
    lines: tuple[Line, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every line does, and there is one."""
        return bool(self.lines) and all(line.holds for line in self.lines)


def timed(name: str, title: str, make: Callable[[], tuple[Iterable[str], Iterable[Line]]]) -> Experiment:
    """The experiment that ``make`` makes: what it says, and its lines."""
    began = time.perf_counter()
    says, lines = make()
    return Experiment(name=name, title=title, says=tuple(says), lines=tuple(lines), seconds=time.perf_counter() - began)
