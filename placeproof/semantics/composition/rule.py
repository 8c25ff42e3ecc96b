"""The clauses of the rule, from their file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from placeproof.core.tables import FileKind, Table, records
from placeproof.prove.composition import SAID, Clause

_KIND = FileKind(noun="a rule of composition", manual="see the other clauses of the rule")


def read_rule(table: Table) -> tuple[Clause, ...]:
    """The clauses of a file. Raises InputError with all that is wrong with it."""
    table.known(("clause",))
    return table.sound(records(Clause, power=_power)(table, "clause"))


def _power(table: Table, key: str) -> int | str:
    value = table.value(key, lambda v: v == SAID or type(v) is int, f'a whole number, or "{SAID}"')
    return value if isinstance(value, int | str) else 0


#: The rule that compositions are decided by.
RULE: tuple[Clause, ...] = read_rule(Table.open(Path(__file__).with_name("rule.toml"), kind=_KIND))


def by_use(rule: tuple[Clause, ...]) -> Mapping[tuple[str, str], tuple[Clause, ...]]:
    """The clauses of a rule by what uses them: an operation, and what the axis is to it."""
    table: dict[tuple[str, str], tuple[Clause, ...]] = {}
    for clause in rule:
        table[clause.op, clause.role] = (*table.get((clause.op, clause.role), ()), clause)
    return table
