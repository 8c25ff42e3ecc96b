"""Three experiments that check the theory of parameter placement on real PyTorch: memory, traffic and training.

Each is a table of predictions beside measurements. This module does without torch until something is measured.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from placeproof.core.diagnostics import Problems, suggestion

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


def names() -> tuple[str, ...]:
    """The experiments, in the order in which they are made."""
    return "memory", "traffic", "training"


def experiments(chosen: Iterable[str]) -> tuple[Experiment, ...]:
    """Make these experiments. Raises InputError for a name that is none, or without torch; RuntimeError where processes fail."""
    asked = tuple(chosen)
    _check(asked)
    from placeproof.measure.experiments.sizes import Bench, memory, traffic
    from placeproof.measure.experiments.training import training

    bench = Bench()
    made: Mapping[str, Callable[[], Experiment]] = {
        "memory": lambda: memory(bench),
        "traffic": lambda: traffic(bench),
        "training": training,
    }
    return tuple(made[name]() for name in asked)


def timed(name: str, title: str, make: Callable[[], tuple[Iterable[str], Iterable[Line]]]) -> Experiment:
    """The experiment that ``make`` makes: what it says, and its lines."""
    began = time.perf_counter()
    says, lines = make()
    return Experiment(name=name, title=title, says=tuple(says), lines=tuple(lines), seconds=time.perf_counter() - began)


def _check(asked: tuple[str, ...]) -> None:
    problems = Problems()
    for name in asked:
        if name not in names():
            known = f"choose {', '.join(names())}, or all"
            problems.add("PP104", f"there is no experiment `{name}`", help=suggestion(name, (*names(), "all")) or known)
    if importlib.util.find_spec("torch") is None:
        problems.add("PP601", "an experiment needs torch, which is not installed", help='pip install "placeproof[torch]"')
    problems.raise_if_any()
