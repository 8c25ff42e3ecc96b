"""What a solver answers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Sat:
    """A model: exact values of the query's symbols."""

    model: tuple[tuple[str, Fraction], ...]


@dataclass(frozen=True, slots=True)
class Unsat:
    """No model exists."""


@dataclass(frozen=True, slots=True)
class Silent:
    """No answer within the budget, or a model that is not rational."""


Answer: TypeAlias = Sat | Unsat | Silent
