"""Neighbours on a ring: whose part a device holds after a shift."""

from __future__ import annotations

from collections.abc import Mapping

from placeproof.prove.terms import Index, Poly, Sort, Var, fn, rewritten, substitute, substitute_index
from placeproof.semantics.tensors.values import Value

_AROUND = {"1": ("before", "after"), "-1": ("after", "before")}


def neighbour(sort: Sort, here: Index, by: str, *, other: bool = False) -> Index:
    """The device whose part a shift brings here; ``other``: the one that a shift sends it to."""
    return fn(f"{_AROUND[by][other]}.{sort.name}", (here,), sort)


def shifted(body: Poly, sort: Sort, here: Var, by: str) -> Poly:
    """A term after a shift: what the neighbour had. The neighbour's neighbour on the other side is the device itself."""
    there = neighbour(sort, here, by)
    back = neighbour(sort, there, by, other=True)
    return rewritten(substitute(body, {here.name: there}), back, here)


def shifted_index(index: Index, sort: Sort, here: Var, by: str) -> Index:
    """The same for whose part it is."""
    there = neighbour(sort, here, by)
    moved = substitute_index(index, {here.name: there})
    return here if moved.key == neighbour(sort, there, by, other=True).key else moved


def moved_turns(value: Value, axis: str, to: Mapping[str, Index]) -> dict[tuple[str, str], Index]:
    """Whose parts a value holds once it went round: those along other axes stay, those along this one are ``to``'s."""
    mine = {(dim, axis): to[dim] for dim, cuts in value.cuts.items() if axis in cuts}
    return {**value.turns, **mine}
