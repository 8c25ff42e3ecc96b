"""What a device shows beside tensors: what the allocator has reserved, and what a process has of libraries. Ranges, each with its source.

None of them is fitted to a run that a prediction is compared with: the allocator's is what was seen on all measured runs, the others are
what people measured of a process that trains nothing.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from placeproof.cost.model.derivation import StageCost
from placeproof.implementations import BlockImplementation
from placeproof.models import load
from placeproof.runs import like, reserved

if TYPE_CHECKING:
    from placeproof.cost.model.time import StepTime
    from placeproof.runs import RunSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The least and the most of an amount in bytes, and where that is from."""

    least: Fraction
    most: Fraction
    source: str = ""


#: A context of CUDA with kernels, before anything is exchanged.
CONTEXT = Range(
    least=Fraction(0),
    most=Fraction(1_060_000_000),
    source="a context of CUDA, at most what 8 H100 show before their first exchange (NVIDIA/nccl, issue 1685)",
)
#: Buffers of NCCL for one communicator.
COMMUNICATOR = Range(
    least=Fraction(544_000_000),
    most=Fraction(688_000_000),
    source="one of two devices, and one of more, on A100 with NVLink (NVIDIA/nccl, issue 964)",
)
LIBRARIES = "a context of CUDA and buffers of NCCL, as others measured them (NVIDIA/nccl, issues 964 and 1685)"
#: How far tensors may be off where blocks are run as their programs say: more than the largest error of `accuracy --without all`.
AS_PROGRAMS_SAY = Fraction(7, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """What a device of a stage shows, in bytes.

    ``tensors``: their peak, which may be off by the share ``error``. ``allocator``: with what is reserved; ``libraries``: a context, and
    the buffers of so many ``communicators``; both None where a device is none of NVIDIA's. ``capacity``: what the device has.
    ``kept_free``: what everything but tensors is said to need, in place of these ranges. ``usual``: what a driver usually shows: with the
    median of what was reserved, and with libraries at their most; None where a device is none of NVIDIA's.
    """

    tensors: Fraction
    error: Fraction
    allocator: Range | None
    libraries: Range | None
    communicators: int
    capacity: Fraction
    kept_free: Fraction | None = None
    usual: Fraction | None = None

    @property
    def process(self) -> Range:
        """All of it."""
        low, high = self.tensors * (1 - self.error), self.tensors * (1 + self.error)
        if self.kept_free is not None:
            return Range(least=low + self.kept_free, most=high + self.kept_free)
        if self.allocator is None or self.libraries is None:
            return Range(least=low, most=high)
        # what is reserved beyond tensors may be given back before memory runs out, and so may what is exchanged be done with less
        return Range(least=low, most=self.allocator.most * (1 + self.error) + self.libraries.most)

    @property
    def fits(self) -> bool | None:
        """Whether it is within what the device has; None where the model cannot tell."""
        if self.process.most <= self.capacity:
            return True
        return False if self.process.least > self.capacity else None


def process_memory(step: StepTime, cost: StageCost) -> ProcessMemory:
    """What a device of a stage shows on the step's cluster."""
    device, tensors = step.price.cluster.device, step.price.amount(cost.peak)
    low, usual, high, count = reserved()
    communicators = len({sent.axes for sent in cost.sent if step.price.timed(sent).group.degree > 1})
    allocator = Range(
        least=tensors * (1 + low), most=tensors * (1 + high), source=f"tensors, and what the allocator kept on {count} measured runs"
    )
    libraries = Range(
        least=CONTEXT.least + communicators * COMMUNICATOR.least,
        most=CONTEXT.most + communicators * COMMUNICATOR.most,
        source=LIBRARIES,
    )
    of_nvidia = bool(device.architecture)
    return ProcessMemory(
        tensors=tensors,
        error=error(step.d.run_by, {block.name for part in step.d.parts for block in part.blocks}),
        allocator=allocator if of_nvidia else None,
        libraries=libraries if of_nvidia else None,
        communicators=communicators,
        capacity=device.capacity,
        kept_free=step.reserve,
        usual=tensors * (1 + usual) + libraries.most if of_nvidia else None,
    )


def error(run_by: BlockImplementation | None, blocks: Set[str]) -> Fraction:
    """How far tensors were off at most, as a share, on measured runs of the implementation that runs all of a model's ``blocks``.

    Where some are run as their programs say, or are none of a model that was measured: what is allowed for those.
    """
    if run_by is None or not blocks <= set(run_by.describes):
        return AS_PROGRAMS_SAY
    return max((one.within for one in like(run_by.name) if blocks <= _measured(one)), default=AS_PROGRAMS_SAY)


@cache
def _measured(runs: RunSet) -> frozenset[str]:
    """The blocks of models whose tensors were measured, by name."""
    models = {run.run_as.model for run in runs.runs if run.tensors is not None}
    return frozenset(block.name for model in models for segment in load(model).segments for block in segment.blocks)
