"""Terms of the prover: real-valued expressions over index sorts, with sums, kept in a normal form.

Build terms with the functions of this package alone; they apply the rules for sums (:mod:`.algebra`) as they build, and tell an open record
how each term was said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from placeproof.prove.terms import algebra, remembered
from placeproof.prove.terms.addition import ONE, ZERO, constant, of_atom, same, size, sum_of, symbol
from placeproof.prove.terms.algebra import rewritten, substitute_index
from placeproof.prove.terms.nodes import App, Argument, Fn, Greatest, Guard, Index, Lam, Mono, Paren, Poly, Sort, Sum, Sym, Var, fn, point

__all__ = [
    "ONE",
    "ZERO",
    "App",
    "Fn",
    "Greatest",
    "Index",
    "Lam",
    "Mono",
    "Paren",
    "Poly",
    "Sort",
    "Sum",
    "Sym",
    "Var",
    "app",
    "by_cases",
    "choose",
    "constant",
    "each_case",
    "fn",
    "greatest",
    "inverse",
    "lam",
    "point",
    "power",
    "product",
    "rewritten",
    "same",
    "size",
    "substitute",
    "substitute_index",
    "symbol",
    "total",
    "under",
]


def app(name: str, *args: Argument) -> Poly:
    """An uninterpreted function applied to arguments."""
    result, r = of_atom(App(name, args)), remembered.record
    return result if r is None else r.note(result, "apply", name, tuple(map(r.said, args)))


def product(*polys: Poly) -> Poly:
    """The product of terms."""
    result, r = algebra.product(*polys), remembered.record
    return result if r is None else r.note(result, "times", *(r.said(p) for p in polys))


def power(poly: Poly, exponent: int) -> Poly:
    """A whole power."""
    result, r = algebra.power(poly, exponent), remembered.record
    return result if r is None else r.note(result, "power", r.said(poly), exponent)


def inverse(poly: Poly) -> Poly:
    """One over a term. That it is not zero is for the caller to show. Raises ZeroDivisionError for zero itself."""
    result, r = algebra.inverse(poly), remembered.record
    return result if r is None else r.note(result, "power", r.said(poly), -1)


def total(binders: Iterable[Var], body: Poly) -> Poly:
    """The sum of a term over index variables, by the rules for sums."""
    over = tuple(binders)
    result, r = algebra.total(over, body), remembered.record
    return result if r is None else r.note(result, "sum", r.vars(over), r.said(body))


def greatest(binders: Sequence[Var], body: Poly, guards: frozenset[Guard] = frozenset()) -> Poly:
    """The greatest value of a term over index variables, among the points where the guards hold."""
    result, r = algebra.greatest(binders, body, guards), remembered.record
    return result if r is None else r.note(result, "max", r.vars(binders), r.guards(guards), r.said(body))


def lam(binders: Sequence[Var], body: Poly) -> Lam:
    """A function of index variables."""
    result, r = algebra.lam(binders, body), remembered.record
    return result if r is None else r.note(result, "function", r.vars(binders), r.said(body))


def substitute(poly: Poly, meant: Mapping[str, Index]) -> Poly:
    """A term with index variables replaced by index terms."""
    result, r = algebra.substitute(poly, meant), remembered.record
    return result if r is None or result is poly else r.note(result, "let", r.pairs(meant), r.said(poly))


def choose(where: Poly, then: Poly, otherwise: Poly) -> Poly:
    """``then`` where the guard ``where`` (1 or 0) holds, ``otherwise`` elsewhere."""
    result, r = _chosen(where, then, otherwise), remembered.record
    if r is None:
        return result
    guard, other = r.said(where), r.said(otherwise)
    less = r.line("times", r.line("number", "-1"), guard, other)
    return r.note(result, "plus", r.line("times", guard, r.said(then)), other, less)


def _chosen(where: Poly, then: Poly, otherwise: Poly) -> Poly:
    return algebra.product(where, then) + otherwise - algebra.product(where, otherwise)


def under(body: Poly, where: Poly, *, holds: bool) -> Poly:
    """A term where the guard ``where`` (one guard) holds, or where it does not."""
    ((mono, _),) = where.terms
    (guard,) = mono.guards
    if not holds:
        return Poly({m: c for m, c in body.terms if guard not in m.guards})
    return sum_of((Poly({Mono(dict(m.factors), m.guards - {guard}): Fraction(1)}), c) for m, c in body.terms)


def by_cases(make: Callable[..., Poly], *polys: Poly) -> Poly:
    """``make`` of terms with guards, by :func:`each_case`. ``make`` says the same of every term."""
    result, r = each_case(make, *polys), remembered.record
    return result if r is None else r.note(result, "plus", r.said(make(*polys)))


def each_case(make: Callable[..., Poly], *polys: Poly) -> Poly:
    """``make`` of terms with guards: for each guard, its value where the guard holds and its value elsewhere. No record is told."""
    guard = next((g for p in polys for m, _ in p.terms for g in sorted(m.guards, key=lambda g: (g[0].key, g[1].key))), None)
    if guard is None:
        return make(*polys)
    where = Poly({Mono({}, frozenset((guard,))): Fraction(1)})
    held = [under(p, where, holds=True) for p in polys]
    missed = [under(p, where, holds=False) for p in polys]
    if isinstance(guard[0], Var):
        held = [algebra.substitute(p, {guard[0].name: guard[1]}) for p in held]
    return _chosen(where, each_case(make, *held), each_case(make, *missed))
