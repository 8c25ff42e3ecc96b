"""What is derived for a measured run, beside it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from placeproof.runs import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What is derived for a measured run: the most bytes of tensors of a device of its fullest ``stage``, what a driver usually
    shows of the ``process``, and the ``moment`` of the stage; None where nobody says how it was run."""

    run: MeasuredRun
    tensors: Fraction | None = None
    process: Fraction | None = None
    stage: str = ""
    moment: str = ""

    @property
    def process_error(self) -> Fraction | None:
        """Of what a driver shows, as a share of what was measured."""
        return None if self.run.process is None or self.process is None else self.process / self.run.process - 1

    @property
    def error(self) -> Fraction | None:
        """Of tensors, as a share of what was measured."""
        return None if self.run.tensors is None or self.tensors is None else self.tensors / self.run.tensors - 1
