"""What a block's text says before it is lowered: how results have to lie, and where backward begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from placeproof.programs import Do, Program, Ref, assigned, reads
from placeproof.programs.ir import adjoints, returned
from placeproof.semantics.layouts.layout import Layout


@dataclass(frozen=True, slots=True)
class Want:
    """How an expression's value has to lie. ``weight``: it is the gradient of a weight, which axes split by the dimensions in ``split``."""

    split: Mapping[str, str]
    weight: bool

    @staticmethod
    def of(layout: Layout | None) -> Want:
        """Nothing, unless it is known how the value has to lie, and it belongs to the model."""
        if layout is None or not layout.model:
            return ANYHOW
        return Want({axis: dim for dim, axes in layout.split.items() for axis in axes}, weight=True)


#: Nothing is known of how a value has to lie.
ANYHOW = Want({}, weight=False)


def wanted(program: Program, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """The layouts in which buffers are returned: a result as its gradient comes in, a gradient as what it is by.

    ``layouts`` are those of the header. What is said of no tensor there has no entry.
    """
    layouts_wanted: dict[str, Layout] = {}
    of = {call.option("gradient_of"): call.option("at") for call in returned(program)}
    for call in returned(program):
        if isinstance(call.args[0], Ref):
            name = call.args[0].name
            like = call.option("by") or of.get(name)
            if like is not None and like in layouts:
                layouts_wanted.setdefault(name, layouts[like])
    return layouts_wanted


def backward(program: Program) -> tuple[int, frozenset[str]]:
    """The number of the first statement that depends on a gradient that comes in (as many as there are if none does), and what does."""
    seeds = adjoints(program)
    tainted = seeds & {t.name for t in program.tensors}
    first = len(program.body)
    for number, stmt in enumerate(program.body):
        names = {t.name for t in assigned((stmt,))}
        if not tainted.isdisjoint(r.name for r in reads(stmt)) or names & seeds:
            first = min(first, number)
            tainted |= names
    return first, frozenset(tainted)


def lasting(program: Program) -> frozenset[str]:
    """The buffers that are written once, and not freed: what is computed of them again is the same."""
    written = Counter([*(t.name for t in program.tensors), *(t.name for t in assigned(program.body))])
    freed = {r.name for s in program.body if isinstance(s, Do) and s.call.op == "free" for r in reads(s)}
    return frozenset(name for name, times in written.items() if times == 1 and name not in freed)
