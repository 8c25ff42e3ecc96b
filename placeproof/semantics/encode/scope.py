"""The loops around a statement, and how their parts are named."""

from __future__ import annotations

from dataclasses import dataclass

from placeproof.core.program import For
from placeproof.prove.terms import Var
from placeproof.semantics.encode.values import Region
from placeproof.semantics.encode.world import World


@dataclass
class Scope:
    """The loops around a statement, outermost first, with their variables."""

    loops: tuple[tuple[For, Var], ...] = ()

    def inside(self, loop: For, variable: Var) -> Scope:
        """The scope of a loop's body."""
        return Scope((*self.loops, (loop, variable)))

    def find(self, name: str) -> tuple[For, Var] | None:
        """The loop that has a variable."""
        return next(((lp, v) for lp, v in self.loops if lp.var == name), None)

    def around(self, domain: Region, loop: For) -> bool:
        """Whether a loop walks within a region: the whole stage, or a part that an outer loop of the same nest walks."""
        if domain.domain == "stage":
            return True
        within = loop.within
        while within is not None:
            outer = self.find(within)
            if outer is None:
                return False
            if outer[0].domain == domain.domain and outer[1] == domain.index:
                return True
            within = outer[0].within
        return False


def loop_variable(world: World, loop: For) -> Var:
    """The index variable of a loop."""
    return Var(f"i.{loop.var}", world.loop_sort(loop.domain))


def edge(offset: int) -> str:
    """The name of the first or last part."""
    return "first part of" if offset == 0 else "last part of" if offset == -1 else f"part {offset} of"
