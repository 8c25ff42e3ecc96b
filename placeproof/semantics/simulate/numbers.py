"""Two kinds of exact numbers: fractions, and residues modulo a large prime.

Fractions grow with every product. A difference between residues is a difference between the fractions that they stand
for; equal residues stand for different fractions only by a chance of one in 2**61. Searches use residues; whatever is shown
to a person is computed again in fractions.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

PRIME = 2**61 - 1


class Residue:
    """A rational number modulo :data:`PRIME`."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value % PRIME

    def __add__(self, other: Operand) -> Residue:
        return Residue(self.value + residue(other))

    __radd__ = __add__

    def __sub__(self, other: Operand) -> Residue:
        return Residue(self.value - residue(other))

    def __rsub__(self, other: Operand) -> Residue:
        return Residue(residue(other) - self.value)

    def __mul__(self, other: Operand) -> Residue:
        return Residue(self.value * residue(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> Residue:
        return Residue(self.value * pow(residue(other), -1, PRIME))

    def __rtruediv__(self, other: Operand) -> Residue:
        return Residue(residue(other) * pow(self.value, -1, PRIME))

    def __pow__(self, power: int) -> Residue:
        return Residue(pow(self.value, power, PRIME))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Residue | int | Fraction) and self.value == residue(other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Operand) -> bool:
        """Any total order serves a maximum that is compared with itself."""
        return self.value < residue(other)

    def __repr__(self) -> str:
        return f"{self.value} mod p"


Operand: TypeAlias = Residue | Fraction | int


def residue(number: Operand) -> int:
    """The residue of a number."""
    if isinstance(number, Residue):
        return number.value
    exact = Fraction(number)
    return exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME
