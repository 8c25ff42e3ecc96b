"""The rule of composition with one of its conditions dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from placeproof.prove.composition import ANY, LAYOUTS, LIKE, OWNED, AxisType, Clause

#: What a computation needs of the tokens that it is given: one condition of several clauses.
TOKENS = "token by token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blind(Clause):
    """A clause that takes one operand for what it asks for, whatever that is."""

    operand: int

    def result(self, operands: tuple[AxisType, ...], said: int = 0) -> AxisType | None:
        """How the result would lie if the operand were as it has to be."""
        if len(operands) != len(self.takes):
            return None
        wanted = self.takes[self.operand].removesuffix("*")
        layout = operands[0].layout if wanted == LIKE else operands[self.operand].layout if wanted == ANY else wanted
        power = operands[0].power if wanted == LIKE else 0
        meant = AxisType(LAYOUTS[0] if layout == OWNED else layout, power)
        return Clause.result(self, (*operands[: self.operand], meant, *operands[self.operand + 1 :]), said)


def conditions(rule: tuple[Clause, ...]) -> Iterator[tuple[str, str]]:
    """Each condition: of a clause and one of its operands, or a word of what alone clauses speak of."""
    for clause in rule:
        yield from ((clause.name, str(number)) for number in range(len(clause.takes)))
    yield from ((word, "only") for word in dict.fromkeys(c.only for c in rule if c.only))


def dropped(rule: tuple[Clause, ...], name: str, operand: str) -> tuple[Clause, ...]:
    """The rule without a condition."""
    if operand == "only":
        return tuple(replace(c, only="") if c.only == name else c for c in rule)
    return tuple(_blind(c, int(operand)) if c.name == name else c for c in rule)


def _blind(clause: Clause, operand: int) -> Blind:
    values = {f: getattr(clause, f) for f in ("name", "op", "role", "gives", "says", "takes", "power", "only")}
    return Blind(operand=operand, **values)
