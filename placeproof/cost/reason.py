"""The reasons of a derivation: which rule, what it gives, and why it applies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One step of a derivation that a reader can check: the rule, the expression that it gives, why it applies here."""

    rule: str
    expression: sympy.Expr
    why: str
