"""Certificates: inequalities that can be read off, because every coefficient is non-negative.

A bound ``x >= e`` is used up by writing ``x = e + x'`` with ``x' >= 0``. If the difference of the two sides, as a fraction of
polynomials, then has no negative coefficient above or below, and something positive below, the claim holds. Finding one is
untrusted; :func:`checked` computes the fraction anew, with arithmetic of its own, and looks at the signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product as pairs
from itertools import repeat
from typing import TYPE_CHECKING, Any

from placeproof.prove.relations import Claim, Relation

if TYPE_CHECKING:
    import sympy

_Mono = tuple[tuple[str, int], ...]
_Poly = dict[_Mono, Fraction]
#: The most monomials that are looked at.
SIZE = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How each bounded symbol is written, by its lower bound; ``strict``: symbols that are above it. In this order."""

    shifts: tuple[tuple[str, sympy.Expr], ...]
    strict: frozenset[str]


def find(claim: Claim) -> Certificate | None:
    """A certificate of a claim, or None; there is none of several cases."""
    if not isinstance(claim.goal, Relation):
        return None
    bounds: dict[str, tuple[Any, bool]] = {}
    for named in claim.given:
        if isinstance(named.fact, Relation) and named.fact.op in ("<=", "<") and named.fact.right.is_Symbol:
            name = str(named.fact.right)
            if name not in bounds or bounds[name][0].is_Number:
                bounds[name] = (named.fact.left, named.fact.op == "<")
    order: list[str] = []
    while len(order) < len(bounds):
        ready = [n for n, (e, _) in bounds.items() if n not in order and {str(s) for s in e.free_symbols} & set(bounds) <= set(order)]
        if not ready:
            return None
        order += ready
    found = Certificate(shifts=tuple((n, bounds[n][0]) for n in order), strict=frozenset(n for n in order if bounds[n][1]))
    return found if checked(claim, found) else None


def checked(claim: Claim, certificate: Certificate) -> bool:
    """Whether a certificate shows a claim: the bounds are hypotheses, and the signs are right."""
    if not isinstance(claim.goal, Relation):
        return False
    given = [n.fact for n in claim.given if isinstance(n.fact, Relation)]
    written: dict[str, _Poly] = {}
    shifted = {name for name, _ in certificate.shifts}
    try:
        for name, bound in certificate.shifts:
            if {str(s) for s in bound.free_symbols} & shifted - set(written):
                return False
            ops = ("<",) if name in certificate.strict else ("<", "<=")
            if not any(r.op in ops and str(r.right) == name and r.left == bound for r in given):
                return False
            above, below = _fraction(bound, written)
            if set(below) != {()}:
                return False
            written[name] = _plus({m: c / below[()] for m, c in above.items()}, {((name, 1),): Fraction(1)})
        free = set(written)
        for divisor in claim.goal.all_divisors():
            above, below = _fraction(divisor, written)
            if not (_positive(above, certificate.strict, free) and _positive(below, certificate.strict, free)):
                return False
        (a, b), (c, d) = _fraction(claim.goal.left, written), _fraction(claim.goal.right, written)
        difference, below = _plus(_times(c, b), {m: -x for m, x in _times(a, d).items()}), _times(b, d)
    except (ValueError, ZeroDivisionError):
        return False
    if claim.goal.op == "==":
        return not difference
    if not _positive(below, certificate.strict, free):
        return False
    if claim.goal.op == "<=":
        return _signs(difference, free)
    return _positive(difference, certificate.strict, free)


def _signs(poly: _Poly, bounded: set[str]) -> bool:
    """No negative coefficient, and nothing in it that could be negative."""
    return all(c >= 0 and all(name in bounded or power % 2 == 0 for name, power in mono) for mono, c in poly.items())


def _positive(poly: _Poly, strict: frozenset[str], bounded: set[str]) -> bool:
    return _signs(poly, bounded) and any(all(name in strict for name, _ in mono) for mono in poly)


def _fraction(expr: Any, written: dict[str, _Poly]) -> tuple[_Poly, _Poly]:
    """An expression as one polynomial over another. Raises ValueError for anything else."""
    one: _Poly = {(): Fraction(1)}
    if expr.is_Symbol:
        return written.get(expr.name, {((expr.name, 1),): Fraction(1)}), one
    if expr.is_Rational:
        return ({(): Fraction(int(expr.p), int(expr.q))} if expr != 0 else {}), one
    if expr.is_Pow and expr.exp.is_Integer:
        above, below = (reduce(_times, repeat(part, abs(int(expr.exp))), one) for part in _fraction(expr.base, written))
        return (below, above) if expr.exp < 0 else (above, below)
    if expr.is_Mul or expr.is_Add:
        top, bottom = _fraction(expr.args[0], written)
        for arg in expr.args[1:]:
            a, b = _fraction(arg, written)
            if expr.is_Mul:
                top, bottom = _times(top, a), _times(bottom, b)
            elif bottom == b:
                top = _plus(top, a)
            else:
                top, bottom = _plus(_times(top, b), _times(a, bottom)), _times(bottom, b)
        return top, bottom
    raise ValueError(f"no polynomial: {expr}")


def _plus(a: _Poly, b: _Poly) -> _Poly:
    total = dict(a)
    for mono, c in b.items():
        total[mono] = total.get(mono, Fraction(0)) + c
    return {m: c for m, c in total.items() if c}


def _times(a: _Poly, b: _Poly) -> _Poly:
    if len(a) * len(b) > SIZE:
        raise ValueError("too large")
    product: _Poly = {}
    for (x, c), (y, d) in pairs(a.items(), b.items()):
        powers = dict(x)
        for name, power in y:
            powers[name] = powers.get(name, 0) + power
        mono = tuple(sorted(powers.items()))
        product[mono] = product.get(mono, Fraction(0)) + c * d
    return {m: c for m, c in product.items() if c}
