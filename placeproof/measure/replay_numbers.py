"""Exact numbers on torch tensors: float64 where nothing is rounded, and residues modulo many primes, which nothing rounds.

A rational number is held as its residues modulo primes below 2**30, in an int64 tensor with one more dimension. The sum and the product
of residues are the residue of the sum and of the product, so every operation, and every sum that a collective makes of int64, is exact
whatever the size of the numbers. In the end the number is found from its residues (von zur Gathen and Gerhard, Modern Computer Algebra,
sections 5.4 and 5.10), with primes to spare, which a wrong one would not meet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

#: Primes that a number found from the others has to meet: a wrong one does by a chance of one in 2**90.
SPARE = 3
#: Products of two residues are below 2**60, so that int64 holds the sum of eight of them, and of residues on any number of devices.
BELOW = 2**30


class TooLongError(Exception):
    """A number has more digits than the primes of this run can tell apart; more primes can."""


class UndefinedError(Exception):
    """A division by zero."""


class Arithmetic(Protocol):
    """One way to hold rational numbers in tensors. ``extra``: the number of dimensions that one number takes."""

    name: str
    extra: int
    dtype: torch.dtype

    def encode(self, values: Sequence[Fraction]) -> Tensor:
        """Numbers in a row: a tensor of shape (n, ...)."""

    def decode(self, data: Tensor) -> list[Fraction]:
        """The numbers of a row."""

    def holds(self, data: Tensor, value: Fraction) -> bool:
        """Whether one number is this fraction."""

    def settle(self, data: Tensor) -> Tensor:
        """A sum or a product in its usual form."""

    def divide(self, left: Tensor, right: Tensor) -> Tensor:
        """The quotient, element by element."""

    def over(self, data: Tensor, divisor: Fraction) -> Tensor:
        """The quotient by one number that is not zero."""

    def greatest(self, data: Tensor) -> Tensor:
        """The greatest along the first dimension."""


class Float64:
    """IEEE 754 double precision. Whether it was exact, the caller finds out by comparing."""

    name, extra, dtype = "float64", 0, torch.float64

    def encode(self, values: Sequence[Fraction]) -> Tensor:
        """The nearest doubles; one beyond their range becomes infinite."""
        return torch.tensor([_double(v) for v in values], dtype=self.dtype)

    def decode(self, data: Tensor) -> list[Fraction]:
        """The rational numbers that doubles are."""
        values = data.reshape(-1).tolist()
        if not all(math.isfinite(v) for v in values):
            raise TooLongError("a number is beyond the range of float64")
        return [Fraction(v) for v in values]

    def holds(self, data: Tensor, value: Fraction) -> bool:
        """Exactly, not to the nearest double."""
        return math.isfinite(float(data)) and Fraction(float(data)) == value

    def settle(self, data: Tensor) -> Tensor:
        """As it is."""
        return data

    def divide(self, left: Tensor, right: Tensor) -> Tensor:
        """The quotient; raises UndefinedError for a divisor of zero."""
        if bool((right == 0).any()):
            raise UndefinedError("division by zero")
        return left / right

    def over(self, data: Tensor, divisor: Fraction) -> Tensor:
        """The quotient by one number that is not zero."""
        return data / _double(divisor)

    def greatest(self, data: Tensor) -> Tensor:
        """The greatest along the first dimension."""
        return data.amax(dim=0)


def _double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


class Residues:
    """Residues modulo the largest primes below 2**30: ``count`` of them, the last :data:`SPARE` to check with."""

    extra, dtype = 1, torch.int64

    def __init__(self, count: int) -> None:
        self.name = f"residues modulo {count} primes"
        self.primes = _primes(count)
        self.modulus = torch.tensor(self.primes, dtype=self.dtype)
        self._most = math.isqrt(math.prod(self.primes[:-SPARE]) // 2)

    @staticmethod
    def for_numbers(bits: int) -> Residues:
        """Enough primes to tell apart fractions whose numerator and denominator have so many bits."""
        return Residues((2 * bits + 2) // 29 + 2 + SPARE)

    def encode(self, values: Sequence[Fraction]) -> Tensor:
        """Residues, one row for each number. A denominator that one of the primes divides raises UndefinedError."""
        if all(v.denominator == 1 and abs(v.numerator) < 2**62 for v in values):
            whole = torch.tensor([v.numerator for v in values], dtype=self.dtype)
            return torch.remainder(whole[:, None], self.modulus)
        rows = [[v.numerator * _inverse(v.denominator, p) % p for p in self.primes] for v in values]
        return torch.tensor(rows, dtype=self.dtype).reshape(len(values), len(self.primes))

    def decode(self, data: Tensor) -> list[Fraction]:
        """The one fraction of few digits with these residues, for each row; raises TooLongError where there is none."""
        return [self._found(row) for row in data.reshape(-1, len(self.primes)).tolist()]

    def holds(self, data: Tensor, value: Fraction) -> bool:
        """By its residues: no other fraction of at most :attr:`bits` bits has them."""
        return max(abs(value.numerator), value.denominator) <= self._most and bool(torch.equal(data, self.encode([value])[0]))

    @property
    def bits(self) -> int:
        """The numerators and denominators of so many bits are told apart."""
        return self._most.bit_length() - 1

    def _found(self, residues: list[int]) -> Fraction:
        number, modulus = 0, 1
        for residue, prime in list(zip(residues, self.primes, strict=True))[:-SPARE]:
            number += modulus * ((residue - number) * pow(modulus, -1, prime) % prime)
            modulus *= prime
        before, after = (modulus, 0), (number, 1)
        while abs(after[0]) > self._most:
            quotient = before[0] // after[0]
            before, after = after, (before[0] - quotient * after[0], before[1] - quotient * after[1])
        numerator, denominator = after
        spare = list(zip(residues, self.primes, strict=True))[-SPARE:]
        if not denominator or any((numerator - residue * denominator) % prime for residue, prime in spare):
            raise TooLongError(f"a number has more than {self.bits} bits")
        return Fraction(numerator, denominator)

    def settle(self, data: Tensor) -> Tensor:
        """Residues again."""
        return torch.remainder(data, self.modulus)

    def divide(self, left: Tensor, right: Tensor) -> Tensor:
        """By Fermat, one over x is x to the p - 2. Raises UndefinedError where a divisor is zero modulo a prime."""
        if bool((right == 0).any()):
            raise UndefinedError("division by zero")
        result, square, exponent = left, right, self.modulus - 2
        while bool((exponent > 0).any()):
            odd = torch.remainder(exponent, 2) == 1
            result = torch.where(odd, self.settle(result * square), result)
            square, exponent = self.settle(square * square), exponent // 2
        return result

    def over(self, data: Tensor, divisor: Fraction) -> Tensor:
        """The product with its inverse."""
        return self.settle(data * self.encode([1 / divisor])[0])

    def greatest(self, data: Tensor) -> Tensor:
        """Residues have no order: the numbers are found first."""
        rows = data.reshape(data.shape[0], -1, len(self.primes))
        found = [self.decode(row) for row in rows]
        which = [max(range(len(found)), key=lambda r, c=column: found[r][c]) for column in range(rows.shape[1])]  # type: ignore[misc]
        return torch.stack([rows[r, column] for column, r in enumerate(which)]).reshape(data.shape[1:])


def _inverse(value: int, prime: int) -> int:
    if value % prime == 0:
        raise UndefinedError(f"a denominator is divisible by {prime}")
    return pow(value, -1, prime)


@cache
def _primes(count: int) -> tuple[int, ...]:
    """The largest primes below :data:`BELOW`."""

    def found() -> Iterator[int]:
        candidate = BELOW - 1
        while True:
            if _is_prime(candidate):
                yield candidate
            candidate -= 2

    return tuple(prime for prime, _ in zip(found(), range(count), strict=False))


def _is_prime(odd: int) -> bool:
    """Miller and Rabin's test; these bases decide every number below 2**32 (Jaeschke 1993)."""
    if any(odd % small == 0 for small in (3, 5, 7, 11, 13)):
        return False
    power = (odd - 1 & 1 - odd).bit_length() - 1
    for base in (2, 7, 61):
        x = pow(base, odd - 1 >> power, odd)
        if x not in (1, odd - 1) and not any((x := x * x % odd) == odd - 1 for _ in range(power - 1)):
            return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """A tensor of exact numbers. Shapes and indices are those of the numbers; operands are broadcast as torch does it."""

    of: Arithmetic
    data: Tensor

    @staticmethod
    def make(of: Arithmetic, values: Sequence[Fraction | int], *shape: int) -> Numbers:
        """Numbers from fractions: in one row, or in rows that fill a shape."""
        data = of.encode([Fraction(v) for v in values])
        return Numbers(of, data.reshape(*(shape or (len(values),)), *data.shape[1:]))

    @property
    def shape(self) -> tuple[int, ...]:
        """How many numbers along each dimension."""
        return tuple(self.data.shape[: self.data.dim() - self.of.extra])

    def fractions(self) -> list[Fraction]:
        """All of them, row by row."""
        return self.of.decode(self.data)

    def flat(self) -> Numbers:
        """All of them in one row."""
        return Numbers(self.of, self.data.reshape(-1, *self.data.shape[self.data.dim() - self.of.extra :]))

    def like(self, values: Sequence[Fraction | int], *shape: int) -> Numbers:
        """Other numbers of the same arithmetic."""
        return Numbers.make(self.of, values, *shape)

    def _with(self, data: Tensor) -> Numbers:
        return Numbers(self.of, self.of.settle(data))

    def _other(self, other: Numbers | Fraction | int) -> Tensor:
        return other.data if isinstance(other, Numbers) else self.of.encode([Fraction(other)])[0]

    def __add__(self, other: Numbers | Fraction | int) -> Numbers:
        return self._with(self.data + self._other(other))

    __radd__ = __add__

    def __sub__(self, other: Numbers | Fraction | int) -> Numbers:
        return self._with(self.data - self._other(other))

    def __rsub__(self, other: Numbers | Fraction | int) -> Numbers:
        return self._with(self._other(other) - self.data)

    def __mul__(self, other: Numbers | Fraction | int) -> Numbers:
        return self._with(self.data * self._other(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Numbers | Fraction | int) -> Numbers:
        if isinstance(other, Numbers):
            return Numbers(self.of, self.of.divide(self.data, other.data))
        if not other:
            raise UndefinedError("division by zero")
        return Numbers(self.of, self.of.over(self.data, Fraction(other)))

    def __rtruediv__(self, other: Numbers | Fraction | int) -> Numbers:
        return Numbers(self.of, self.of.divide(self._other(other).expand_as(self.data), self.data))

    def __pow__(self, power: int) -> Numbers:
        """A whole power."""
        base = self if power >= 0 else 1 / self
        result = Numbers(self.of, torch.zeros_like(self.data)) + 1
        for _ in range(abs(power)):
            result = result * base
        return result

    def __getitem__(self, index: object) -> Numbers:
        """As of a tensor, over the dimensions of numbers."""
        return Numbers(self.of, self.data[index])  # type: ignore[index]

    def permuted(self, order: Sequence[int]) -> Numbers:
        """Dimensions in another order."""
        return Numbers(self.of, self.data.permute([*order, *range(len(order), len(order) + self.of.extra)]))

    def sum(self, dim: int = 0) -> Numbers:
        """The sum over one dimension."""
        return self._with(self.data.sum(dim))

    def where(self, mask: Tensor, other: Numbers) -> Numbers:
        """These numbers where the mask is set, the others elsewhere. ``mask``: bool, of the numbers' first dimensions."""
        wide = mask.reshape(*mask.shape, *[1] * (self.data.dim() - mask.dim()))
        return Numbers(self.of, torch.where(wide, self.data, other.data))

    def greatest(self) -> Numbers:
        """The greatest along the first dimension."""
        return Numbers(self.of, self.of.greatest(self.data))


def zeros(of: Arithmetic, *shape: int) -> Numbers:
    """Zeros."""
    return Numbers(of, torch.zeros_like(of.encode([Fraction(0)])[0]).expand(*shape, *[-1] * of.extra).clone())


def stacked(numbers: Sequence[Numbers]) -> Numbers:
    """Numbers of one shape along a new first dimension."""
    return Numbers(numbers[0].of, torch.stack([n.data for n in numbers]))
