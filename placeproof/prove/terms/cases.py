"""Terms by cases: one value where a guard holds, another elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from placeproof.prove.terms.algebra import product, substitute, sum_of
from placeproof.prove.terms.nodes import Guard, Mono, Poly, Var


def choose(where: Poly, then: Poly, otherwise: Poly) -> Poly:
    """``then`` where the guard ``where`` (1 or 0) holds, ``otherwise`` elsewhere."""
    return product(where, then) + otherwise - product(where, otherwise)


def under(body: Poly, where: Poly, *, holds: bool) -> Poly:
    """A term where the guard ``where`` (one guard) holds, or where it does not."""
    ((mono, _),) = where.terms
    (guard,) = mono.guards
    if holds:
        return sum_of((_without(m, guard), c) for m, c in body.terms)
    return Poly({m: c for m, c in body.terms if guard not in m.guards})


def by_cases(make: Callable[..., Poly], *polys: Poly) -> Poly:
    """``make`` of terms with guards: for each guard, its value where the guard holds and its value elsewhere."""
    guard = next((g for p in polys for m, _ in p.terms for g in sorted(m.guards, key=lambda g: (g[0].key, g[1].key))), None)
    if guard is None:
        return make(*polys)
    where = Poly({Mono({}, frozenset((guard,))): Fraction(1)})
    held = [under(p, where, holds=True) for p in polys]
    missed = [under(p, where, holds=False) for p in polys]
    if isinstance(guard[0], Var):
        held = [substitute(p, {guard[0].name: guard[1]}) for p in held]
    return choose(where, by_cases(make, *held), by_cases(make, *missed))


def _without(mono: Mono, guard: Guard) -> Poly:
    return Poly({Mono(dict(mono.factors), mono.guards - {guard}): Fraction(1)})
