"""Tables of files: what is wrong is collected, at its place and with a remedy; what places are, of every way to write a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from input_problems import problems

from placeproof.core.places import KeyPath, toml_place
from placeproof.core.tables import FileKind, Table, records

KIND = FileKind(noun="a file of parts", manual="see the manual")


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    uses: tuple[str, ...]
    note: str = ""
    size: int = 3
    plain: bool = False
    words: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


def read(text: str, made: Callable[[Table], Any] = lambda table: table.record(Part)) -> Any:
    table = Table.read(text, kind=KIND, source="mine.toml")
    return table.sound(made(table))


def test_a_dataclass_says_the_keys_of_its_table() -> None:
    assert read('name = "a"\nuses = ["b"]\nsize = 2\nplain = true\nwords.x = "y"\ncounts.z = 0') == Part(
        name="a", uses=("b",), size=2, plain=True, words={"x": "y"}, counts={"z": 0}
    )
    assert read('name = "a"\nuses = ["b"]') == Part(name="a", uses=("b",))
    assert read('[a]\nuses = ["b"]', lambda table: table.table("a").record(Part, {"name": "a"})) == Part(name="a", uses=("b",))


@pytest.mark.parametrize(
    ("text", "line", "code", "message", "help"),
    [
        ("name = 3", 1, "PP112", "`name` is a text, not 3", 'write `name = "..."`'),
        ("name = ''", 1, "PP113", "`name` is missing", 'add `name = "..."` at the top of mine.toml'),
        ("uses = 3", 1, "PP112", "`uses` is a list of texts, not 3", 'write `uses = ["..."]`'),
        ("uses = []", 1, "PP113", "`uses` is missing", 'add `uses = ["..."]` at the top of mine.toml'),
        ("size = 1.50", 1, "PP112", "`size` is a whole number of at least 1 and at most 1e9, not 1.50", "see the manual"),
        ("plain = 0", 1, "PP112", "`plain` is true or false, not 0", "see the manual"),
        ("siz = 1", 1, "PP111", "`siz` is no key of a file of parts", "did you mean `size`?"),
        ("[counts]\nx = -1", 2, "PP112", "`x` is a whole number of at least 0, not -1", "see the manual"),
        ("[words]\nx = ''", 2, "PP113", "`x` is missing in `[words]`", 'add `x = "..."` in `[words]`'),
        ("words = 3", 1, "PP112", "`words` is a table, not 3", "write `[words]` and its keys below"),
    ],
)
def test_what_is_wrong_with_a_field_is_told_at_its_place(text: str, line: int, code: str, message: str, help: str) -> None:
    said = text.split(" = ", maxsplit=1)[0]
    rest = [f"{key} = {value}" for key, value in (("name", '"a"'), ("uses", '["b"]')) if key != said]
    tail = f"\n{text}" if text.startswith("[") else ""
    whole = "\n".join([*rest, *([] if tail else [text])]) + tail
    (problem,) = problems(lambda: read(whole))
    assert problem.place is not None
    assert (problem.code, problem.message, problem.help) == (code, message, help)
    assert whole.splitlines()[problem.place.line - 1] == text.splitlines()[line - 1]


def test_a_whole_file_is_told_at_once() -> None:
    text = "[[part]]\nname = 'a'\nuses = ['b']\n[[part]]\nname = 3\nsizes = 2\n"
    found = problems(lambda: read(text, lambda table: records(Part)(table, "part")))
    assert [(p.message, p.place.line if p.place else None) for p in found] == [
        ("`uses` is missing in `[[part]]`", 4),
        ("`name` is a text, not 3", 5),
        ("`sizes` is no key of `[[part]]`", 6),
    ]
    (problem,) = problems(lambda: read("part = 3", lambda table: records(Part)(table, "part")))
    assert (problem.message, problem.help) == ("`part` is a list of tables, not 3", "write `[[part]]` before each")


def test_numbers_are_exact() -> None:
    assert read("x = 0.1", lambda table: table.data["x"]) == Decimal("0.1")
    (problem,) = problems(lambda: read("x = 1e99999"))
    assert problem.message == "this is not TOML: the number 1e99999 has too many digits"


def test_a_choice_is_one_of_its_names_and_may_have_a_default() -> None:
    assert read("", lambda table: table.choice("way", ("up", "down"), "up")) == "up"
    assert read("way = 'down'", lambda table: table.choice("way", ("up", "down"), "up")) == "down"
    (problem,) = problems(lambda: read("way = 'dwn'", lambda table: table.choice("way", ("up", "down"), "up", noun="direction")))
    assert (problem.message, problem.help) == ("`dwn` is no direction", "did you mean `down`?")
    (problem,) = problems(lambda: read("", lambda table: table.choice("way", ("up", "down"))))
    assert problem.message == "`way` is missing"


def test_json_is_told_as_json() -> None:
    table = Table(data={"part": [{"name": 3, "x": 1}], "words": 3}, kind=FileKind(noun="a file", manual="m", json=True), source="mine.json")
    (row,) = table.rows("part")
    row.fields(name=Table.text)
    table.mapping("words")
    told = [(p.message, p.help) for p in table.problems.found]
    assert told == [
        ("`x` is no key of `part`", "one of `name`"),
        ("`name` is a text, not 3", 'write `"name": "..."`'),
        ("`words` is a table, not 3", 'write `"words": {...}`'),
    ]


TEXT = """\
top = 1
"a.b" = 2
[one."x.y"]
k = { z = 1, "w" = 2 }
rows = [
    { k = 1 },
    { k = 2, l = 3 },
]
inline = [{ k = 1 }, { k = 2 }]
[[many]]
k = 1
[[many.inner]]
k = 2
[[many.inner]]
k = 3
[many.table]
k = 4
[[many]]
k = 5
[[many.inner]]
k = 6
[many.table]
k = 7
"""


@pytest.mark.parametrize(
    ("path", "line", "shown"),
    [
        (("top",), 1, "top"),
        (("a.b",), 2, '"a.b"'),
        (("one", "x.y"), 3, '[one."x.y"]'),
        (("one", "x.y", "missing"), 3, '[one."x.y"]'),
        (("one", "x.y", "k", "w"), 4, "w"),
        (("one", "x.y", "k", "missing"), 4, "k"),
        (("one", "x.y", "rows"), 5, "rows"),
        (("one", "x.y", "rows", 0), 6, "{ k = 1 }"),
        (("one", "x.y", "rows", 1, "l"), 7, "l"),
        (("one", "x.y", "inline", 1, "k"), 9, "k"),
        (("many", 0, "k"), 11, "k"),
        (("many", 0, "inner", 1, "k"), 15, "k"),
        (("many", 0, "table", "k"), 17, "k"),
        (("many", 1), 18, "[[many]]"),
        (("many", 1, "missing"), 18, "[[many]]"),
        (("many", 1, "inner", 0, "k"), 21, "k"),
        (("many", 1, "table", "k"), 23, "k"),
        (("many", "k"), 11, "k"),
    ],
)
def test_every_key_has_a_place(path: KeyPath, line: int, shown: str) -> None:
    place = toml_place(TEXT, "mine.toml", path)
    assert place is not None
    assert place.line == line
    assert place.text[place.column - 1 :][: place.length] == shown


def test_of_two_rows_in_one_line_the_right_one_is_shown() -> None:
    first, second = (toml_place(TEXT, "mine.toml", ("one", "x.y", "inline", n, "k")) for n in (0, 1))
    assert first is not None
    assert second is not None
    assert (first.column, second.column) == (13, 24)


def test_what_is_nowhere_has_no_place() -> None:
    assert toml_place(TEXT, "mine.toml", ("nowhere", "k")) is None
    assert toml_place(TEXT, "mine.toml", ()) is None
