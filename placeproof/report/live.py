"""What a page can work out anew: formulas, by the places of their numbers in data, and what symbols may be set to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placeproof.cost.derive import evaluate
from placeproof.report.document import Figure, Live, Slider, pointer

if TYPE_CHECKING:
    import sympy


#: Symbols -> what they are usually set to; a degree as `N`. Over one device nothing is sent, and messages have other names.
_USUAL = {
    "P": tuple(10**8 * n for n in (1, 3, 10, 30, 70, 130, 300, 700, 1750, 4050, 10000)),
    "N": tuple(2**k for k in range(1, 11)),
    "b": tuple(2**k for k in range(7)),
    "m": tuple(2**k for k in range(9)),
    "s": tuple(2**k for k in range(9, 18)),
}


def candidates(symbol: str, now: Fraction) -> tuple[Fraction, ...]:
    """What a symbol may be set to: what is usual, or the present value times powers of two."""
    usual = _USUAL.get("N" if symbol.startswith("N_") else symbol)
    each = [now * Fraction(2) ** k for k in range(-4, 5)] if usual is None else [Fraction(n) for n in usual]
    return tuple(sorted({now, *(n for n in each if n.denominator == 1 or now.denominator > 1)}))


def live(
    known: Mapping[str, tuple[sympy.Expr, Fraction | None]],
    values: Mapping[str, Fraction],
    movable: Mapping[str, str],
    accepts: Callable[[Mapping[str, Fraction]], bool],
) -> Live | None:
    """Formulas, and sliders of those of their symbols that can be moved, each with its meaning; None without any.

    ``known``: by the place of its number each formula, and that number; one that is another number with these values is left out.
    ``accepts``: whether symbols can be set to these values. A slider has the values that are accepted while nothing else is moved.
    """
    formulas = {at: expr for at, (expr, told) in known.items() if told is not None and evaluate(expr, values) == told}
    used = {str(s) for expr in formulas.values() for s in expr.free_symbols}
    sliders = []
    for symbol in (name for name in movable if name in used and name in values):
        here = [n for n in candidates(symbol, values[symbol]) if n == values[symbol] or accepts({symbol: n})]
        sliders += [Slider(symbol, movable[symbol], tuple(here))] if len(here) > 1 else []
    if not sliders:
        return None
    return Live(formulas=formulas, values=values, sliders=sliders, refused=tuple(_refused(sliders, values, accepts)))


def _refused(
    sliders: Sequence[Slider], values: Mapping[str, Fraction], accepts: Callable[[Mapping[str, Fraction]], bool]
) -> Iterable[tuple[tuple[str, Fraction], tuple[str, Fraction]]]:
    """Pairs of settings each of which is accepted alone. Sequences of a micro-batch divide nothing."""
    moved = [one for one in sliders if one.symbol != "b"]
    for i, first in enumerate(moved):
        for second in moved[i + 1 :]:
            for x in (n for n in first.positions if n != values[first.symbol]):
                for y in (n for n in second.positions if n != values[second.symbol]):
                    if not accepts({first.symbol: x, second.symbol: y}):
                        yield (first.symbol, x), (second.symbol, y)


def numbered(data: Any, path: str = "") -> dict[str, tuple[sympy.Expr, Fraction | None]]:
    """Every formula with its number, by the place of the number."""
    if isinstance(data, Figure):
        return {f"{path}/value": (data.formula, data.value)}
    if isinstance(data, Mapping):
        return {at: pair for key, value in data.items() for at, pair in numbered(value, path + pointer(key)).items()} | _beside(data, path)
    if isinstance(data, list | tuple):
        return {at: pair for i, value in enumerate(data) for at, pair in numbered(value, path + pointer(i)).items()}
    return {}


def _beside(data: Mapping[str, Any], path: str) -> dict[str, tuple[sympy.Expr, Fraction | None]]:
    """Of a strategy's costs, numbers stand in ``values``, each in the place that its formula has outside."""
    found: dict[str, tuple[sympy.Expr, Fraction | None]] = {}

    def both(formulas: Any, values: Any, at: str) -> None:
        if isinstance(values, Mapping) and isinstance(formulas, Mapping):
            for key, value in values.items():
                both(formulas.get(key), value, at + pointer(key))
        elif isinstance(values, Fraction) and hasattr(formulas, "free_symbols"):
            found[at] = formulas, values

    if "values" in data and "memory" in data:
        both(data, data["values"], f"{path}/values")
    return found
