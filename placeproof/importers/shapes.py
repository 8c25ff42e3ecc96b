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
the model registers beside parameters, by type: ``float32 = 64``, ``dtype = 1`` where they have the type of the parameters. Either may be
``"unknown"``. ``notes`` lists what an answer has to say besides numbers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from placeproof.core import files
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.shapes import BUFFER_TYPES, Shapes, Unit, Weight
from placeproof.core.tables import FileKind, Table, shown
from placeproof.importers.document import read_document
from placeproof.importers.imported import ImportedShapes
from placeproof.importers.systems import MODEL_TYPE

_HELP = 'a unit is `[[unit]]` with `name = "..."` and `parameters = { "w" = [4, 3] }`'
_TOML = FileKind(noun="a file of shapes", manual=_HELP, unreadable="PP501", unknown="PP502", wrong="PP503", missing="PP503")
_KINDS = {"toml": _TOML, "json": replace(_TOML, json=True)}


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
    table = Table(data=document.data, kind=_KINDS[kind], source=source, locate=lambda path: document.place(*path), problems=problems)
    return ImportedShapes(kind="", source=source, shapes=_shapes(table))


def _shapes(table: Table) -> Shapes:
    """The shapes of a list of parameters. Raises InputError with every problem of the file."""
    names: set[tuple[str, str]] = set()
    read = table.fields(
        name=Table.text,
        dims=lambda table, key: _sizes(table, key, "the size of a dimension"),
        unit=lambda table, key: tuple(_unit(row, names) for row in table.rows(key)),
        used=lambda table, key: None if table.data.get(key) == "unknown" else table.texts(key),
        buffers=_buffers,
        notes=Table.texts,
    )
    units: tuple[Unit, ...] = read.pop("unit")
    if table.data["unit"] == []:
        table.refuse("`unit` is a list of tables, with at least one", "unit")
    used = None if read["used"] is None else _order(table, units, read["used"])
    return table.sound(Shapes(units=units, **{**read, "name": read["name"] or Path(table.source).stem, "used": used}))


def _order(table: Table, units: tuple[Unit, ...], used: tuple[str, ...]) -> tuple[str, ...]:
    """The names of all weights in the order that is said; empty where none is."""
    parts = {unit.name: [w.name for w in unit.weights] for unit in units} | {w.name: [w.name] for unit in units for w in unit.weights}
    for name in used:
        if name not in parts:
            help = suggestion(name, parts) or "the name of a parameter, or of a unit for all of its parameters"
            table.refuse(f"`used` names `{name}`, which is no parameter and no unit", "used", code=table.kind.unknown, help=help)
    if not used or table.problems.found:
        return ()
    order = [weight for name in used for weight in parts[name]]
    every = [w.name for unit in units for w in unit.weights]
    if sorted(order) != sorted(every):
        wrong = sorted({n for n in order if order.count(n) > 1} | set(every) - set(order))
        message = f"`used` names each parameter once, by itself or with its unit; wrong are {', '.join(wrong[:5])}"
        table.refuse(message, "used", code="PP504", help="leave it out to have the order of the file")
    return tuple(order)


def _buffers(table: Table, key: str) -> tuple[tuple[str, int], ...] | None:
    if table.data.get(key) == "unknown":
        return None
    table.table(key).known(BUFFER_TYPES, "type of buffers")
    return _sizes(table, key, "how many elements buffers of this type have")


def _sizes(table: Table, key: str, help: str) -> tuple[tuple[str, int], ...]:
    inner = table.table(key)
    return tuple((name, inner.value(name, _is_size, "a whole number of at least 1", help=help)) for name in inner.data)


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 1


def _unit(row: Table, names: set[tuple[str, str]]) -> Unit:
    """One unit. ``names``: those of parameters and of units so far."""
    read = row.fields(name=Table.text, parameters=Table.table, split=Table.table, blocks=Table.texts)
    if row.data.get("name", "") == "":
        row.refuse(f"unit {row.name} has no name", "name")
    if "parameters" not in row.data:
        row.refuse(f"unit {row.name} says no parameters", "parameters")
    _once(row, names, "unit", read["name"] or f"\0{row.name}", "name")
    shapes, split = read["parameters"], read["split"].data
    for name in shapes.data:
        _once(shapes, names, "parameter", name, name)
    for name in split:
        if name not in shapes.data:
            help = suggestion(name, shapes.data) or "a parameter of the same unit"
            row.refuse(f"`{name}` is no parameter of unit {row.name}", "split", name, code=row.kind.unknown, help=help)
    weights = tuple(weight for name in shapes.data if (weight := _weight(row, name, shapes.data[name], split.get(name))))
    return Unit(name=read["name"], weights=weights, blocks=read["blocks"])


def _weight(unit: Table, name: str, shape: object, split: object) -> Weight | None:
    if not name:
        unit.refuse("a parameter has an empty name", "parameters", help="name it as the model does")
    if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
        message = f"the shape of `{name}` is a list of whole numbers of at least 1, not {shown(shape)}"
        unit.refuse(message, "parameters", name, help="the sizes of its dimensions, as in [4, 3]")
        return None
    if split is not None and (type(split) is not int or not 0 <= split < len(shape)):
        message = f"`{name}` has {len(shape)} dimensions, and is split along {shown(split)}"
        unit.refuse(message, "split", name, code="PP504", help="dimensions count from 0; leave out what is not split")
        return None
    return Weight(name=name, shape=tuple(shape), split=split)


def _once(table: Table, names: set[tuple[str, str]], what: str, name: str, key: str) -> None:
    if (what, name) in names:
        help = "each has a name of its own; tied weights count once"
        table.refuse(f"the {what} `{name}` is there twice", key, code=table.kind.unknown, help=help)
    names.add((what, name))


def render_shapes(shapes: Shapes) -> str:
    """Shapes as the TOML that :func:`read_shapes` reads back. Names are those of the shapes, and must not come twice."""
    lines = [f"name = {_quoted(shapes.name)}"]
    if shapes.notes:
        lines.append(f"notes = [{', '.join(_quoted(note) for note in shapes.notes)}]")
    if shapes.used is None:
        lines.append('used = "unknown"')
    elif shapes.used:
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
