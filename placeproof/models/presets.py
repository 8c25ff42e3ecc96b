"""Presets: published models, each a family with its sizes, and where these are published. Read from TOML files, a user's own included."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from placeproof.core import files as texts
from placeproof.core.diagnostics import Diagnostic, InputError, suggestion
from placeproof.models.family import Family, families, family, read_family
from placeproof.models.model import Model, build
from placeproof.models.tables import Table

_KEYS = ("name", "title", "source", "note", "family", "sizes", "options")
_HELP = 'a preset names its family, `family = "llama"`; a family has `[stack.NAME]` with blocks'


@cache
def presets() -> tuple[str, ...]:
    """The names of all presets that come with this package."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in (files(__package__) / "presets").iterdir() if f.name.endswith(".toml")))


def load(name: str | Path, /, **options: str) -> Model:
    """A model by the name of a preset or of a family, or from a TOML file; ``options`` choose what a family leaves open.

    A family has no sizes, so that all that is counted of it is a formula. Raises InputError where there is no such model or option, and
    with every problem of a file.
    """
    if isinstance(name, Path) or name.endswith(".toml"):
        path = texts.expanded(name)
        text = texts.read_text(path, code="PP501", help="give the path of a readable file, or the name of a preset")
        return _model(Table.read(text, source=str(name)), options, folder=path.parent)
    if name in presets():
        text = (files(__package__) / "presets" / f"{name}.toml").read_text(encoding="utf-8")
        return _model(Table.read(text, source=f"{name}.toml"), options, folder=None)
    if name in families():
        return build(family(name), name=name, options=options)
    known = (*presets(), *families())
    help = suggestion(name, known) or "the presets: " + ", ".join(presets()) + "; the families: " + ", ".join(families())
    raise InputError([Diagnostic(code="PP101", message=f"there is no model `{name}`", help=help)])


def _model(table: Table, options: dict[str, str], *, folder: Path | None) -> Model:
    """What a file says: a family, or a preset of one."""
    if "stack" in table.data:
        found = read_family(table, folder=folder)
        return build(found, name=found.name, options=options)
    table.known(_KEYS)
    name, title, source = (table.text(key, required=True) for key in ("name", "title", "source"))
    sizes, said = table.counts("sizes"), table.mapping("options")
    found_family = _family(table, folder)
    table.problems.raise_if_any()
    assert found_family is not None
    for symbol in sizes:
        if symbol not in found_family.symbols:
            table.unknown(f"`{symbol}` is no symbol of family `{found_family.name}`", symbol, found_family.symbols, "sizes", symbol)
    table.problems.raise_if_any()
    with table.problems.collecting():
        note = table.text("note")
        return build(found_family, name=name, title=title, source=source, note=note, sizes=sizes, options={**said, **options})
    table.problems.raise_if_any()
    raise AssertionError("unreachable")


def _family(table: Table, folder: Path | None) -> Family | None:
    """The family that a preset names: one of ours, or a file beside it."""
    named = table.text("family")
    if not named:
        table.refuse("PP503", f"{table.source} names no family, and has no stack of blocks", help=_HELP)
    elif named.endswith(".toml") and folder is not None:
        text = texts.read_text(folder / named, code="PP501", help="give the path of a family, from the folder of this file")
        return read_family(Table.read(text, source=named), folder=folder)
    elif named in families():
        return family(named)
    else:
        table.unknown(f"there is no family `{named}`", named, families(), "family")
    return None
