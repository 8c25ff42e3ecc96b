"""Greatest values over index sorts: nested ones are one, and a guard on an index that it fixes is the value there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from placeproof.prove.terms.algebra import at_points, fresh, of_atom, renamings, same, substitute, substitute_index
from placeproof.prove.terms.nodes import Greatest, Guard, Index, Poly, Var, point


def greatest(binders: Sequence[Var], body: Poly, guards: frozenset[Guard] = frozenset()) -> Poly:
    """The greatest value of a term over index variables, among the points where the guards hold.

    Rules: over no index it is the term; the greatest over x of the greatest over y is the greatest over both; an index
    that a guard fixes takes that value. Nothing is pulled out of a maximum.
    """
    body, guards = at_points(binders, body), _replaced(guards, {b.name: point(b.sort) for b in binders if b.sort.single})
    used = body.free.union(*(s.free for g in guards for s in g))
    chosen = [b for b in binders if b.name in used and not b.sort.single]
    nested = next((a for m, _ in body.terms for a, _ in m.factors if isinstance(a, Greatest)), None)
    if chosen and nested is not None and body == of_atom(nested):
        variables, inner, inside = opened_greatest(nested)
        return greatest([*chosen, *variables], inside, guards | inner)
    for guard in sorted(guards, key=lambda g: (g[0].key, g[1].key)):
        for variable, meant in (guard, guard[::-1]):
            if isinstance(variable, Var) and variable in chosen and variable.name not in meant.free:
                one: dict[str, Index] = {variable.name: meant}
                rest = [b for b in chosen if b != variable]
                return greatest(rest, substitute(body, one), _replaced(guards - {guard}, one))
    return _canonical(chosen, body, guards) if chosen or guards else body


def _replaced(guards: frozenset[Guard], meant: Mapping[str, Index]) -> frozenset[Guard]:
    return ordered((substitute_index(a, meant), substitute_index(b, meant)) for a, b in guards)


def ordered(pairs: Iterable[tuple[Index, Index]]) -> frozenset[Guard]:
    """Guards in the order of their sides that normal forms have, without those that always hold."""
    return frozenset((a, b) if a.key > b.key else (b, a) for a, b in pairs if a.key != b.key)


def opened_greatest(atom: Greatest) -> tuple[list[Var], frozenset[Guard], Poly]:
    """A maximum's variables under new names, with its guards and its body in them."""
    variables, names = fresh(atom.binders)
    return variables, _replaced(atom.guards, names), substitute(atom.body, names)


def _canonical(binders: Sequence[Var], body: Poly, guards: frozenset[Guard]) -> Poly:
    parts = itertools.chain((Poly({m: c}) for m, c in body.terms), (same(*g) for g in guards))
    named = renamings(binders, parts, max([body.height, *(s.height for g in guards for s in g)]))
    return of_atom(min(Greatest(names, _replaced(guards, meant), substitute(body, meant)) for names, meant in named))


def substituted_greatest(atom: Greatest, meant: Mapping[str, Index]) -> Poly:
    """A maximum with free variables replaced."""
    variables, guards, inside = opened_greatest(atom)
    return greatest(variables, substitute(inside, meant), _replaced(guards, meant))
