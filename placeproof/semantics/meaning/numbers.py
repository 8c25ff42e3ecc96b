"""Arrays of exact numbers: residues modulo a prime, which are fast and do not grow, or fractions, which are shown to people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from random import Random
from typing import Any, ClassVar, TypeAlias

import numpy as np

from placeproof.semantics.meaning.recorded import NOTHING, Recorded, greater, plain, root, smaller

#: An array of residues (int64), of fractions (object), or of truths.
Array: TypeAlias = Any
#: Products of two residues fit into 64 bits. Equal residues stand for different fractions by a chance of about one in 2**31. Small numbers
#: have square roots among residues of this prime.
PRIME = 2147481311


def residues(random: Random, shape: tuple[int, ...]) -> Array:
    """Numbers of which each is as likely as another, save zero. (NumPy's own generator takes as long to import as a run.)"""
    drawn = np.frombuffer(random.randbytes(8 * prod(shape)), dtype=np.uint64).reshape(shape)
    return (drawn % np.uint64(PRIME - 1)).astype(np.int64) + 1


@dataclass(frozen=True)
class Field:
    """Arithmetic on arrays. ``exact``: in fractions."""

    exact: bool
    #: What residues are modulo.
    modulus: ClassVar[Any] = PRIME

    def of(self, value: Fraction | Recorded | int) -> Any:
        """One number. Raises ZeroDivisionError where its denominator is zero modulo the prime."""
        if self.exact:
            return value if isinstance(value, Fraction | Recorded) else Fraction(value)
        if isinstance(value, int):
            return value % self.modulus
        value = Fraction(plain(value))
        if value.denominator % self.modulus == 0:
            raise ZeroDivisionError
        return value.numerator * pow(value.denominator, -1, self.modulus) % self.modulus

    def array(self, values: list[Any], shape: tuple[int, ...]) -> Array:
        """An array of numbers, row by row."""
        numbers: Array = np.empty(len(values), dtype=object if self.exact else np.int64)
        numbers[:] = [self.of(v) for v in values]
        return numbers.reshape(shape)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        """Zeros."""
        return np.full(shape, Fraction(0), dtype=object) if self.exact else np.zeros(shape, dtype=np.int64)

    def garbage(self, random: Random, shape: tuple[int, ...]) -> Array:
        """What devices read where they hold nothing: other residues each time; among fractions, nothing."""
        return np.full(shape, NOTHING, dtype=object) if self.exact else residues(random, shape)

    def add(self, x: Array, y: Array) -> Array:
        """Sum."""
        return x + y if self.exact else (x + y) % self.modulus

    def sub(self, x: Array, y: Array) -> Array:
        """Difference."""
        return x - y if self.exact else (x - y) % self.modulus

    def mul(self, x: Array, y: Array) -> Array:
        """Product."""
        return x * y if self.exact else x * y % self.modulus

    def div(self, x: Array, y: Array) -> Array:
        """Quotient. Raises ZeroDivisionError."""
        return x * (Fraction(1) / y) if self.exact else x * self._inverse(y) % self.modulus

    def power(self, x: Array, exponent: int) -> Array:
        """A whole power. Raises ZeroDivisionError."""
        if exponent < 0:
            return self.power(self.div(self.of(1), x), -exponent)
        if self.exact:
            return x**exponent
        product, square = np.ones_like(x), x
        while exponent:
            product = product * square % self.modulus if exponent & 1 else product
            square, exponent = square * square % self.modulus, exponent >> 1
        return product

    def sqrt(self, x: Array) -> Array:
        """A square root: of residues one that turns products into products, of fractions one that may be a :class:`Root`."""
        return np.asarray(square_root(x), dtype=object) if self.exact else self.power(np.asarray(x), (self.modulus + 1) // 4)

    def _inverse(self, x: Array) -> Array:
        if not np.all(x):
            raise ZeroDivisionError
        return self.power(np.asarray(x), self.modulus - 2)

    def total(self, x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
        """Sum over dimensions; an empty one gives zero."""
        sums = np.add.reduce(x, axis=axis, keepdims=keepdims)
        return np.asarray(sums, dtype=object) if self.exact else sums % self.modulus

    def greatest(self, x: Array, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Array:
        """The greatest over dimensions: in any fixed order of residues."""
        if not self.exact:
            return x.max(axis=axis, keepdims=keepdims)
        for dim in sorted((axis,) if isinstance(axis, int) else axis):
            x = GREATER.reduce(x, axis=dim, keepdims=True)
        return x if keepdims else x.squeeze(axis)

    def dot(self, x: Array, y: Array, axis: int) -> Array:
        """Sum of products over a dimension."""
        return self.total(self.mul(x, y), axis)


square_root = np.frompyfunc(root, 1, 1)
GREATER, SMALLER = np.frompyfunc(greater, 2, 1), np.frompyfunc(smaller, 2, 1)

#: Arithmetic of programs.
OPERATORS: dict[str, Callable[[Field, Array, Array], Array]] = {"+": Field.add, "-": Field.sub, "*": Field.mul, "/": Field.div}
