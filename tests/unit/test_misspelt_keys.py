"""A misspelt key of any file of tables is an error that names it; whatever a value is, nothing but an InputError comes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from placeproof import clusters, models
from placeproof.core.diagnostics import InputError
from placeproof.core.tables import FileKind, Table
from placeproof.framework_rules.questions import read_questions
from placeproof.framework_rules.table import read_rules
from placeproof.importers.huggingface.fields import read_families
from placeproof.importers.meaning import meaning, read_meaning
from placeproof.importers.settings import read_settings
from placeproof.importers.shapes import parse_shapes
from placeproof.importers.writing.table import read_writing
from placeproof.models.hub import read_checkpoints
from placeproof.profiles.profile import read_profile
from placeproof.schedules.read import read_text as read_schedule
from placeproof.semantics.catalogue import read_rules as read_compositions
from placeproof.strategies.files import read_text as read_strategy

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
ROOT = Path(__file__).parents[2] / "placeproof"


def read_model(text: str, *, source: str) -> object:
    Path("m.toml").write_text(text, encoding="utf-8")
    return models.load("m.toml")


def of_ours(read: Callable[[Table], object]) -> Callable[..., object]:
    """A reader of texts from one of tables: of files that no user writes."""
    return lambda text, *, source: read(Table.read(text, kind=FileKind(noun="a file", manual="see the others"), source=source))


KINDS: dict[str, tuple[str, Callable[..., object]]] = {
    "strategy": ("strategies/catalogue", read_strategy),
    "schedule": ("schedules/catalogue", read_schedule),
    "cluster": ("clusters/presets", clusters.read_text),
    "preset": ("models/presets", read_model),
    "family": ("models/families", read_model),
    "checkpoints": ("models", of_ours(read_checkpoints)),
    "profile": ("profiles", of_ours(read_profile)),
    "rules": ("framework_rules", of_ours(read_rules)),
    "questions": ("framework_rules", of_ours(read_questions)),
    "compositions": ("strategies", of_ours(read_compositions)),
    "settings": ("importers/torchtitan", of_ours(read_settings)),
    "types": ("importers/huggingface", of_ours(read_families)),
    "meanings": ("importers/accelerate", of_ours(read_meaning)),
    "writing": ("importers/accelerate", of_ours(lambda table: read_writing(table, meaning("accelerate").words))),
}
#: Tables whose keys are names that the author chooses, as patterns.
CHOSEN: dict[str, str] = {
    "strategy": "axes|options|needs",
    "schedule": r"order\.let",
    "cluster": "levels",
    "preset": "",
    "checkpoints": "sources",
    "family": r"stack|options\..*|buffers\..*",
    "profile": r"kept|implementation\.\w+\.differences",
    "rules": r"rule\.domains|rule\.template",
    "questions": r"question\.domains",
    "compositions": "",
    "settings": "",
    "meanings": r"facts|words|words\..*",
    "writing": r"settings|way\.settings",
    "types": r"settings|model\.\w+\.(sizes|dropout|masks)",
}
#: Of our own files some: all take minutes.
ONLY = {
    "profile": ("ideal", "megatron-core"),
    "rules": ("accelerate", "nanotron"),
    "questions": ("questions",),
    "compositions": ("rules",),
    "settings": ("settings",),
    "meanings": ("meaning",),
    "writing": ("writing",),
}
#: By day one preset of each family: all have the same keys.
PRESETS = {models.load(name).family: name for name in models.presets()}.values()
FILES = [
    (kind, path)
    for kind, (folder, _) in KINDS.items()
    for path in sorted((ROOT / folder).glob("*.toml"))
    if path.stem in ONLY.get(kind, (path.stem,)) and (NIGHTLY or kind != "preset" or path.stem in PRESETS)
]
_HEADER = re.compile(r"\s*\[+([\w.\"-]+)\]+")
_KEY = re.compile(r"^(\s*)([A-Za-z_]+)(\s*=)|(?<=[{,] )()([A-Za-z_]+)(\s*=)")


def misspelt(text: str) -> Iterator[tuple[str, str, str, int]]:
    """The text with each key misspelt in turn; the table, the key as it is then, and its line. By day what is the first of its kind."""
    lines, table, quoted = text.splitlines(), "", False
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines):
        within, quoted = quoted, quoted ^ (line.count("'''") % 2 == 1)
        if within:
            continue
        if header := _HEADER.match(line):
            table = header[1]
            continue
        for found in _KEY.finditer(line):
            key = found[2] or found[5]
            if '"' in line[: found.start()] or line.startswith(("let =", "facts =", "reads =")):
                continue  # it may stand in a text; it is a name that the author chooses
            if met(table, key, seen):
                continue
            at = found.start(2 if found[2] else 5)
            changed = line[: at + len(key)] + "_qq" + line[at + len(key) :]
            yield "\n".join([*lines[:number], changed, *lines[number + 1 :]]) + "\n", table, key + "_qq", number + 1


def met(table: str, key: str, seen: set[tuple[str, str]]) -> bool:
    """Whether by day a key of a table was met already; of tables with a dot, what is before it counts."""
    kind = (table.partition(".")[0], key)
    again = kind in seen and not NIGHTLY
    seen.add(kind)
    return again


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("kind", "path"), FILES, ids=lambda part: part.stem if isinstance(part, Path) else part)
def test_a_misspelt_key_is_named(kind: str, path: Path) -> None:
    text, count = path.read_text(encoding="utf-8"), 0
    for changed, table, key, line in misspelt(text):
        if re.fullmatch(CHOSEN[kind], table) and table:
            continue
        with pytest.raises(InputError) as refused:
            KINDS[kind][1](changed, source="m.toml")
        told = [d for d in refused.value.diagnostics if key in d.message]
        assert told, f"{table}: {key}: {refused.value}"
        # A key in a list over several lines is shown where the list begins.
        assert [d for d in told if d.place is not None and d.place.line <= line], f"{table}: {key} at {told[0].place}"
        count += 1
    assert count > (3 if NIGHTLY else 0)


VALUES = ["[]", "{}", "true", "-1", "1.5", "nan", "1e400", '""', '"x"', "[1]", "{ a = 1 }", "1979-05-27"]
#: Each value in each file at night, else each in a third of the files; of the longest one, which is ours, a quarter of these.
GIVEN = [(*each, value) for each in FILES if each[0] != "questions" for value in VALUES]
if not NIGHTLY:
    GIVEN = [each for n, each in enumerate(GIVEN) if (n + n // len(VALUES)) % 3 == 0 and (each[0] != "types" or n % 4 == 0)]


@pytest.mark.parametrize(("kind", "path", "value"), GIVEN, ids=lambda part: part.stem if isinstance(part, Path) else part)
def test_no_value_makes_another_exception(kind: str, path: Path, value: str) -> None:
    lines, table, seen = path.read_text(encoding="utf-8").splitlines(), "", set[tuple[str, str]]()
    for number, line in enumerate(lines):
        if header := _HEADER.match(line):
            table = header[1]
        key = re.match(r"\s*[\w\"-]+\s*=\s*(?=[^\[{\s]|\[.*\]$|\{.*\}$)", line)
        if key and not met(table, key[0].strip(), seen):
            text = "\n".join([*lines[:number], key[0] + value, *lines[number + 1 :]]) + "\n"
            try:
                KINDS[kind][1](text, source="m.toml")
            except InputError as error:
                assert error.diagnostics


SHAPES = """
name = "two"
used = ["w", "layers.0", "b"]
[buffers]
float32 = 64
[dims]
tokens = 4
[[unit]]
name = "root"
parameters = { "w" = [4, 3], "b" = [4] }
split = { "w" = 0, "b" = 0 }
[[unit]]
name = "layers.0"
blocks = ["x"]
[unit.parameters]
"layers.0.w" = [4, 3]
"layers.0.b" = [3]
[unit.split]
"layers.0.w" = 1
"""


@pytest.mark.parametrize("value", ["true", "-1", "1.5", "[[1]]"])
@pytest.mark.parametrize("number", [n for n, line in enumerate(SHAPES.splitlines()) if " = " in line])
def test_a_wrong_value_in_a_file_of_shapes_is_shown_in_its_own_unit(number: int, value: str) -> None:
    """Though both units have such keys; `parameters = true` beside `split` once was a traceback."""
    lines = SHAPES.splitlines()
    key = lines[number].partition(" = ")[0]
    text = "\n".join([*lines[:number], f"{key} = {value}", *lines[number + 1 :]]) + "\n"
    with pytest.raises(InputError) as refused:
        parse_shapes(text, kind="toml", source="m.toml")
    assert [d for d in refused.value.diagnostics if d.place and d.place.line == number + 1]
