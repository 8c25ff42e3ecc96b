"""The simplest terms, their sums and their rational multiples: what needs no substitution."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from placeproof.prove.terms.nodes import Atom, Index, Mono, Poly, Sort, Sym, Var

_EMPTY = Mono({}, frozenset())
ZERO = Poly({})
ONE = Poly({_EMPTY: Fraction(1)})


def constant(value: Fraction | int) -> Poly:
    """A rational number."""
    return Poly({_EMPTY: Fraction(value)})


def of_atom(atom: Atom, exponent: int = 1) -> Poly:
    """An atom (to a power) as a term."""
    return Poly({Mono({atom: exponent}, frozenset()): Fraction(1)})


def symbol(name: str) -> Poly:
    """A real constant."""
    return of_atom(Sym(name))


def size(sort: Sort) -> Poly:
    """The number of points of a sort."""
    return constant(sort.size) if isinstance(sort.size, int) else symbol(sort.size)


# Guards.


def _oriented(a: Index, b: Index) -> tuple[Index, Index]:
    """A variable first, so that the guard can replace it; of two alike, the greater first."""
    if isinstance(a, Var) is not isinstance(b, Var):
        return (a, b) if isinstance(a, Var) else (b, a)
    return (a, b) if a.key > b.key else (b, a)


def same(a: Index, b: Index) -> Poly:
    """1 where two index terms are equal, 0 elsewhere."""
    if a.key == b.key:
        return ONE
    return Poly({Mono({}, frozenset((_oriented(a, b),))): Fraction(1)})


def sum_of(parts: Iterable[tuple[Poly, Fraction]]) -> Poly:
    """The sum of terms with rational factors."""
    terms: dict[Mono, Fraction] = {}
    for poly, factor in parts:
        for mono, coefficient in poly.terms:
            more = coefficient if factor == 1 else coefficient * factor
            terms[mono] = terms[mono] + more if mono in terms else more
    return Poly(terms)


def scaled(poly: Poly, factor: Fraction) -> Poly:
    """A rational multiple."""
    return Poly({m: c * factor for m, c in poly.terms})
