"""Domains: what values a theorem's parameter takes, said by its annotation.

``n: Degree``, ``psi: Positive``, ``s: Positive["byte"]``: a domain is a bound, which becomes a hypothesis of its own, whether only
integers are meant, and a dimension for the check of dimensions.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction

from placeproof.core.symbols import PURE, Dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """The values of a parameter: reals or integers, from a bound on. ``strict``: the bound itself is left out."""

    name: str
    integer: bool
    least: int | None
    strict: bool = False
    dimension: tuple[tuple[str, int], ...] = ()

    def __getitem__(self, units: str) -> Domain:
        """The same values with a dimension: ``Positive["byte / parameter"]``."""
        return replace(self, dimension=tuple(dimension_of(units).items()))

    def bound(self, symbol: str) -> str | None:
        """The bound in words."""
        return None if self.least is None else f"{symbol} {'>' if self.strict else '>='} {self.least}"

    def units(self) -> Dimension:
        """The dimension as a table."""
        return dict(self.dimension) or PURE

    def has(self, value: Fraction, *, bounded: bool = True) -> bool:
        """Whether a value belongs to the domain. ``bounded=False``: whatever the bound."""
        if self.integer and value.denominator != 1:
            return False
        return not bounded or self.least is None or value > self.least or (value == self.least and not self.strict)

    def draw(self, source: random.Random, *, bounded: bool = True) -> Fraction:
        """A random value: small ones often, large ones sometimes; the bound itself now and then."""
        size = source.choice((1, 2, 4, 8, 30, 1000))
        low = self.least is not None and bounded
        least = self.least if low and self.least is not None else -size
        if self.integer:
            return Fraction(least + source.randint(0, size if low else 2 * size) + (1 if low and self.strict else 0))
        if bounded and not self.strict and source.random() < 0.1:
            return Fraction(least)
        return least + Fraction(source.randint(1, 8 * size), source.choice((1, 2, 3, 4)))


def dimension_of(text: str) -> dict[str, int]:
    """``"byte / parameter"`` as powers. Raises ValueError for anything else."""
    powers: dict[str, int] = {}
    for sign, part in zip((1, -1), text.split("/"), strict=False):
        for unit in part.replace("*", " ").split():
            if not unit.isidentifier() and unit != "1":
                raise ValueError(f"no unit: {unit!r}; write for example 'byte / parameter'")
            if unit != "1":
                powers[unit] = powers.get(unit, 0) + sign
    if text.count("/") > 1:
        raise ValueError("one division at most; write for example 'byte / parameter token'")
    return powers


Real = Domain(name="Real", integer=False, least=None)
Positive = Domain(name="Positive", integer=False, least=0, strict=True)
NonNegative = Domain(name="NonNegative", integer=False, least=0)
Integer = Domain(name="Integer", integer=True, least=None)
Natural = Domain(name="Natural", integer=True, least=0)
Degree = Domain(name="Degree", integer=True, least=1)

#: The domains by the name that an annotation uses.
DOMAINS = {d.name: d for d in (Real, Positive, NonNegative, Integer, Natural, Degree)}
DOMAINS["Count"] = Count = replace(Degree, name="Count")
