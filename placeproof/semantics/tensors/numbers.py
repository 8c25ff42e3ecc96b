"""Exact numbers with derivatives, and what stands in for functions when a tensor program is run.

Nothing here is shared with the encoding. A function is replaced by one that can be computed in fractions; its derivative goes with
it, except for the exponential and the logarithm, whose derivatives are what they are by name: ``exp`` is its own.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

#: The largest exponent whose power of two is computed, and what fine runs multiply exponents with.
MOST = 20_000
FINE = 60


class NotComputedError(Exception):
    """The run asks for a number, or a step, that is not computed here: it says nothing about the program."""


@dataclass(frozen=True, slots=True)
class Dual:
    """A fraction, and its derivatives by the inputs that are followed."""

    value: Fraction
    by: Mapping[object, Fraction] = field(default_factory=dict)

    def _joined(self, other: Dual, mine: Fraction, its: Fraction) -> dict[object, Fraction]:
        found = {k: mine * d for k, d in self.by.items()} if mine else {}
        if its:
            for key, d in other.by.items():
                found[key] = found.get(key, Fraction(0)) + its * d
        return found

    def __add__(self, other: Dual) -> Dual:
        return Dual(self.value + other.value, self._joined(other, Fraction(1), Fraction(1)))

    def __sub__(self, other: Dual) -> Dual:
        return Dual(self.value - other.value, self._joined(other, Fraction(1), Fraction(-1)))

    def __mul__(self, other: Dual) -> Dual:
        return Dual(self.value * other.value, self._joined(other, other.value, self.value))

    def __truediv__(self, other: Dual) -> Dual:
        if not other.value:
            raise NotComputedError("division by zero")
        quotient = self.value / other.value
        return Dual(quotient, self._joined(other, 1 / other.value, -quotient / other.value))

    def power(self, exponent: Fraction) -> Dual:
        """A whole power."""
        if exponent.denominator != 1 or (exponent < 0 and not self.value):
            raise NotComputedError("this power")
        n = int(exponent)
        if n == 0:
            return Dual(Fraction(1))
        return self.chained(self.value**n, n * self.value ** (n - 1) if self.value or n > 0 else Fraction(0))

    def chained(self, value: Fraction, slope: Fraction) -> Dual:
        """A function of this number, by its value and its slope."""
        return Dual(value, {k: slope * d for k, d in self.by.items()} if slope else {})


ZERO = Dual(Fraction(0))


def exponential(x: Fraction, fine: bool) -> Fraction:
    """What stands in for it, a power of two: it turns sums into products. In fine runs, also of many fractions."""
    x = x * FINE if fine else x
    if x.denominator != 1 or abs(x) > MOST:
        raise NotComputedError("an exponential of this number")
    return Fraction(2) ** int(x)


def value_and_slope(name: str, x: Fraction, fine: bool = False) -> tuple[Fraction, Fraction]:
    """A function's stand-in, and its derivative."""
    match name:
        case "stop":
            return x, Fraction(0)
        case "exp":
            e = exponential(x, fine)
            return e, e
        case "log":
            if not x:
                raise NotComputedError("the logarithm of zero")
            return x * x - 3 * x, 1 / x
        case "square":
            return x * x, 2 * x
        case "reciprocal":
            if not x:
                raise NotComputedError("division by zero")
            return 1 / x, -1 / (x * x)
        case "gelu":
            return x * x + x, 2 * x + 1
    drawn = zlib.crc32(name.encode())
    a, b, c = 1 + drawn % 3, 1 + drawn // 3 % 4, drawn // 12 % 3
    return a * x * x + b * x + c, 2 * a * x + b


def drawn(*what: object) -> Fraction:
    """A small whole number that depends on what is named."""
    return Fraction(random.Random(repr(what)).choice((-2, -1, 1, 2, 3)))


def any_key(*what: object) -> Fraction:
    """A key that depends on what is named."""
    return Fraction(random.Random(repr(what)).randrange(1_000_000))


def masked(*what: object) -> Fraction:
    """A mask's factor that depends on what is named."""
    return Fraction(random.Random(repr(what)).choice((0, 2)))
