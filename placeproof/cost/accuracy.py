"""What is derived for a measured run, beside it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from placeproof.runs import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What is derived for a measured run: the most bytes of tensors of a device of its fullest ``stage``, and the ``moment`` of it; None
    where nobody says how it was run."""

    run: MeasuredRun
    tensors: Fraction | None = None
    stage: str = ""
    moment: str = ""

    @property
    def error(self) -> Fraction | None:
        """Of tensors, as a share of what was measured."""
        return None if self.run.tensors is None or self.tensors is None else self.tensors / self.run.tensors - 1
