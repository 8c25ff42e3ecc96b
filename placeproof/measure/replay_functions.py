"""What stands in for functions in a block's replay: each can be computed exactly, with a derivative that goes with it.

The exponential is a power of two, since it has to turn sums into products, and is its own derivative; the logarithm's derivative is one
over its operand. Others are polynomials, drawn by their names.
"""

from __future__ import annotations

import zlib
from fractions import Fraction

from placeproof.measure.replay_numbers import Numbers, UndefinedError
from placeproof.measure.replay_values import NotReplayedError

#: The largest exponent whose power is computed, and what exponents are multiplied by in a fine run.
MOST, FINE = 20_000, 60


def value(name: str, x: Numbers, fine: bool) -> Numbers:
    """A function of each number."""
    match name:
        case "stop":
            return x
        case "exp":
            return _powers_of_two(x, fine)
        case "log":
            _nonzero(x, "the logarithm of zero")
            return x * x - 3 * x
        case "square":
            return x * x
        case "reciprocal":
            return 1 / x
        case "gelu":
            return x * x + x
    a, b, c = _coefficients(name)
    return x * x * a + x * b + c


def slope(name: str, x: Numbers, fine: bool) -> Numbers:
    """Its derivative at each number."""
    match name:
        case "stop":
            return x * 0
        case "exp":
            return _powers_of_two(x, fine)
        case "log":
            return 1 / x
        case "square":
            return x * 2
        case "reciprocal":
            return -1 * (1 / (x * x))
        case "gelu":
            return x * 2 + 1
    a, b, _ = _coefficients(name)
    return x * (2 * a) + b


def _coefficients(name: str) -> tuple[int, int, int]:
    drawn = zlib.crc32(name.encode())
    return 1 + drawn % 3, 1 + drawn // 3 % 4, drawn // 12 % 3


def _nonzero(x: Numbers, what: str) -> None:
    if bool((x.data == 0).any()):
        raise UndefinedError(what)


def _powers_of_two(x: Numbers, fine: bool) -> Numbers:
    """Two to the power of each number, which has to be whole: it is found from its residues first."""
    exponents = [n * FINE if fine else n for n in x.fractions()]
    if any(n.denominator != 1 or abs(n) > MOST for n in exponents):
        raise NotReplayedError("the exponential of a number that is not whole, or too large")
    return x.like([Fraction(2) ** int(n) for n in exponents], *x.shape) if x.shape else x.like([Fraction(2) ** int(exponents[0])])[0]
