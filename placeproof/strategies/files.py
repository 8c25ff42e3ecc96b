"""Reading a strategy from a TOML file. Everything wrong with the file is reported at once, with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from placeproof.core.bounds import A_COUNT, is_count
from placeproof.core.mesh import SPLITS, USUAL_SPLITS, Axis
from placeproof.core.modes import MODES
from placeproof.core.states import STATES
from placeproof.core.strategy import EXPERT, INNER, MATRIX, NORM, OUTER, SCHEDULE_FIELDS, Entry, Realisation
from placeproof.core.tables import FileKind, Table, one_of, shown
from placeproof.programs.ops import RESERVED
from placeproof.strategies.template import Option, Template

_KIND = FileKind(noun="a strategy file", manual="see docs/how-to/own-strategy.md")
_GROUPS = (MATRIX, NORM, INNER, OUTER, EXPERT)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_file(path: Path) -> Template:
    """The strategy of a TOML file. Raises :class:`InputError` when it cannot be read or used."""
    return _template(Table.open(path, kind=_KIND))


def read_text(text: str, *, source: str) -> Template:
    """The strategy of a TOML text; ``source`` names it in messages. Raises InputError with all that is wrong."""
    return _template(Table.read(text, kind=_KIND, source=source))


def read_data(data: Mapping[str, Any]) -> Template:
    """The strategy of the same keys and tables as a file has, given as a mapping. Raises InputError with all that is wrong."""
    return _template(Table(data=data, kind=_KIND, source="<definition>"))


def _template(table: Table) -> Template:
    read = table.fields(
        name=Table.required,
        **dict.fromkeys(("title", "summary", "source", "family"), Table.text),
        **dict.fromkeys(("aliases", "approximates", "positional"), Table.texts),
        axes=lambda table, key: tuple(map(_axis, table.tables(key))),
        placement=lambda table, key: tuple(entry for axis in table.tables(key) for entry in _entries(axis, table)),
        schedule=_schedule,
        options=lambda table, key: tuple(_option(option, table) for option in table.tables(key)),
        needs=_needs,
    )
    if read["name"] and not _NAME.fullmatch(read["name"]):
        table.refuse(f"`{read['name']}` is no name: letters, digits and _ only", "name")
    known = [part.name for part in (*read["axes"], *read["options"])]
    for name in read["positional"]:
        if name not in known:
            table.unknown(f"`{name}` is neither an axis nor an option", name, known, "positional")
    if "positional" not in table.data:
        read["positional"] = tuple(axis.name for axis in read["axes"])
    return table.sound(Template(entries=read.pop("placement"), **{**read, "title": read["title"] or read["name"]}))


def _axis(table: Table) -> Axis:
    table.known(("splits", "degree", "inner"))
    name, splits = table.name, table.data.get("splits", USUAL_SPLITS.get(table.name))
    if not _NAME.fullmatch(name) or name in RESERVED | set(STATES):
        table.refuse(f"`{name}` cannot name an axis", help="letters, digits and _, no word of step programs")
    if not isinstance(splits, str) or splits not in SPLITS:
        table.refuse(f"axis `{name}` splits nothing known: {shown(splits)}", "splits", help=one_of(SPLITS))
        splits = "batch"
    return Axis(name=name, splits=SPLITS[splits], degree=_count(table, "degree"), inner=_count(table, "inner"))


def _count(table: Table, key: str) -> int | None:
    value = table.data.get(key)
    if value is None or is_count(value):
        return value
    table.refuse(f"`{key}` of axis `{table.name}` is {A_COUNT}, not {shown(value)}", key, code="PP103")
    return None


def _entries(axis: Table, strategy: Table) -> Iterator[Entry]:
    """How states lie on one axis."""
    _declared(axis.name, strategy, axis)
    for state, mode in axis.data.items():
        if state not in STATES:
            axis.unknown(f"`{state}` is no state", state, STATES, state)
            continue
        groups = axis.table(state) if isinstance(mode, dict) else None
        if groups:
            groups.known(_GROUPS)
        for path, value in [((state, group), value) for group, value in groups.data.items()] if groups else [((state,), mode)]:
            if isinstance(value, str) and value in MODES:
                owner = strategy.text("name")
                yield Entry(state=state, axis=axis.name, mode=MODES[value], owner=owner, groups=path[1:], place=axis.place(*path))
            else:
                axis.refuse(f"{shown(value)} is no mode", *path, help='"R", "S", "S*", "M" or "O"')


def _declared(axis: str, strategy: Table, table: Table, *keys: str) -> None:
    if axis not in strategy.table("axes").data:
        table.refuse(f"`{axis}` is no axis of this strategy", *keys, code=table.kind.unknown, help=f"declare `[axes.{axis}]`")


def _schedule(table: Table, key: str) -> Realisation:
    inner = table.table(key)
    inner.known(SCHEDULE_FIELDS)
    return Realisation(**{name: _setting(inner, name) for name in inner.data if name in SCHEDULE_FIELDS})


def _setting(table: Table, key: str) -> Any:
    return table.value(key, lambda value: isinstance(value, bool | int | str), "true, false, a number or a text")


def _option(table: Table, strategy: Table) -> Option:
    given = {"name": table.name}
    option = table.record(Option, given, sets=Table.text, kinds=Table.texts, default=_setting, doc=Table.text)
    if option.sets not in SCHEDULE_FIELDS:
        table.refuse(f"option `{option.name}` sets nothing known: {option.sets!r}", "sets", help=one_of(SCHEDULE_FIELDS))
    if option.inner_of:
        _declared(option.inner_of, strategy, table, "inner_of")
    if not option.kinds:
        help = 'add `kinds`, such as ["true", "false"] or ["integer"]'
        table.refuse(f"option `{option.name}` does not say which values it takes", code=table.kind.missing, help=help)
    elif option.default is not None and not option.allows(option.default):
        table.refuse(f"the default of `{option.name}` is {option.expects()}", "default")
    return option


def _needs(table: Table, key: str) -> tuple[tuple[str, str], ...]:
    inner = table.table(key)
    for axis, state in inner.data.items():
        if not isinstance(state, str) or state not in STATES:
            inner.refuse(f"`needs` maps an axis to a state, not {shown(state)}", axis, help=one_of(STATES))
    return tuple(sorted(inner.data.items()))
