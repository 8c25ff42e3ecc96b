"""Statements about the rule of composition: clauses keep what they say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placeproof.theory.language import StatementError

if TYPE_CHECKING:
    from placeproof.prove import Equation


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """The equations that clauses of the rule stand for hold, whatever the operands are."""

    says: tuple[str, ...]
    equations: tuple[Equation, ...]


def clause(*names: str, **changes: object) -> Clauses:
    """Clauses of the rule of composition keep what they say: what an operation makes of operands that lie on an axis as a clause takes them
    lies as it gives it, of what the operation makes without the axis.

    ``changes``: fields of the clauses with other values, for a control: ``clause("mean_of_partial", power=0)``. Raises StatementError for
    a name that no clause has, and for a clause that is no equation between terms.
    """
    from placeproof.semantics.composition import RULE
    from placeproof.semantics.composition.lemmas import lemmas

    known = {c.name: c for c in RULE}
    made = []
    for name in names:
        if name not in known:
            raise StatementError(f"the rule of composition has no clause `{name}`")
        changed = replace(known[name], **changes)  # type: ignore[arg-type]
        equations = lemmas(changed)
        if not equations:
            raise StatementError(f"the clause `{name}` is about a computation: it is what a model is taken to be, and no equation")
        made.append((changed, equations))
    says = tuple(f"{c.name}: {c.says}" for c, _ in made)
    return Clauses(says=says, equations=tuple(e for _, several in made for e in several))
