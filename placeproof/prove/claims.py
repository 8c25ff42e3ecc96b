"""Claims about terms: an equation under hypotheses, with what it divides by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from placeproof.prove.terms import Index, Poly


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A hypothesis between reals; ``relation`` is ``>=``, ``>`` or ``=``."""

    name: str
    left: Poly
    relation: str
    right: Poly


@dataclass(frozen=True, slots=True, kw_only=True)
class Equal:
    """A hypothesis between index terms: they name the same point."""

    name: str
    left: Index
    right: Index


Given: TypeAlias = Order | Equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """``left == right`` for all values of everything that occurs freely, under hypotheses.

    ``divisors``: what the two sides divide by; that none can be zero is part of the claim.
    """

    name: str
    left: Poly
    right: Poly
    given: tuple[Given, ...] = ()
    divisors: tuple[Poly, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question to a solver: an SMT-LIB 2 script without options, and the answer that the claim needs."""

    name: str
    script: str
    expected: str
