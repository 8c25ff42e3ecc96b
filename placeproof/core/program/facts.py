"""What the header of a program says of axes and groups, asked by name."""

from __future__ import annotations

from functools import cached_property

from placeproof.core.program.ir import Group, Program, calls, statements


class ProgramFacts:
    """Facts about a program, for what is made of it."""

    program: Program

    def factors(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axis factors that names stand for."""
        return self.program.factors(*axes)

    def _splitting(self, kind: str) -> str | None:
        return next((a.name for a in self.program.axes if a.splits.name == kind), None)

    @cached_property
    def hidden(self) -> str | None:
        """The axis that splits the hidden dimension."""
        return self._splitting("hidden")

    @cached_property
    def stages(self) -> str | None:
        """The axis that splits the layers."""
        return self._splitting("layers")

    @cached_property
    def sample_factors(self) -> tuple[str, ...]:
        """Axis factors whose devices have different samples."""
        return tuple(f for a in self.program.axes if a.splits.samples for f in a.factors)

    @cached_property
    def network(self) -> bool:
        """Whether the program walks through blocks, and passes activations from part to part itself."""
        return any(c.op == "forward" for s in statements(self.program.body) for c in calls(s))

    def group(self, name: str) -> Group:
        """The group of that name."""
        return next(g for g in self.program.groups if g.name == name)

    def tied(self, group: str) -> str | None:
        """The axis between whose ends a group's copies are tied."""
        return next((g.tied for g in self.program.groups if g.name == group), None)

    @cached_property
    def expert_groups(self) -> frozenset[str]:
        """Groups of experts."""
        return frozenset(g.name for g in self.program.groups if g.experts)
