"""A rational number as a product of what a step can count: degrees of axes, micro-batches, elements of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product


def recognise(factor: Fraction, quantities: Mapping[str, int], prefer: tuple[str, ...]) -> str | None:
    """The shortest product of powers of quantities that has this value, as an expression of a step program; None if there is none.

    Two quantities can have the same number: the preferred ones are taken first, in their order, and powers only where nothing else
    will do.
    """
    names = [n for n in (*prefer, *(q for q in quantities if q not in prefer)) if quantities[n] > 1]
    products: list[tuple[int, str]] = []
    for powers in product((0, -1, 1, -2, 2), repeat=len(names)):
        value = Fraction(1)
        for name, power in zip(names, powers, strict=True):
            value *= Fraction(quantities[name]) ** power
        if value == factor:
            cost = sum(abs(p) ** 3 * (10 + i + (5 if n not in prefer else 0)) for i, (n, p) in enumerate(zip(names, powers, strict=True)))
            products.append((cost, _product(names, powers)))
    return min(products)[1] if products else None


def written(factor: Fraction) -> str:
    """A rational number as a step program writes it."""
    return str(factor.numerator) if factor.denominator == 1 else f"{factor.numerator} / {factor.denominator}"


def _product(names: list[str], powers: tuple[int, ...]) -> str:
    above = [n for n, p in zip(names, powers, strict=True) for _ in range(p)]
    below = [n for n, p in zip(names, powers, strict=True) for _ in range(-p)]
    over = " * ".join(above) or "1"
    if not below:
        return over
    return f"{over} / {below[0]}" if len(below) == 1 else f"{over} / ({' * '.join(below)})"
