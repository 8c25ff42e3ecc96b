"""Arithmetic of programs over tensors, with derivatives, and what stands in for functions.

Numbers are fractions, or residues modulo two primes p = 2 q + 1 and q. Two has the order q modulo p: so the residue of 2**x modulo p
follows from that of x modulo q, and residues know an exponential that turns sums into products, and whose residues are those of the
fractions. What an exponential itself is modulo q is not known.

An array's first dimension holds the number and its derivatives by what is followed: ``[number and slopes, ...]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import log2
from random import Random
from typing import Any, ClassVar, TypeAlias
from zlib import crc32

import numpy as np

from placeproof.semantics.meaning.numbers import Array, Field, residues
from placeproof.semantics.meaning.recorded import Nothing, Recorded, plain
from placeproof.semantics.tensors.setup import NotComputedError

OfEach: TypeAlias = Callable[[Array], Array]
#: Both are primes, p = 2 q + 1, and p is 7 modulo 8.
PAIR = (2146664519, 1073332259)
#: The largest exponent whose power of two is computed as a fraction, and what fine runs multiply exponents with.
MOST, FINE = 20_000, 60
#: The most bits of a fraction that is computed with, and of one that is shown.
LONG, SHOWN = 1_000_000, 14_000


@dataclass(frozen=True)
class Tensors(Field):
    """Arithmetic that has an exponential and an order. ``fine``: exponents are multiplied by :data:`FINE`."""

    exact: bool = True
    fine: bool = False
    #: How many dimensions one number takes at an array's end; whether an exponential of exponentials can be computed.
    extra: ClassVar[int] = 0
    nested: ClassVar[bool] = True

    def exp(self, x: Array) -> Array:
        """A power of two."""
        return _POWER(x, FINE if self.fine else 1)

    def log(self, x: Array) -> Array:
        """A logarithm: of a product the sum of the logarithms, and of :meth:`exp` the exponent."""
        with np.errstate(all="ignore"):  # the real one is looked at
            return _LOGARITHM(x, FINE if self.fine else 1)

    def not_less(self, x: Array, y: Array) -> Array:
        """Where the first of two numbers is to be taken as the greater one; of nothing, nothing is."""
        return np.asarray(_NOT_LESS(x, y), dtype=bool)

    def same(self, x: Array, y: Array) -> Array:
        """Where two numbers are equal."""
        return np.asarray(x == y, dtype=bool)

    def plain(self, number: Any) -> Any:
        """One number, as what is drawn for it depends on it, or as it is shown."""
        return number if isinstance(number, Nothing) else plain(number)

    def wide(self, mask: Array) -> Array:
        """A mask beside numbers."""
        return mask[(..., *[None] * self.extra)]


class Fractions(Tensors):
    """Fractions. Most derivatives are zero: one object, with which nothing is computed."""

    def of(self, value: Any) -> Any:
        """One number."""
        return ZERO if isinstance(value, int) and value == 0 else super().of(value)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Zeros."""
        return np.full(shape, ZERO, dtype=object)

    def add(self, x: Array, y: Array) -> Array:
        """Sum."""
        return np.asarray(_PLUS(x, y), dtype=object)

    def mul(self, x: Array, y: Array) -> Array:
        """Product."""
        return np.asarray(_TIMES(x, y), dtype=object)

    def total(self, x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
        """Sum over dimensions; an empty one gives zero."""
        for dim in sorted((axis,) if isinstance(axis, int) else axis, reverse=True):
            x = np.asarray(_PLUS.reduce(x, axis=dim, keepdims=keepdims, initial=ZERO), dtype=object)
        return x


@dataclass(frozen=True)
class Residues(Tensors):
    """Residues modulo p and q, in an array's last dimension."""

    exact: bool = False
    extra: ClassVar[int] = 1
    nested: ClassVar[bool] = False
    modulus: ClassVar[Array] = np.array(PAIR, dtype=np.int64)

    def of(self, value: Any) -> Array:
        """The residues of a fraction."""
        value = Fraction(value)
        if any(value.denominator % p == 0 for p in PAIR):
            raise ZeroDivisionError
        return np.array([value.numerator * pow(value.denominator, -1, p) % p for p in PAIR], dtype=np.int64)

    def array(self, values: list[Any], shape: tuple[int, ...]) -> Array:
        """An array of numbers, row by row."""
        return np.array([self.of(v) for v in values], dtype=np.int64).reshape(*shape, len(PAIR))

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Zeros."""
        return np.zeros((*shape, len(PAIR)), dtype=np.int64)

    def garbage(self, random: Random, shape: tuple[int, ...]) -> Array:
        """Any numbers."""
        return residues(random, (*shape, len(PAIR))) % self.modulus

    def _inverse(self, x: Array) -> Array:
        """By Fermat."""
        if not np.all(x):
            raise ZeroDivisionError
        x, exponent, power = np.asarray(x), self.modulus - 2, np.ones_like(x)
        while exponent.any():
            power = np.where(exponent & 1, power * x % self.modulus, power)
            x, exponent = x * x % self.modulus, exponent >> 1
        return power

    def exp(self, x: Array) -> Array:
        """By the exponent's residue modulo q; what stands modulo q itself is any number."""
        p, q = PAIR
        exponent = x[..., 1] * (FINE if self.fine else 1) % q
        power = np.ones_like(exponent)
        for number, powers in enumerate(_powers()):
            power = power * powers[exponent >> 10 * number & 1023] % p
        return np.stack([power, power % q], axis=-1)

    def log(self, x: Array) -> Array:
        """Any function that is not defined at zero: residues have no logarithm that is a residue itself."""
        self.div(self.of(1), x)
        return _polynomial(self, x, 1, -3, 0)

    def not_less(self, x: Array, y: Array) -> Array:
        """In a fixed order, which is that of small whole numbers."""
        x, y = ((v[..., 0] + PAIR[0] // 2) % PAIR[0] for v in (x, y))
        return np.asarray(x >= y)

    def same(self, x: Array, y: Array) -> Array:
        """Modulo p."""
        return np.asarray(x[..., 0] == y[..., 0])

    def plain(self, number: Any) -> Any:
        """Its residue modulo p."""
        return Fraction(int(number[0]))


@cache
def _powers() -> list[Array]:
    """The powers of two modulo p, by ten bits of the exponent each."""
    return [np.array([pow(2, n << 10 * digit, PAIR[0]) for n in range(1024)], dtype=np.int64) for digit in range(3)]


def _power_of_two(x: Any, by: int) -> Any:
    if isinstance(x, Nothing):
        return x + 0
    exponent = plain(x) * by
    if exponent.denominator != 1 or abs(exponent) > MOST:
        raise NotComputedError("an exponential of this number")
    return 2 ** (x * by) if isinstance(x, Recorded) else Fraction(2) ** int(exponent)


def _logarithm(x: Any, by: int) -> Any:
    """The exponents of its prime factors, times the logarithm to base 2 of each: that of two is one, those of others are fractions near the
    real ones, which no exponential is computed of. Raises ZeroDivisionError for zero, NotComputedError where it is not found."""
    if isinstance(x, Nothing):
        return x + 0
    number = plain(x)
    if number == 0:
        raise ZeroDivisionError
    if number < 0:
        raise NotComputedError("a logarithm of a negative number")
    powers = {**_factors(number.numerator), **{p: -n for p, n in _factors(number.denominator).items()}}
    total = sum((n * _log_of_prime(p) for p, n in powers.items()), Fraction(0)) / by
    return Recorded(total, name=f"log({number})") if isinstance(x, Recorded) else total


#: Logarithms of primes are fractions over this prime, and factors are looked for up to this number.
_OVER, _TRIED = 2**61 - 1, 100_000


def _log_of_prime(prime: int) -> Fraction:
    return Fraction(1) if prime == 2 else Fraction(round(log2(prime) * _OVER), _OVER)


@cache
def _factors(number: int) -> dict[int, int]:
    """The prime factors of a whole number, each with its exponent."""
    exponents: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= number and divisor < _TRIED:
        while number % divisor == 0:
            exponents[divisor] = exponents.get(divisor, 0) + 1
            number //= divisor
        divisor += 1 if divisor == 2 else 2
    if divisor * divisor <= number:
        from sympy import isprime

        if number >= 2**64 or not isprime(number):
            raise NotComputedError("a logarithm of a number with large factors")
    return exponents if number == 1 else {**exponents, number: 1}


#: The zero with which nothing is computed.
ZERO = Fraction(0)
_PLUS = np.frompyfunc(lambda x, y: y if x is ZERO else x if y is ZERO else x + y, 2, 1)
_TIMES = np.frompyfunc(lambda x, y: ZERO if x is ZERO or y is ZERO else x * y, 2, 1)
_POWER, _LOGARITHM = np.frompyfunc(_power_of_two, 2, 1), np.frompyfunc(_logarithm, 2, 1)
_NOT_LESS = np.frompyfunc(lambda x, y: isinstance(x, Nothing) or not (isinstance(y, Nothing) or x < y), 2, 1)


# Numbers with their slopes.


def alike(f: Tensors, *arrays: Array) -> list[Array]:
    """Arrays with as many slopes: what does not depend on what is followed has slopes of zero."""
    missing = [max(map(len, arrays)) - len(x) for x in arrays]
    zeros = [f.zeros((n, *x.shape[1 : x.ndim - f.extra])) for n, x in zip(missing, arrays, strict=True)]
    return [np.concatenate([x, more]) if len(more) else x for x, more in zip(arrays, zeros, strict=True)]


def multiplied(f: Tensors, x: Array, y: Array) -> Array:
    """Product."""
    value = f.mul(x[:1], y[:1])
    if len(x) == len(y) == 1:
        return value
    x, y = alike(f, x, y)
    return np.concatenate([value, f.add(f.mul(x[1:], y[:1]), f.mul(x[:1], y[1:]))])


def divided(f: Tensors, x: Array, y: Array) -> Array:
    """Quotient. Raises ZeroDivisionError."""
    over = f.div(f.of(1), y[:1])
    value = f.mul(x[:1], over)
    if len(x) == len(y) == 1:
        return value
    x, y = alike(f, x, y)
    return np.concatenate([value, f.mul(f.sub(x[1:], f.mul(value, y[1:])), over)])


def require_short(f: Tensors, numbers: Iterable[Any], most: int) -> None:
    """Raises NotComputedError where fractions have more bits."""
    if f.exact and any(isinstance(n, Fraction) and max(n.numerator.bit_length(), n.denominator.bit_length()) > most for n in numbers):
        raise NotComputedError("numbers of so many digits")


def raised(f: Tensors, x: Array, n: int) -> Array:
    """A whole power."""
    require_short(f, x.flat, LONG // max(abs(n), 1))
    value = f.power(x[:1], n)
    slope = f.mul(f.of(n), f.power(x[:1], n - 1)) if n else f.mul(f.of(0), x[:1])
    return chained(f, x, value, slope) if len(x) > 1 else value


def chained(f: Tensors, x: Array, value: Array, slope: Array) -> Array:
    """A function of each number, by its value and its slope."""
    return np.concatenate([value, f.mul(x[1:], slope)])


def larger(f: Tensors, x: Array, y: Array) -> Array:
    """The greater of two numbers with its slopes."""
    x, y = alike(f, x, y)
    return np.where(f.wide(f.not_less(x[:1], y[:1])), x, y)


ARITHMETIC: dict[str, Callable[[Tensors, Array, Array], Array]] = {
    "+": lambda f, x, y: f.add(*alike(f, x, y)),
    "-": lambda f, x, y: f.sub(*alike(f, x, y)),
    "*": multiplied,
    "/": divided,
    "max": larger,
}


# What stands in for functions.


def meaning_of(f: Tensors, name: str) -> tuple[OfEach, OfEach]:
    """A function of each number, and its derivative: one that can be computed, with a derivative that goes with it, except for those of the
    exponential and the logarithm, which are what they are by name."""
    match name:
        case "stop":
            return lambda x: x, lambda x: f.mul(x, f.of(0))
        case "exp":
            return f.exp, f.exp
        case "log":
            return f.log, lambda x: f.div(f.of(1), x)
        case "reciprocal":
            return lambda x: f.div(f.of(1), x), lambda x: _slope_of_reciprocal(f, f.div(f.of(1), x))
    drawn = crc32(name.encode())
    known = {"square": (1, 0, 0), "gelu": (1, 1, 0)}
    a, b, c = known.get(name, (1 + drawn % 3, 1 + drawn // 3 % 4, drawn // 12 % 3))
    return lambda x: _polynomial(f, x, a, b, c), lambda x: _polynomial(f, x, 0, 2 * a, b)


def _slope_of_reciprocal(f: Tensors, over: Array) -> Array:
    return f.sub(f.mul(over, f.of(0)), f.mul(over, over))


def _polynomial(f: Tensors, x: Array, a: int, b: int, c: int) -> Array:
    """``a x**2 + b x + c``."""
    total = f.mul(f.of(b), x)
    total = f.add(total, f.mul(f.of(a), f.mul(x, x))) if a else total
    return f.add(total, f.of(c)) if c else total
