"""Closed forms: a tidy shape, limits, and comparisons that hold for all admissible values. Only fast SymPy is used."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from placeproof.core.symbols import Domain, symbol
from placeproof.cost.uneven import described, unbounded

if TYPE_CHECKING:
    import sympy


@lru_cache(maxsize=4096)
def tidy(expr: sympy.Expr) -> sympy.Expr:
    """An equal expression with common factors pulled out: ``P*(N - 1)*(b_g + b_theta)/N``."""
    import sympy

    if expr.is_Atom:
        return expr
    if expr.has(sympy.Max, sympy.Min):
        expr = expr.replace(lambda e: isinstance(e, sympy.Max | sympy.Min), _of_tidy)
    if isinstance(expr, sympy.Add):
        expr = _by_denominator(expr)
    return sympy.factor_terms(expr, sign=False)


def _of_tidy(extreme: sympy.Expr) -> sympy.Expr:
    """A maximum or minimum of tidy amounts. SymPy takes seconds to compare some, and few have a sign while symbols are open."""
    amounts = tuple(dict.fromkeys(tidy(amount) for amount in extreme.args))
    if amounts == extreme.args:
        return extreme
    return extreme.func(*amounts, evaluate=False) if len(amounts) > 1 else amounts[0]


def _by_denominator(expr: sympy.Expr) -> sympy.Expr:
    """Terms with the same symbolic denominator, added: each sum's numerator then shows its common factor."""
    import sympy

    terms: dict[sympy.Expr, list[sympy.Expr]] = {}
    for term in sympy.Add.make_args(expr):
        numerator, denominator = sympy.fraction(term)
        number, rest = denominator.as_coeff_Mul()
        terms.setdefault(rest, []).append(numerator / number)
    return sympy.Add(*(sympy.factor_terms(sympy.Add(*parts), sign=False) / rest for rest, parts in terms.items()))


def limit(expr: sympy.Expr, name: str) -> sympy.Expr:
    """The value as one symbol grows without bound, for sums of monomials and their maxima (``oo`` where it grows)."""
    import sympy

    n = symbol(name)
    if not expr.has(n):
        return expr
    if isinstance(expr, sympy.Max | sympy.Min):
        return expr.func(*(limit(a, name) for a in expr.args))
    if expr.has(sympy.Max, sympy.Min):
        return _limit_of_parts(expr, name)
    if isinstance(expr, sympy.Add):
        terms = [limit(term, name) for term in expr.args]
        if sympy.oo not in terms:
            return tidy(sympy.Add(*terms))
    numerator, denominator = sympy.fraction(sympy.together(expr))
    top, bottom = sympy.Poly(numerator, n), sympy.Poly(denominator, n)
    if top.degree() > bottom.degree():
        return sympy.oo
    if top.degree() < bottom.degree():
        return sympy.Integer(0)
    return tidy(top.LC() / bottom.LC())


def _limit_of_parts(expr: sympy.Expr, name: str) -> sympy.Expr:
    """Sums and products with a maximum inside: a maximum whose limit is finite is replaced by it."""
    import sympy

    replaced = expr.replace(lambda e: isinstance(e, sympy.Max | sympy.Min), lambda e: limit(e, name))
    if replaced.has(sympy.Max, sympy.Min) and replaced.has(symbol(name)):
        terms = [limit(t, name) if not t.has(sympy.Max, sympy.Min) else t for t in sympy.Add.make_args(replaced)]
        return sympy.Add(*terms)
    return limit(replaced, name) if replaced.has(symbol(name)) else replaced


def never_less(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Whether ``a >= b`` for all admissible values, by a certificate: with every bound shifted to zero (N = 1 + N', P = U + P', or
    P = P_norm + P_expert + P'), all coefficients of the difference are non-negative. False means only that the certificate fails."""
    import sympy

    difference = sympy.together(unbounded(a - b))
    if difference == 0:
        return True
    if difference.has(sympy.Max, sympy.Min):
        return False
    numerator, denominator = sympy.fraction(difference)
    return all(_non_negative(part) for part in (numerator, denominator))


#: What is counted in something else, and never twice.
_APART = ("P_norm", "P_expert"), ("A_seq", "A_expert")


def _non_negative(expr: sympy.Expr) -> bool:
    """For one of the ways to shift what bounds several symbols."""
    import sympy

    shifts: dict[sympy.Symbol, sympy.Expr] = {}
    bounds: dict[str, dict[tuple[str, ...], sympy.Expr]] = {}
    for free in sorted(expr.free_symbols, key=str):
        row, name = described(str(free)), str(free)
        if row.domain is Domain.COUNT:
            shifts[free] = 1 + sympy.Symbol(f"{name}_")
        if row.at_most is not None and symbol(row.at_most) in expr.free_symbols:
            parts = next((apart for apart in _APART if name in apart), (name,))
            ways = bounds.setdefault(row.at_most, {})
            ways[parts] = ways.get(parts, 0) + free
    for chosen in itertools.product(*(ways.values() for ways in bounds.values())):
        least = {symbol(name): low + sympy.Symbol(f"{name}_") for name, low in zip(bounds, chosen, strict=True)}
        if all(c >= 0 for c in sympy.expand(expr.xreplace(shifts | least)).as_coefficients_dict().values()):
            return True
    return False


def largest(candidates: Iterable[sympy.Expr]) -> sympy.Expr:
    """The maximum, with every candidate dropped that another one is never less than."""
    import sympy

    kept: list[sympy.Expr] = []
    for candidate in dict.fromkeys(candidates):
        if any(never_less(other, candidate) for other in kept):
            continue
        kept = [other for other in kept if not never_less(candidate, other)]
        kept.append(candidate)
    if not kept:
        return sympy.Integer(0)
    return kept[0] if len(kept) == 1 else sympy.Max(*kept)
