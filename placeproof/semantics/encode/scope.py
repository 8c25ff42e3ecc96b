"""The loops around a statement, and how their parts are named."""

from __future__ import annotations

from dataclasses import dataclass

from placeproof.programs import FIRST_UNIT, For
from placeproof.prove.terms import Fn, Index, Sort, Var, fn
from placeproof.semantics.encode.values import Region
from placeproof.semantics.encode.world import BLOCK, FIRST_PART, LAST_PART, World


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

    def to(self, name: str | None) -> tuple[tuple[For, Var], ...]:
        """The loops from the outermost one to the one that has a variable; none if none has it."""
        names = [lp.var for lp, _ in self.loops]
        return self.loops[: names.index(name) + 1] if name in names else ()

    def around(self, domain: Region, loop: For) -> bool:
        """Whether a loop walks within a region: the whole stage, or a part that an outer loop of the same nest walks."""
        if domain.domain == "stage":
            return True
        within = loop.within
        while within is not None:
            if within == FIRST_UNIT:
                return isinstance(domain.index, Fn) and domain.index.name == FIRST_PART
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


def domain_of(variable: Var) -> str:
    """What the loop of an index variable over parts of the model goes over."""
    return "blocks" if variable.sort == BLOCK else variable.sort.name


def shifted(variable: Var, offset: int) -> Index:
    """The part that stands so many after that of an iteration."""
    return fn(f"shifted {offset:+d}", (variable,), variable.sort) if offset else variable


def edge(number: int, whole: Region, sort: Sort) -> Index:
    """The part of a region that is named by a number: from the start, or from the end where it is negative."""
    name = FIRST_PART if number == 0 else LAST_PART if number == -1 else f"part {number} of"
    return fn(name, (whole.index,), sort)
