"""What the header of a program says of axes and groups, asked by name."""

from __future__ import annotations

from functools import cached_property

from placeproof.core.mesh import Axis
from placeproof.core.strategy import NORM
from placeproof.programs.ir import For, Group, Ref, Resolved, calls, statements


class ProgramFacts:
    """Facts about a program, for what is made of it."""

    program: Resolved

    def factors(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axis factors that names stand for."""
        return self.program.factors(*axes)

    def axis_of(self, factor: str) -> Axis:
        """The axis of an axis factor."""
        axis = self.program.axis(factor)
        assert axis is not None
        return axis

    def split_axes(self, state: str, group: str) -> tuple[str, ...]:
        """The axes along which a state of a group lies in parts."""
        placed = (p for p in self.program.placed if p.state == state and p.group in (None, group))
        return tuple(dict.fromkeys(axis for p in placed for axis, mode in p.modes if mode.split))

    @cached_property
    def hidden(self) -> str | None:
        """The axis that splits the hidden dimension."""
        return next((a.name for a in self.program.axes if a.splits.matrices), None)

    @cached_property
    def stages(self) -> str | None:
        """The axis that splits the layers."""
        return next((a.name for a in self.program.axes if a.splits.stages), None)

    @cached_property
    def sample_factors(self) -> tuple[str, ...]:
        """Axis factors whose devices have different samples."""
        return tuple(f for a in self.program.axes if a.splits.samples for f in a.factors)

    @cached_property
    def network(self) -> bool:
        """Whether the program walks through blocks, and passes activations from part to part itself."""
        return any(c.op == "forward" for c in self.program.calls)

    @cached_property
    def by_groups(self) -> bool:
        """Whether the program computes the groups of a block one by one, as tensor parallelism does."""
        weights = (c.args[0] for c in self.program.calls if c.op == "forward")
        return len(self.program.groups) > 1 and any(isinstance(w, Ref) and w.group is not None for w in weights)

    @cached_property
    def parts_of_a_block(self) -> tuple[str, ...]:
        """The groups that add something to the output of a block that is computed group by group: matrices, experts."""
        return tuple(g.name for g in self.program.groups if g.name != NORM and not g.tied)

    @cached_property
    def masked_by(self) -> str:
        """The draw that makes the reference's masks: the program's first one in a micro-batch, or else the first."""
        loops = (s for s in statements(self.program.body) if isinstance(s, For) and s.domain == "microbatches")
        every = (s for body in (*(loop.body for loop in loops), self.program.body) for s in statements(body))
        return next((c.choice("draw") for s in every for c in calls(s) if c.op == "random"), "0")

    def group(self, name: str) -> Group:
        """The group of that name."""
        return next(g for g in self.program.groups if g.name == name)

    def tied(self, group: str) -> str | None:
        """The axis between whose ends a group's copies are tied, which lie in no stage."""
        return None if group in self.program.shared_by_ends else self.group(group).tied

    def shared(self, group: str) -> str | None:
        """The axis of stages the first of which shares the weights of a group, in its first block, with the last one, in its last block."""
        return self.group(group).tied if group in self.program.shared_by_ends else None

    def partial(self, group: str) -> tuple[str, ...]:
        """The axis factors over which a group's gradient is shared out, by whole passes or by calls of blocks. What a step does within a
        block, group by group or over slices, shows by itself what is."""
        axes = (a for a in self.group(group).partial if not self.network or self.axis_of(a).splits.called)
        return self.factors(tuple(axes))

    @cached_property
    def called(self) -> tuple[str, ...]:
        """The axis factors over which blocks that a step calls whole exchange by themselves."""
        return tuple(f for a in self.program.axes if a.splits.called for f in a.factors)

    def calls_part(self, group: str, factor: str) -> bool:
        """Whether calls of blocks compute with the part of a group that a device has along an axis factor. What is gathered for them, they
        are given whole."""
        named = {factor, self.axis_of(factor).name}
        placed = (p for p in self.program.placed if p.state == "parameters" and p.group in (None, group))
        return factor in self.called and any(axis in named and mode.split and not mode.gathers for p in placed for axis, mode in p.modes)

    @cached_property
    def expert_groups(self) -> frozenset[str]:
        """Groups of experts."""
        return frozenset(g.name for g in self.program.groups if g.experts)
