"""Reading a schedule from a TOML file. Everything wrong with the file is reported at once, with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from placeproof.core.tables import FileKind, Reader, Table, records, shown
from placeproof.schedules.expression import Expression, Number, read
from placeproof.schedules.schedule import (
    COUNTS,
    QUANTITIES,
    SIZES,
    TIMES,
    Form,
    Need,
    PassKind,
    Phase,
    Printed,
    Profile,
    Schedule,
    Search,
    StageLayout,
    Token,
)

_KIND = FileKind(noun="a schedule file", manual="see docs/reference/schedules.md")
_TOKEN = re.compile(r"(F|BW|B|W)(\d*)")
_FORMS = (*COUNTS, *TIMES, *SIZES)
_DEGREES = ("p", "m", "v")
#: What a search is told besides its limit, and what counts where that is not said.
_SEARCHED: Mapping[str, int] = {"T_F": 1, "T_B": 1, "T_W": 1, "T_send": 0, "M_B": 1, "M_W": 1}


def read_text(text: str, *, source: str) -> Schedule:
    """The schedule of a TOML text; ``source`` names it in messages. Raises InputError with everything that is wrong with it."""
    return _schedule(Table.read(text, kind=_KIND, source=source))


def read_file(path: Path) -> Schedule:
    """The schedule of a TOML file. Raises InputError when it cannot be read or used."""
    return read_table(path)[1]


def read_table(path: Path) -> tuple[Table, Schedule]:
    """The same, with the table that says where in the file something stands."""
    table = Table.open(path, kind=_KIND)
    return table, _schedule(table)


def _schedule(table: Table) -> Schedule:
    fields = table.fields(
        name=Table.required,
        **dict.fromkeys(("title", "summary", "source"), Table.text),
        layout=lambda table, key: StageLayout(table.choice(key, [*StageLayout]) or "loop"),
        chunks=_chunks,
        order=lambda table, key: _order(table.table(key)),
        needs=records(Need, rule=partial(Table.parsed, read=_relation(_DEGREES), default="0 == 0", required=True)),
        closed=records(Form, **_FORM),
        printed=lambda table, key: tuple(map(_printed, table.rows(key))),
    )
    order = fields.pop("order")
    if order["search"] is not None and (fields["layout"] is not StageLayout.LOOP or fields["chunks"] != 1):
        help = 'write `layout = "loop"`, and leave `chunks` out; or write phases'
        table.refuse("an order is searched for where each device has one stage", "order", "search", help=help)
    return table.sound(Schedule(**order, **fields))


def _chunks(table: Table, key: str) -> int | None:
    layout = table.data.get("layout")
    value = table.data.get(key, 1 if layout == "loop" else 2)
    if value == "v" and layout == "loop":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        table.refuse(f'`chunks` is a whole number, or "v" of layout loop, not {shown(value)}', key)
        return 1
    if layout in ("vee", "both") and value != 2:
        table.refuse(f"layout {layout} has 2 chunks on a device, not {value}", key, help="leave `chunks` out")
    return value


def _order(table: Table) -> dict[str, Any]:
    """In which order a device runs passes; each name of ``let`` may use those before it."""
    whole = next((key for key in ("search", "block") if key in table.data), None)
    if whole is not None:
        for key in ("phases", "turn", "made_for", *(("block", "every", "let") if whole == "search" else ())):
            if key in table.data:
                table.refuse(f"`{key}` does not go with `{whole}`", key, help="leave one of them out")
    elif "phases" not in table.data:
        help = 'add `[order]` with `phases = [{ times = "m", run = "F" }, ...]`'
        table.refuse("`phases` is missing", code=table.kind.missing, help=help)
    lets = tuple(table.table("let").data)
    return table.fields(
        let=lambda table, key: tuple((t, _number(COUNTS + lets[:n])(table.table(key), t)) for n, t in enumerate(lets)),
        turn=lambda table, key: _number(_DEGREES)(table, key) if key in table.data else None,
        made_for=lambda table, key: _number(_DEGREES)(table, key) if key in table.data else None,
        phases=records(Phase, times=_number(COUNTS + lets), run=_run),
        every=lambda table, key: (
            _number(_DEGREES)(table, key) if ("block" in table.data and whole == "block") or key in table.data else None
        ),
        block=lambda table, key: tuple(_block(table.table(key), _number(COUNTS + lets))),
        search=lambda table, key: _search(table.table(key)) if key in table.data else None,
    )


def _search(table: Table) -> Search:
    """What an order is searched for; times and sizes that are not said are 1, and messages take no time."""
    given = {key: (lambda inner, name, first=first: _known(inner, name, first)) for key, first in _SEARCHED.items()}
    fields = table.fields(most=_number((*COUNTS, *SIZES)), **given)
    profile = Profile(*(fields[key] for key in _SEARCHED))
    return Search(most=fields["most"], profile=profile, said=not table.data.keys().isdisjoint(_SEARCHED))


def _known(table: Table, key: str, first: int) -> Number:
    """A number that is not negative: whole, with a point, or a fraction as a text."""
    value = table.data.get(key, first)
    try:
        number = Fraction(value) if isinstance(value, int | Decimal | str) and not isinstance(value, bool) else Fraction(-1)
    except (ValueError, ZeroDivisionError, OverflowError):
        number = Fraction(-1)
    if number < 0:
        table.refuse(f"`{key}` is no number of at least 0: {shown(value)}", key, help='write 3, 18.5 or "37/2"')
        return first
    return int(number) if number.denominator == 1 else number


def _block(table: Table, number: Reader) -> Iterator[tuple[Token, Expression]]:
    """In which unit of time a device runs each pass of the first micro-batch."""
    for key in table.data:
        token = _TOKEN.fullmatch(key)
        if token is None:
            table.refuse(f"`{key}` is no pass", key, help="write F, B, W or BW, and a chunk: `F0`")
        else:
            yield Token(PassKind(token[1]), int(token[2]) if token[2] else None), number(table, key)


def _number(names: Collection[str]) -> Reader:
    return lambda table, key: table.parsed(key, partial(read, names=names), required=True, numbers=True)


def _relation(names: Collection[str]) -> Callable[[str], Expression]:
    def relation(text: str) -> Expression:
        made = read(text, names)
        if not made.relation:
            raise ValueError(f"`{text}` is no relation: two numbers with ==, !=, <, <=, > or >= between them")
        return made

    return relation


def _run(row: Table, key: str) -> tuple[tuple[Token, ...], ...]:
    return tuple(_slot(row, word) for word in row.required(key).split())


def _slot(row: Table, word: str) -> tuple[Token, ...]:
    tokens = []
    for part in word.split("&"):
        token = _TOKEN.fullmatch(part)
        if token is None:
            row.refuse(f"`{part}` is no pass", "run", help="write F, B, W or BW, and a chunk: `F0`; `F0&BW1` overlap")
            continue
        tokens.append(Token(PassKind(token[1]), int(token[2]) if token[2] else None))
    if len(tokens) > 1 and [t.kind for t in tokens] != [PassKind.F, PassKind.BW]:
        row.refuse(f"`{word}` cannot overlap", "run", help="a forward and a full backward can: `F0&BW1`")
    return tuple(tokens)


_FORM: dict[str, Reader] = {
    "what": partial(Table.choice, names=QUANTITIES, noun="quantity of a schedule"),
    "form": _number(_FORMS),
    "when": partial(Table.each, read=_relation(_FORMS)),
}


def _printed(row: Table) -> Printed:
    fields = row.fields(**_FORM, source=Table.text, note=Table.text)
    return Printed(source=fields.pop("source"), note=fields.pop("note"), form=Form(**fields))
