"""Comparing strategies at the same world size: ratios, limits, and where one overtakes another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.core.mesh import degree_symbol
from placeproof.core.symbols import Domain, info, symbol
from placeproof.cost.closed import limit, never_less, tidy
from placeproof.cost.derive import Derivation
from placeproof.cost.values import Numbers

if TYPE_CHECKING:
    import sympy

KEYS = ("memory.model_states", "memory.peak", "memory.host", "traffic.sent_per_device", "traffic.host_link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Where two formulas are equal in one symbol. ``at`` is empty when they never cross; ``verdict`` says it in words."""

    variable: str
    at: tuple[sympy.Expr, ...]
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One formula of two strategies: ratio of the second to the first, its limit N -> oo, and the crossover."""

    key: str
    first: sympy.Expr
    second: sympy.Expr
    ratio: sympy.Expr | None
    limit: sympy.Expr | None
    crossover: Crossover
    numeric: Crossover | None


@dataclass(frozen=True)
class Comparison:
    """Strategies side by side. With one open degree each, formulas are in N, the world size, the same for all.

    ``known``: values of symbols (byte widths, at least), at which crossovers are decided a second time.
    """

    members: tuple[Derivation, ...]
    known: Mapping[str, Fraction] = field(default_factory=dict)

    @cached_property
    def forms(self) -> tuple[dict[str, sympy.Expr], ...]:
        """The compared formulas of each strategy, at world size N."""
        return tuple({key: tidy(at_world(d, d.forms[key])) for key in KEYS} for d in self.members)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The formulas that are not zero for all."""
        return tuple(key for key in KEYS if any(form[key] != 0 for form in self.forms))

    def pairs(self) -> tuple[tuple[Derivation, tuple[Pair, ...]], ...]:
        """Every other strategy against the first."""
        first = self.forms[0]
        return tuple(
            (d, tuple(pair(key, first[key], form[key], (self.members[0].name, d.name), self.known) for key in self.keys))
            for d, form in zip(self.members[1:], self.forms[1:], strict=True)
        )


def widths(numbers: Numbers) -> dict[str, Fraction]:
    """The byte widths among some numbers: what is known when nothing was set."""
    return {name: value for name, value in numbers.values.items() if name.startswith("b_")}


def known(numbers: Numbers) -> dict[str, Fraction]:
    """What crossovers are decided at a second time: byte widths, and what was set; never a degree."""
    given = {name: numbers.values[name] for name in numbers.given if name != "N" and not name.startswith("N_")}
    return widths(numbers) | given


def at_world(d: Derivation, expr: sympy.Expr) -> sympy.Expr:
    """A formula with one open degree written as N over the product of the other degrees.

    The open degree is that of the first axis that splits the batch, if it is open, else of the first open axis.
    """
    axes = d.program.axes
    open_axes = [a for a in axes if a.degree is None]
    if len(axes) <= 1 or not open_axes:
        return expr
    chosen = open_axes[0]
    others = d.amounts.devices(tuple(a.name for a in axes if a is not chosen))
    return expr.xreplace({symbol(degree_symbol(chosen.name, only=False)): symbol("N") / others})


def pair(key: str, first: sympy.Expr, second: sympy.Expr, names: tuple[str, str], known: Mapping[str, Fraction]) -> Pair:
    """Compare two formulas, in symbols and with the known values put in."""
    import sympy

    values = {symbol(name): sympy.Rational(v.numerator, v.denominator) for name, v in known.items()}
    put = (first.xreplace(values), second.xreplace(values))

    ratio = None
    if first != 0:
        ratio = tidy(sympy.cancel(second / first)) if not (first + second).has(sympy.Max, sympy.Min) else second / first
    far = None
    if ratio is not None and not ratio.has(sympy.Max, sympy.Min) and ratio.has(symbol("N")):
        far = limit(ratio, "N")
    numeric = crossover(*put, names) if put != (first, second) else None
    return Pair(key=key, first=first, second=second, ratio=ratio, limit=far, crossover=crossover(first, second, names), numeric=numeric)


def crossover(first: sympy.Expr, second: sympy.Expr, names: tuple[str, str]) -> Crossover:
    """Where the second formula overtakes the first, solved for N, or for another count when N decides nothing."""
    import sympy

    difference = sympy.together(second - first)
    if sympy.expand(sympy.fraction(difference)[0]) == 0:
        return Crossover(variable="N", at=(), verdict="equal for all values")
    if difference.has(sympy.Max, sympy.Min):
        return Crossover(variable="N", at=(), verdict="not solved: a maximum or minimum is involved")
    less, more = never_less(first, second), never_less(second, first)
    if less or more:
        cheaper, dearer = (names[1], names[0]) if less else (names[0], names[1])
        return Crossover(variable="N", at=(), verdict=f"`{cheaper}` never costs more than `{dearer}`")
    return _solved(difference, names)


def _solved(difference: sympy.Expr, names: tuple[str, str]) -> Crossover:
    import sympy

    numerator, denominator = sympy.fraction(difference)
    for variable in _variables(difference):
        x = symbol(variable)
        poly = sympy.Poly(numerator, x)
        roots = [_positive_looking(sympy.cancel(r)) for r in _roots(poly) if r not in (0, 1)]
        if not roots:
            continue
        possible = [r for r in roots if not _never_beyond_one(r)]
        if not possible and (side := _far_side(poly, denominator, names)):
            return Crossover(variable=variable, at=(), verdict=f"`{side}` costs less beyond {variable} = 1")
        roots = possible or roots
        return Crossover(variable=variable, at=tuple(roots), verdict=_sides(poly, denominator, variable, roots, names))
    return Crossover(variable="N", at=(), verdict="which one costs less depends on more than a degree")


def _variables(expr: sympy.Expr) -> list[str]:
    counts = [str(s) for s in expr.free_symbols if info(str(s)).domain is Domain.COUNT and (str(s) == "m" or str(s).startswith("N"))]
    return sorted(counts, key=lambda n: (n != "N", n == "m", n))


def _roots(poly: sympy.Poly) -> list[sympy.Expr]:
    """Roots of a polynomial after dividing out trivial ones (0 and 1: one device sends nothing), up to degree 2."""
    import sympy

    x = poly.gen
    for trivial in (sympy.Integer(0), sympy.Integer(1)):
        while poly.degree() > 0 and sympy.expand(poly.eval(trivial)) == 0:
            poly = sympy.Poly(sympy.quo(poly, sympy.Poly(x - trivial, x)), x)
    if poly.degree() == 1:
        slope, offset = poly.all_coeffs()
        return [-offset / slope]
    if poly.degree() == 2:
        a, b, c = poly.all_coeffs()
        root = sympy.sqrt(sympy.factor(b**2 - 4 * a * c))
        return [(-b - root) / (2 * a), (-b + root) / (2 * a)]
    return []


def _positive_looking(root: sympy.Expr) -> sympy.Expr:
    """The same root without a minus sign in front, where the denominator can take it."""
    import sympy

    numerator, denominator = sympy.fraction(root)
    if not denominator.is_Number and numerator.could_extract_minus_sign():
        numerator, denominator = sympy.expand(-numerator), sympy.expand(-denominator)
    return tidy(numerator) / tidy(denominator)


def _never_beyond_one(root: sympy.Expr) -> bool:
    """Whether a rational root lies at 1 or below for all admissible values."""
    import sympy

    rational = all(power.exp.is_Integer for power in root.atoms(sympy.Pow))
    return rational and never_less(sympy.Integer(1), root)


def _far_side(poly: sympy.Poly, denominator: sympy.Expr, names: tuple[str, str]) -> str | None:
    """Which of the two costs less for large values of the variable, where the signs of the leading coefficients show it."""
    import sympy

    zero = sympy.Integer(0)
    lead, below = poly.LC(), sympy.Poly(denominator, poly.gen).LC()
    signs = [1 if never_less(c, zero) else -1 if never_less(zero, c) else 0 for c in (lead, below)]
    product = signs[0] * signs[1]
    return None if product == 0 else names[0] if product > 0 else names[1]


def _sides(poly: sympy.Poly, denominator: sympy.Expr, variable: str, roots: list[sympy.Expr], names: tuple[str, str]) -> str:
    if len(roots) == 1 and (cheaper := _far_side(poly, denominator, names)):
        return f"beyond {variable} = {roots[0]} `{cheaper}` costs less"
    return f"equal at {variable} = " + " or ".join(str(r) for r in roots)
