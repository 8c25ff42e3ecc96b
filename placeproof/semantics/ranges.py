"""Ranges of degrees and micro-batches that a claim is restricted to."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.program import Program
from placeproof.prove import Order
from placeproof.prove.kernel import ask
from placeproof.prove.smtlib import satisfiable
from placeproof.prove.terms import constant, symbol
from placeproof.semantics.encode.world import World
from placeproof.semantics.trace import trace

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """``name relation bound``: the name of a degree or of the number of micro-batches, and a whole number."""

    name: str
    relation: str
    bound: int

    def __str__(self) -> str:
        return f"{self.name} {self.relation} {self.bound}"

    @property
    def given(self) -> Order:
        """The range as a hypothesis."""
        relation = "=" if self.relation == "==" else self.relation
        return Order(name=str(self), left=symbol(self.name), relation=relation, right=constant(self.bound))

    def allows(self, value: int) -> bool:
        """Whether a number lies in the range."""
        return _RELATIONS[self.relation](value, self.bound)


def names(program: Program) -> tuple[str, ...]:
    """The symbols that a range may speak of: degrees that are not fixed, and the number of micro-batches."""
    world = World(trace(program).program)
    sizes = [s.size for s in (*world.sorts.values(), world.batch)]
    return tuple(dict.fromkeys(s for s in sizes if isinstance(s, str)))


def read_ranges(texts: Iterable[str], program: Program) -> tuple[Range, ...]:
    """Read ranges. Raises InputError for those that cannot be read, and for ranges that contradict one another."""
    problems = Problems()
    known, found = names(program), []
    for text in texts:
        match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|==|>|<)\s*(\d+)\s*", text)
        if match is None:
            problems.add("PP208", f"`{text}` is no range", help="for example `N_dp >= 2`")
        elif match[1] not in known:
            shown = ", ".join(f"`{n}`" for n in known) or "nothing: all degrees are fixed"
            hint = suggestion(match[1], known) or f"a range may speak of {shown}"
            problems.add("PP208", f"`{match[1]}` is no degree of this program", help=hint)
        else:
            found.append(Range(name=match[1], relation=match[2], bound=int(match[3])))
    problems.raise_if_any()
    least = [Range(name=n, relation=">=", bound=1) for n in known]
    if found and ask(satisfiable(tuple(r.given for r in (*least, *found)))) == "unsat":
        shown = ", ".join(str(r) for r in found)
        problems.add("PP208", f"no degree satisfies {shown}: the ranges contradict one another", help="degrees are at least 1")
    problems.raise_if_any()
    return tuple(found)
