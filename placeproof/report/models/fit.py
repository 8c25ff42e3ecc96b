"""Whether stages fit, in words."""

from __future__ import annotations

from placeproof.cost.model.process import ProcessMemory, process_memory
from placeproof.cost.model.time import StepTime
from placeproof.report.units import giga

#: Whether something fits -> in words.
FITS = {True: "fits", False: "does not fit", None: "within the error of the model"}


def fits(step: StepTime) -> list[bool | None]:
    """Of each stage, whether a device of it has room; None where the model cannot tell."""
    return [process_memory(step, cost).fits for cost in step.d.costs]


def fits_all(step: StepTime) -> bool | None:
    """Whether all stages fit: one that does not decides, and then one that nobody can tell of."""
    each = fits(step)
    return False if False in each else None if None in each else True


def fullest(step: StepTime) -> ProcessMemory:
    """What a device of the stage with the most tensors shows."""
    return max((process_memory(step, cost) for cost in step.d.costs), key=lambda memory: memory.tensors)


def in_all(memory: ProcessMemory) -> str:
    """Gigabytes of tensors and of all else, from the least to the most."""
    return f"{giga(memory.process.least)} to {giga(memory.process.most)}"
