"""What a linked program is: a step over states whose layers are calls, and the blocks that they call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from placeproof.core.mesh import Axis
from placeproof.models import Block, Segment
from placeproof.models.expressions import Expression
from placeproof.programs import Program


def splitting(step: Program) -> tuple[Axis, ...]:
    """The axes of a step that split its blocks: what they compute, the sequence, experts."""
    experts = {axis for g in step.groups for axis in g.experts}
    return tuple(a for a in step.axes if a.splits.matrices or a.splits.tokens or a.name in experts)


def dimensions(program: Program) -> Iterator[str]:
    """The dimensions of a block whose sizes are asked for, as often as its header names them."""
    for tensor in program.tensors:
        yield from tensor.dims
        if tensor.picks is not None:
            yield tensor.picks


@dataclass(frozen=True, kw_only=True)
class Linked:
    """A step program whose ``forward(w, x)`` runs the blocks of ``stack``, from the first to the last.

    ``step``: its parameters are those of the blocks that a device has, so that it says nothing of how axes split a block, and nothing of
    which stage has which segment. ``stack``: segments whose blocks lie on the mesh; each of their repetitions is a unit of the step.
    ``sizes``: of the dimensions of blocks, as expressions of symbols; ``values``: the numbers of these symbols. ``members``: block and
    weight of what is in each parameter group of the step, but for the first, which has all others. ``shared``: weights that are one tensor
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

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.step.name

    def with_degrees(self, degrees: Mapping[str, int | None]) -> Linked:
        """The program on a mesh whose axes have these degrees, where they are named."""

        def sized(program: Program) -> Program:
            return replace(program, axes=tuple(replace(a, degree=degrees.get(a.name, a.degree)) for a in program.axes))

        def on_it(segment: Segment) -> Segment:
            return replace(segment, blocks=tuple(replace(b, program=sized(b.program)) for b in segment.blocks))

        return replace(self, step=sized(self.step), stack=tuple(map(on_it, self.stack)))

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        """Every block by its name."""
        return {block.name: block for segment in self.stack for block in segment.blocks}

    @cached_property
    def stages(self) -> Axis | None:
        """The axis that splits the layers."""
        return next((a for a in self.step.axes if a.splits.stages), None)

    @property
    def pipeline(self) -> str | None:
        """The name of the axis that splits the layers."""
        return None if self.stages is None else self.stages.name

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the mesh, which are the strategy's."""
        return tuple(a for a in self.step.axes if a.name not in self.apart)

    @property
    def apart(self) -> tuple[str, ...]:
        """The axis along which copies of the model lie that a schedule holds: the devices of one are those of the other."""
        return () if self.stages is None else tuple(a.name for a in self.step.axes if a.name == f"{self.stages.name}_copy")

    @cached_property
    def experts(self) -> tuple[str, ...]:
        """The axes over which experts lie in parts."""
        return next((g.experts for g in self.step.groups if g.experts), ())

    def group(self, block: str, weight: str) -> str:
        """The step's group of a weight."""
        names = (name for name, members in self.members.items() if (block, weight) in members)
        return next(names, self.step.groups[0].name)

    def frozen(self, block: str) -> frozenset[str]:
        """The weights of a block that are not trained."""
        groups = {g.name for g in self.step.groups if g.frozen}
        return frozenset(weight for of, weight in self.weights() if of == block and self.group(of, weight) in groups)

    def weights(self) -> Iterator[tuple[str, str]]:
        """Every weight of every block, by the names of both."""
        for block in self.blocks.values():
            yield from ((block.name, w.name) for w in block.weights)
