"""Exact numbers on torch tensors: residues modulo many primes, which nothing rounds.

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
    """A tensor of residues. Shapes and indices are those of the numbers."""

    of: Residues
    data: Tensor

    def __getitem__(self, index: int) -> Numbers:
        return Numbers(self.of, self.data[index])

    def __truediv__(self, divisor: int) -> Numbers:
        return Numbers(self.of, self.of.over(self.data, Fraction(divisor)))

    def greatest(self) -> Numbers:
        """The greatest along the first dimension."""
        return Numbers(self.of, self.of.greatest(self.data))
