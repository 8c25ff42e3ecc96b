"""Whether stages fit, in words."""

from __future__ import annotations

from placeproof.cost.model.process import process_memory
from placeproof.cost.model.time import StepTime

#: Whether something fits -> in words.
FITS = {True: "fits", False: "does not fit", None: "within the error of the model"}


def fits(step: StepTime) -> list[bool | None]:
    """Of each stage, whether a device of it has room; None where the model cannot tell."""
    return [process_memory(step, cost).fits for cost in step.d.costs]


def fits_all(step: StepTime) -> bool | None:
    """Whether all stages fit: one that does not decides, and then one that nobody can tell of."""
    each = fits(step)
    return False if False in each else None if None in each else True
