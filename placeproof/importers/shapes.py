"""The shapes of a model's parameters from a file: a ``config.json`` of transformers, or a file that lists them.

A file of shapes is TOML or JSON. The first unit is the root, what no other unit wraps::

    name = "two matrices"

    [dims]
    tokens = 4

    [[unit]]
    name = "root"
    parameters = { "w" = [4, 3], "b" = [4] }
    split = { "w" = 0, "b" = 0 }

``split`` says the dimension that an axis which splits the hidden dimension divides. ``blocks`` may list the blocks of a unit.

The order in which forward uses parameters is that of the file: those of the root but the last, the other units, the last one of the root.
``used = ["w", "layers.0", "b"]`` says another one; the name of a unit stands for its parameters. ``[buffers]`` says the elements of what
the model registers beside parameters, by type: ``float32 = 64``, ``dtype = 1`` where they have the type of the parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from placeproof.core import files
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.places import toml_place
from placeproof.core.shapes import BUFFER_TYPES, Shapes, Unit, Weight
from placeproof.importers.document import Document, read_document
from placeproof.importers.imported import ImportedShapes
from placeproof.importers.systems import MODEL_TYPE

_TOP = ("name", "dims", "unit", "used", "buffers")
_KEYS = ("name", "parameters", "split", "blocks")
_HELP = 'a unit is `[[unit]]` with `name = "..."` and `parameters = { "w" = [4, 3] }`'


def read_shapes(path: str | Path) -> Shapes:
    """The shapes that a file says: a model's ``config.json``, or a list of parameters. Raises InputError with every problem of the file."""
    return import_shapes(path).shapes


def import_shapes(path: str | Path) -> ImportedShapes:
    """The same with what became of each setting. Raises InputError."""
    source, problems = str(path), Problems()
    kind = {".json": "json", ".toml": "toml"}.get(Path(source).suffix.lower())
    if kind is None:
        problems.add("PP501", f"`{source}` is no file of shapes: its name ends in .json or .toml", help="give a model's config.json")
        problems.raise_if_any()
    text = files.read_text(source, code="PP501", help="give the path of a readable file of shapes")
    return parse_shapes(text, kind=str(kind), source=source)


def parse_shapes(text: str, *, kind: str, source: str = "<shapes>") -> ImportedShapes:
    """What a text says; ``kind``: ``json`` or ``toml``. Raises InputError with every problem of the text."""
    problems = Problems()
    document = read_document(text, source, kind, problems)
    if MODEL_TYPE in document.data and kind == "json":
        from placeproof.importers.huggingface import reader as huggingface

        return huggingface.read(document, problems)
    if "unit" not in document.data:
        known = f"`{MODEL_TYPE}`, as a model's configuration has, nor `unit`, as a list of parameters"
        place = Place(source=source, line=1, column=1, text=(text.splitlines() or [""])[0])
        problems.add("PP501", f"this says no shapes: there is neither {known}", place=place, help=_HELP)
        problems.raise_if_any()
    shapes = _Reader(document=document, problems=problems).shapes()
    problems.raise_if_any()
    return ImportedShapes(kind="", source=source, shapes=shapes)


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 1


@dataclass(slots=True)
class _Reader:
    """Reads a list of parameters; problems are collected, and what is wrong is left out."""

    document: Document
    problems: Problems
    #: Names of parameters and of units so far.
    seen: set[tuple[str, str]] = field(default_factory=set)

    def shapes(self) -> Shapes:
        data = self.document.data
        self._known(data, _TOP)
        units = data["unit"]
        if not isinstance(units, list) or not units or not all(isinstance(unit, dict) for unit in units):
            self._refuse("PP503", "`unit` is a list of tables, with at least one", ("unit",), _HELP)
            units = []
        made = tuple(self._unit(unit, number) for number, unit in enumerate(units))
        return Shapes(
            name=self._text(data, ("name",)) or Path(self.document.source).stem,
            units=made,
            dims=tuple(self._sizes(data, "dims", "the size of a dimension")),
            used=self._used(made),
            buffers=self._buffers(data),
        )

    def _used(self, units: tuple[Unit, ...]) -> tuple[str, ...]:
        """The names of all weights in the order that is said; empty where none is."""
        said = self.document.data.get("used", [])
        parts = {unit.name: [w.name for w in unit.weights] for unit in units} | {w.name: [w.name] for unit in units for w in unit.weights}
        if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
            self._refuse("PP503", f"`used` is a list of texts, not {said!r}", ("used",), "names of parameters, and of units for theirs")
            return ()
        for name in said:
            if name not in parts:
                help = suggestion(name, parts) or "the name of a parameter, or of a unit for all of its parameters"
                self._refuse("PP502", f"`used` names `{name}`, which is no parameter and no unit", ("used",), help)
        if not said or self.problems.found:
            return ()
        found = [name for one in said for name in parts.get(one, ())]
        every = [w.name for unit in units for w in unit.weights]
        if sorted(found) != sorted(every):
            wrong = sorted({n for n in found if found.count(n) > 1} | set(every) - set(found))
            message = f"`used` names each parameter once, by itself or with its unit; wrong are {', '.join(wrong[:5])}"
            self._refuse("PP504", message, ("used",), "leave it out to have the order of the file")
        return tuple(found)

    def _buffers(self, data: Mapping[str, Any]) -> tuple[tuple[str, int], ...] | None:
        if data.get("buffers") == "unknown":
            return None
        for name in self._table(data, ("buffers",)):
            if name not in BUFFER_TYPES:
                help = suggestion(name, BUFFER_TYPES) or "one of " + ", ".join(BUFFER_TYPES)
                self._refuse("PP502", f"`{name}` is no type of buffers", ("buffers", name), help)
        return tuple(self._sizes(data, "buffers", "how many elements buffers of this type have"))

    def _refuse(self, code: str, message: str, path: tuple[str | int, ...], help: str) -> None:
        self.problems.add(code, message, place=place(self.document, path), help=help)

    def _known(self, table: Mapping[str, Any], known: tuple[str, ...], *path: str | int) -> None:
        for key in table:
            if key not in known:
                hint = suggestion(key, known) or "one of " + ", ".join(f"`{k}`" for k in known)
                where = "a unit" if path else "a file of shapes"
                self._refuse("PP502", f"`{key}` is no key of {where}", (*path, key), hint)

    def _text(self, table: Mapping[str, Any], path: tuple[str | int, ...]) -> str:
        value = table.get(str(path[-1]), "")
        if isinstance(value, str):
            return value
        self._refuse("PP503", f"`{path[-1]}` is a text, not {value!r}", path, "write it in quotes")
        return "?"

    def _table(self, table: Mapping[str, Any], path: tuple[str | int, ...]) -> Mapping[str, Any]:
        value = table.get(str(path[-1]), {})
        if isinstance(value, dict):
            return value
        self._refuse("PP503", f"`{path[-1]}` is a table, not {value!r}", path, "names, each with its value")
        return {}

    def _sizes(self, data: Mapping[str, Any], key: str, help: str) -> Iterator[tuple[str, int]]:
        for name, size in self._table(data, (key,)).items():
            if _is_size(size):
                yield name, size
            else:
                self._refuse("PP503", f"`{name}` is a whole number of at least 1, not {size!r}", (key, name), help)

    def _unit(self, unit: Mapping[str, Any], number: int) -> Unit:
        here = ("unit", number)
        self._known(unit, _KEYS, *here)
        name = self._text(unit, (*here, "name"))
        if not name:
            self._refuse("PP503", f"unit {number} has no name", (*here, "name"), _HELP)
        self._once("unit", name or f"\0{number}", (*here, "name"))
        if "parameters" not in unit:
            self._refuse("PP503", f"unit {number} says no parameters", (*here, "parameters"), _HELP)
        splits = dict(self._table(unit, (*here, "split")))
        weights = tuple(self._weights(self._table(unit, (*here, "parameters")), splits, here))
        for left in splits:
            help = suggestion(left, unit.get("parameters", ())) or "a parameter of the same unit"
            self._refuse("PP502", f"`{left}` is no parameter of unit {number}", (*here, "split", left), help)
        return Unit(name=name, weights=weights, blocks=self._blocks(unit, here))

    def _weights(self, table: Mapping[str, Any], splits: dict[str, Any], here: tuple[str | int, ...]) -> Iterator[Weight]:
        for name, shape in table.items():
            split = splits.pop(name, None)
            if not name:
                self._refuse("PP503", "a parameter has an empty name", (*here, "parameters"), "name it as the model does")
            self._once("parameter", name, (*here, "parameters", name))
            if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
                message = f"the shape of `{name}` is a list of whole numbers of at least 1, not {shape!r}"
                self._refuse("PP503", message, (*here, "parameters", name), "the sizes of its dimensions, as in [4, 3]")
            elif split is not None and (type(split) is not int or not 0 <= split < len(shape)):
                message = f"`{name}` has {len(shape)} dimensions, and is split along {split!r}"
                self._refuse("PP504", message, (*here, "split", name), "dimensions count from 0; leave out what is not split")
            else:
                yield Weight(name=name, shape=tuple(shape), split=split)

    def _once(self, what: str, name: str, path: tuple[str | int, ...]) -> None:
        if (what, name) in self.seen:
            self._refuse("PP502", f"the {what} `{name}` is there twice", path, "each has a name of its own; tied weights count once")
        self.seen.add((what, name))

    def _blocks(self, unit: Mapping[str, Any], here: tuple[str | int, ...]) -> tuple[str, ...]:
        value = unit.get("blocks", [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self._refuse("PP503", f"`blocks` is a list of texts, not {value!r}", (*here, "blocks"), "names of blocks")
        return ()


def place(document: Document, path: tuple[str | int, ...]) -> Place | None:
    """Where a key stands; in TOML a number counts the tables of one name."""
    if document.spans or len(path) < 2 or not isinstance(path[1], int):
        return document.place(*path)
    lines, starts = document.lines, _starts(document.text, str(path[0]))
    if path[1] >= len(starts):
        return document.place(str(path[0]))
    first = starts[path[1]]
    end = starts[path[1] + 1] if path[1] + 1 < len(starts) else len(lines)
    keys = tuple(part for key in path[2:] for part in str(key).split("."))
    found = toml_place("\n".join(lines[first:end]), document.source, (str(path[0]), *keys))
    if found is None:
        return None
    at = found.text.find(str(path[-1]))
    moved = replace(found, line=found.line + first)
    return moved if at < 0 else replace(moved, column=at + 1, length=len(str(path[-1])))


@lru_cache(maxsize=8)
def _starts(text: str, name: str) -> tuple[int, ...]:
    """The lines where the tables of one name begin, from 0."""
    return tuple(n for n, line in enumerate(text.splitlines()) if re.match(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]", line))


def render_shapes(shapes: Shapes) -> str:
    """Shapes as the TOML that :func:`read_shapes` reads back. Names are those of the shapes, and must not come twice."""
    lines = [f"name = {_quoted(shapes.name)}"]
    if shapes.used:
        lines.append(f"used = [{', '.join(_quoted(name) for name in shapes.used)}]")
    if shapes.buffers is None:
        lines.append('buffers = "unknown"')
    elif shapes.buffers:
        lines += ["", "[buffers]", *(f"{name} = {count}" for name, count in shapes.buffers)]
    if shapes.dims:
        lines += ["", "[dims]", *(f"{_quoted(name)} = {size}" for name, size in shapes.dims)]
    for unit in shapes.units:
        lines += ["", "[[unit]]", f"name = {_quoted(unit.name)}"]
        if unit.blocks:
            lines.append(f"blocks = [{', '.join(_quoted(block) for block in unit.blocks)}]")
        lines += ["[unit.parameters]", *(f"{_quoted(w.name)} = {list(w.shape)}" for w in unit.weights)]
        split = [f"{_quoted(w.name)} = {w.split}" for w in unit.weights if w.split is not None]
        lines += ["[unit.split]", *split] if split else []
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, but for one character that TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
