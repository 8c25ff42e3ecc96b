"""What is derived for a measured run, beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from placeproof.runs import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What is derived for a measured run: the most bytes of tensors of a device of its fullest ``stage``, with the ``moment`` of it, what a
    driver usually shows of the ``process``, and seconds of ``steps`` by their number of micro-batches. None, or nothing, where nobody says
    how it was run."""

    run: MeasuredRun
    tensors: Fraction | None = None
    process: Fraction | None = None
    steps: Mapping[int, Fraction] = field(default_factory=dict)
    stage: str = ""
    moment: str = ""

    @property
    def step_errors(self) -> dict[int, Fraction]:
        """Of steps, as shares of what was measured, by the number of micro-batches."""
        return {m: seconds / self.run.steps[m] - 1 for m, seconds in self.steps.items()}

    @property
    def process_error(self) -> Fraction | None:
        """Of what a driver shows, as a share of what was measured."""
        return None if self.run.process is None or self.process is None else self.process / self.run.process - 1

    @property
    def error(self) -> Fraction | None:
        """Of tensors, as a share of what was measured."""
        return None if self.run.tensors is None or self.tensors is None else self.tensors / self.run.tensors - 1
