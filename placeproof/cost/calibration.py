"""A cluster whose constants were fitted to measured steps, and what is derived for them before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from placeproof.clusters import Cluster
from placeproof.cost.accuracy import Prediction, StepAccuracy, step_accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstant:
    """A constant: what it was before, None where the cluster did not say, and what it was fitted to. ``edge``: the most or the least that
    it can be."""

    name: str
    before: Fraction | None
    fitted: Fraction
    edge: bool


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A ``cluster``, and the one that is ``calibrated``. ``source``: of the steps. ``held_out``: numbers, from 1, of the steps that were
    not used, and ``how`` they were chosen. ``before``, ``after``: what is derived for each step with the constants of either."""

    cluster: Cluster
    calibrated: Cluster
    source: str
    constants: tuple[FittedConstant, ...]
    held_out: tuple[int, ...]
    how: str
    before: tuple[Prediction, ...]
    after: tuple[Prediction, ...]

    def chosen(self, predictions: Sequence[Prediction], *, held_out: bool) -> list[Prediction]:
        """Predictions of the steps that were not used, or of those that were."""
        return [one for number, one in enumerate(predictions, 1) if (number in self.held_out) == held_out]

    def accuracy(self, predictions: Sequence[Prediction], *, held_out: bool) -> StepAccuracy:
        """How good they are."""
        found = step_accuracy(self.chosen(predictions, held_out=held_out))
        assert found is not None, "there are steps of both kinds"
        return found
