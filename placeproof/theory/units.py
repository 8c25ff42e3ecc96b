"""Units: ``80 * GB`` is a number to the prover, and bytes to the check of dimensions.

A unit is a symbol that stands for 1, and whose name no parameter can have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from placeproof.core.symbols import SYMBOLS, Dimension, Domain

if TYPE_CHECKING:
    import sympy

_MARK = "1 "
#: What is timed has no row among the symbols: seconds of a message, and for each byte, along an axis.
_TIMES: dict[str, Dimension] = {"alpha": {"second": 1}, "beta": {"second": 1, "byte": -1}}


def unit(name: str) -> sympy.Symbol:
    """The symbol of a unit."""
    import sympy

    return sympy.Symbol(_MARK + name)


def unit_of(symbol: sympy.Symbol) -> str | None:
    """The unit whose symbol this is; None if it is another symbol."""
    return symbol.name.removeprefix(_MARK) if symbol.name.startswith(_MARK) else None


def units_in(expressions: Iterable[sympy.Expr]) -> set[str]:
    """The units that expressions are written with."""
    return {name for e in expressions for s in e.free_symbols if (name := unit_of(s)) is not None}


def plain(expr: sympy.Expr) -> sympy.Expr:
    """An expression as the prover has it, without units."""
    import sympy

    units = {s: sympy.Integer(1) for s in expr.free_symbols if unit_of(s) is not None}
    return expr.xreplace(units) if units else expr


def powers(dimension: Dimension) -> sympy.Expr:
    """A dimension as a product of units."""
    import sympy

    return sympy.Mul(*(unit(name) ** power for name, power in dimension.items()))


def usual(name: str) -> Dimension:
    """The dimension that a symbol of this name has, such as ``b_theta``; none of counts, whose names mean many things."""
    row = SYMBOLS.get(name)
    if row is None:
        return _TIMES.get(name.partition("_")[0], {}) if "_" in name else {}
    return {} if row.domain is Domain.COUNT else row.dimension


def measured(expr: sympy.Expr, dimension: Dimension) -> sympy.Expr:
    """An amount of a dimension in which numbers stand for what has one, with the units of these: ``16 + b_s`` is ``16*byte + b_s``."""
    import sympy

    if expr == 0:
        return expr
    if expr.is_Add or expr.func.__name__ in ("Max", "Min"):
        return expr.func(*(measured(part, dimension) for part in expr.args))
    parts = sympy.Mul.make_args(expr)
    inner = next((p for p in parts if (p.is_Add or p.func.__name__ in ("Max", "Min")) and _has_unit(p)), None)
    outer = [p for p in parts if p is not inner]
    lacking = dict(dimension)
    for part in outer:
        base, exponent = part.as_base_exp()
        for name, power in (usual(str(base)) if base.is_Symbol else {}).items():
            lacking[name] = lacking.get(name, 0) - power * int(exponent)
    return sympy.Mul(*outer, powers(lacking) if inner is None else measured(inner, lacking))


def _has_unit(expr: sympy.Expr) -> bool:
    return any(usual(str(s)) for s in expr.free_symbols)
