"""The functions that terms are built with, each of which tells an open record how its term was said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from placeproof.prove.terms import algebra, cases, extrema, recording
from placeproof.prove.terms.nodes import Argument, Guard, Index, Lam, Poly, Var


def app(name: str, *args: Argument) -> Poly:
    """An uninterpreted function applied to arguments."""
    result, r = algebra.app(name, *args), recording.active
    return result if r is None else r.note(result, "apply", name, tuple(r.argument(a) for a in args))


def product(*polys: Poly) -> Poly:
    """The product of terms."""
    result, r = algebra.product(*polys), recording.active
    return result if r is None else r.note(result, "times", *(r.said(p) for p in polys))


def power(poly: Poly, exponent: int) -> Poly:
    """A whole power."""
    result, r = algebra.power(poly, exponent), recording.active
    return result if r is None else r.note(result, "power", r.said(poly), exponent)


def inverse(poly: Poly) -> Poly:
    """One over a term. That it is not zero is for the caller to show. Raises ZeroDivisionError for zero itself."""
    result, r = algebra.inverse(poly), recording.active
    return result if r is None else r.note(result, "power", r.said(poly), -1)


def total(binders: Iterable[Var], body: Poly) -> Poly:
    """The sum of a term over index variables, by the rules for sums."""
    over = tuple(binders)
    result, r = algebra.total(over, body), recording.active
    return result if r is None else r.note(result, "sum", r.vars(over), r.said(body))


def greatest(binders: Sequence[Var], body: Poly, guards: frozenset[Guard] = frozenset()) -> Poly:
    """The greatest value of a term over index variables, among the points where the guards hold."""
    result, r = extrema.greatest(binders, body, guards), recording.active
    return result if r is None else r.note(result, "max", r.vars(binders), r.guards(guards), r.said(body))


def lam(binders: Sequence[Var], body: Poly) -> Lam:
    """A function of index variables."""
    result, r = algebra.lam(binders, body), recording.active
    return result if r is None else r.note_function(result, binders, body)


def substitute(poly: Poly, meant: Mapping[str, Index]) -> Poly:
    """A term with index variables replaced by index terms."""
    result, r = algebra.substitute(poly, meant), recording.active
    return result if r is None or result is poly else r.note(result, "let", r.pairs(meant), r.said(poly))


def choose(where: Poly, then: Poly, otherwise: Poly) -> Poly:
    """``then`` where the guard ``where`` (1 or 0) holds, ``otherwise`` elsewhere."""
    result, r = cases.choose(where, then, otherwise), recording.active
    return result if r is None else r.chosen(result, where, then, otherwise)


def by_cases(make: Callable[..., Poly], *polys: Poly) -> Poly:
    """``make`` of terms with guards: for each guard, its value where the guard holds and its value elsewhere. ``make`` says the same of
    every term."""
    result, r = cases.by_cases(make, *polys), recording.active
    return result if r is None else r.note(result, "plus", r.said(make(*polys)))
