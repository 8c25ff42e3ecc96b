"""Presets: published models, each a family with its sizes, and where these are published. Read from TOML files, a user's own included."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from placeproof.core import files
from placeproof.core.diagnostics import Diagnostic, InputError, suggestion
from placeproof.core.spelling import respelled
from placeproof.core.tables import Table
from placeproof.models.family import KIND, Family, families, family, read_family
from placeproof.models.hub import checkpoint, checkpoints
from placeproof.models.model import Model, build

_FOLDER = Path(__file__).parent / "presets"
#: What to do about a model of the hub that is no preset: nothing is fetched from there.
_AWAY = "nothing is fetched from the hub: give the model's config.json as a file"
_HELP = 'a preset names its family, `family = "llama"`; a family has `[stack.NAME]` with blocks'


@cache
def presets() -> tuple[str, ...]:
    """The names of all presets that come with this package."""
    return files.stems(_FOLDER)


def load(name: str | Path, /, **options: str) -> Model:
    """A model by the name of a preset or of a family, or from a TOML file; ``options`` choose what a family leaves open.

    A preset is known by the names that checkpoints of its shape have on the hub of Hugging Face, too. A family has no sizes, so that all
    that is counted of it is a formula.
    Raises InputError where there is no such model or option, and with every problem of a file.
    """
    if isinstance(name, Path) or name.endswith(".toml"):
        path = files.expanded(name)
        return _model(Table.open(path, kind=KIND, source=str(name)), options, folder=path.parent)
    if name in presets():
        return _model(Table.open(_FOLDER / f"{name}.toml", kind=KIND), options, folder=None)
    if name in families():
        return build(family(name), name=name, options=options)
    of_hub = checkpoint(name)
    if of_hub is not None and of_hub.preset:
        return load(of_hub.preset, **options)
    if of_hub is not None:
        message = f"`{name}` is a model of type `{of_hub.type}`, and no preset has its sizes"
        raise InputError([Diagnostic(code="PP101", message=message, help=_AWAY)])
    if "/" not in name and (meant := respelled(name, {*presets(), *families()})) is not None:
        return load(meant, **options)
    known = (*presets(), *families(), *(of for of, one in checkpoints().items() if one.preset and "/" in name))
    help = (
        suggestion(name, known)
        or _AWAY * ("/" in name)
        or "the presets: " + ", ".join(presets()) + "; the families: " + ", ".join(families())
    )
    raise InputError([Diagnostic(code="PP101", message=f"there is no model `{name}`", help=help)])


def _model(table: Table, options: dict[str, str], *, folder: Path | None) -> Model:
    """What a file says: a family, or a preset of one."""
    if "stack" in table.data:
        found = read_family(table, folder=folder)
        return build(found, name=found.name, options=options)
    read = table.fields(
        **dict.fromkeys(("name", "title", "source"), Table.required),
        note=Table.text,
        family=lambda table, key: _family(table, key, folder),
        sizes=Table.counts,
        options=Table.mapping,
    )
    made: Family = table.sound(read.pop("family"))
    table.table("sizes").known(made.symbols, f"symbol of family `{made.name}`")
    table.table("options").known(made.options, f"option of family `{made.name}`")
    table.problems.raise_if_any()
    note = " ".join(text for text in (made.note, read.pop("note")) if text)
    return build(made, note=note, **{**read, "options": {**read["options"], **options}})


def _family(table: Table, key: str, folder: Path | None) -> Family | None:
    """The family that a preset names: one of ours, or a file beside it."""
    named = table.text(key)
    if not named:
        table.refuse(f"{table.source} names no family, and has no stack of blocks", help=_HELP)
    elif named.endswith(".toml") and folder is not None:
        return read_family(Table.open(folder / named, kind=KIND, source=named), folder=folder)
    elif named in families():
        return family(named)
    else:
        table.unknown(f"there is no family `{named}`", named, families(), key)
    return None
