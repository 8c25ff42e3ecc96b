"""A closed form as a fast function of numbers or NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from placeproof.core.symbols import symbol

if TYPE_CHECKING:
    import sympy


def compiled(expr: sympy.Expr, known: Mapping[str, Fraction], arguments: Sequence[str] | None = None) -> Callable[..., Any]:
    """A function of the symbols that ``known`` has no value for, in the order given, or sorted. Without NumPy, of numbers alone.

    Numbers are taken as floating-point ones. Raises KeyError for a name that is no symbol's, and ValueError where a symbol is left that
    is no argument.
    """
    import sympy

    chosen = set(arguments or ())
    put = {symbol(n): sympy.Rational(v.numerator, v.denominator) for n, v in known.items() if n not in chosen}
    left = expr.xreplace(put)
    names = sorted(str(s) for s in left.free_symbols) if arguments is None else list(arguments)
    if missing := sorted(str(s) for s in left.free_symbols if str(s) not in names):
        raise ValueError(f"no value for {', '.join(missing)}")
    modules = ["numpy"] if find_spec("numpy") is not None else ["math"]
    function: Callable[..., Any] = sympy.lambdify([symbol(n) for n in names], left, modules=modules, cse=True)
    return function
