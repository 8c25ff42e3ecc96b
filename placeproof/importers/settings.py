"""The settings that a system knows, as the table ``settings.toml`` in its folder says them.

A ``[[table]]`` of it holds settings that stand in one table of a configuration::

    [[table]]
    before = ["zero_optimization."]  # what their names begin with; with several, each setting is there several times
    also = ["older."]                # other beginnings of the names of the same settings: of other versions, or short forms
    note = "..."                     # of those that have none
    read = [{ names = "stage", kinds = "int", default = 0, note = "the ZeRO stage" }]
    not_modelled = [...]
    another_step = [...]
    no_matter = [...]

``names``: several with spaces between, where nothing else differs. A setting without ``kinds`` and ``choices`` has any value.
``rule``: a rule of the system that allows no other values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from placeproof.core.tables import FileKind, Table
from placeproof.importers.fields import Field
from placeproof.importers.imported import Role

_KIND = FileKind(noun="a file of settings", manual="see the other entries, and placeproof/importers/settings.py")
_ROLES = {role.value.replace(" ", "_"): role for role in Role}
#: The kinds of a setting that may have any value.
ANY = "bool int number text list table null"


@cache
def settings(system: str) -> tuple[Field, ...]:
    """Every setting of a system."""
    return read_settings(Table.open(Path(__file__).parent / system / "settings.toml", kind=_KIND))


def read_settings(file: Table) -> tuple[Field, ...]:
    """The settings of a file. Raises InputError with all that is wrong with it."""
    file.known(("table",))
    return file.sound(tuple(field for table in file.rows("table") for field in _of_table(table)))


def _of_table(table: Table) -> Iterator[Field]:
    table.known(("before", "also", "note", *_ROLES))
    befores, also, note = table.texts("before") or ("",), table.texts("also"), table.text("note")
    for key, role in _ROLES.items():
        for names, field in (_row(row, role, note) for row in table.rows(key)):
            for before, name in product(befores, names):
                yield replace(field, name=before + name, also=(*(other + name for other in also), *field.also))


def _row(row: Table, role: Role, note: str) -> tuple[list[str], Field]:
    """The names of a row, and what they have in common. ``note``: that of their table."""
    said = row.fields(
        **dict.fromkeys(("kinds", "note", "rule"), Table.text),
        names=Table.required,
        choices=lambda row, key: tuple(row.value(key, lambda value: isinstance(value, list), "a list") or ()),
        any_case=Table.flag,
        default=_default,
        also=Table.texts,
    )
    if not (said["note"] or note):
        row.missing("note", '"..."')
    names, choices, any_case = said.pop("names").split(), said.pop("choices"), said.pop("any_case")
    kinds = said.pop("kinds") or ("" if choices else ANY)
    shared = {**said, "note": said["note"] or note, "choices": _cased(choices) if any_case else choices}
    return names, Field(name="", kinds=tuple(kinds.split()), role=role, **shared)


def _cased(choices: tuple[Any, ...]) -> tuple[Any, ...]:
    """With texts in small letters and in capitals, too."""
    texts = [choice for choice in choices if isinstance(choice, str)]
    return (*choices, *(text for text in dict.fromkeys(map(str.lower, texts)) | dict.fromkeys(map(str.upper, texts)) if text not in texts))


def _default(row: Table, key: str) -> Any:
    value = row.data.get(key)
    return float(value) if isinstance(value, Decimal) else value
