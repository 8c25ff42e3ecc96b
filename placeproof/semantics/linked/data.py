"""What a linked program is: a step over states whose layers are calls, and the blocks that they call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from placeproof.core.mesh import Axis
from placeproof.models import Block, Segment
from placeproof.models.expressions import Expression
from placeproof.programs import Program


@dataclass(frozen=True, kw_only=True)
class Linked:
    """A step program whose ``forward(w, x)`` runs the blocks of ``stack``, from the first to the last.

    ``step``: its parameters are those of the blocks that a device has, so that it says nothing of how axes split a block, and nothing of
    which stage has which segment. ``stack``: segments whose blocks lie on the mesh; each of their repetitions is a unit of the step.
    ``sizes``: of the dimensions of blocks, as expressions of symbols; ``values``: the numbers of these symbols. ``members``: block and weight
    of what is in each parameter group of the step, but for the first, which has all others. ``shared``: weights that are one tensor
    wherever they stand. ``recompute``: what backward computes again, in words (``placeproof explain`` has them). ``schedule``,
    ``chunks``: the order of micro-batches along the axis of stages. ``layers``: those of each stage, where it is said. ``ring``: axes round
    which go keys and values that blocks gather. ``title``, ``source``, ``note``: of the model.
    """

    model: str
    title: str
    source: str
    step: Program
    stack: tuple[Segment, ...]
    sizes: Mapping[str, Expression]
    values: Mapping[str, int]
    members: Mapping[str, tuple[tuple[str, str], ...]]
    note: str = ""
    shared: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ("none",)
    schedule: str = "1f1b"
    chunks: int = 1
    layers: tuple[int, ...] | None = None
    ring: tuple[str, ...] = ()

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        """Every block by its name."""
        return {block.name: block for segment in self.stack for block in segment.blocks}

    @cached_property
    def stages(self) -> Axis | None:
        """The axis that splits the layers."""
        return next((a for a in self.step.axes if a.splits.name == "layers"), None)

    @cached_property
    def experts(self) -> str | None:
        """The axis over which experts lie in parts."""
        return next((g.experts for g in self.step.groups if g.experts), None)

    def group(self, block: str, weight: str) -> str:
        """The step's group of a weight."""
        found = (name for name, members in self.members.items() if (block, weight) in members)
        return next(found, self.step.groups[0].name)

    def weights(self) -> Iterator[tuple[str, str]]:
        """Every weight of every block, by the names of both."""
        for block in self.blocks.values():
            yield from ((block.name, w.name) for w in block.weights)
