"""The shapes of a model's parameters from a file: a ``config.json`` of transformers, or a file that lists them.

A file of shapes is TOML or JSON. The first unit is the root, what no other unit wraps::

    name = "two matrices"

    [dims]
    tokens = 4

    [[unit]]
    name = "root"
    parameters = { "w" = [4, 3], "b" = [4] }
    split = { "w" = 0, "b" = 0 }

``split`` says the dimension that an axis which splits the hidden dimension divides. ``blocks`` may list the blocks of a unit, ``frozen``
those of its parameters that are not trained, ``idle`` those that are, and get no gradient in a step; ``dtypes`` those of another type than
``dtype`` at the top says. ``backward = false``: what the unit makes requires no gradient.

The order in which forward uses parameters is that of the file: those of the root but the last, the other units, the last one of the root.
``used = ["w", "layers.0", "b"]`` says another one; the name of a unit stands for its parameters. ``[buffers]`` says the elements of what
the model registers beside parameters, by type: ``float32 = 64``, ``dtype = 1`` where they have the type of the parameters. The order in
which the model registers parameters is that of the file, or that of ``registered``. Each of these may be ``"unknown"``. ``notes`` lists
what an answer has to say besides numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from placeproof.core import files
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.shapes import BUFFER_TYPES, WEIGHT_TYPES, Shapes, Unit, Weight
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
    kind = table.choice("dtype", names=WEIGHT_TYPES) if "dtype" in table.data else ""
    read = table.fields(
        name=Table.text,
        dtype=lambda *_: kind,
        dims=lambda table, key: _sizes(table, key, "the size of a dimension"),
        unit=lambda table, key: tuple(_unit(row, names, kind) for row in table.rows(key)),
        **dict.fromkeys(("used", "registered"), lambda table, key: None if table.data.get(key) == "unknown" else table.texts(key)),
        buffers=_buffers,
        notes=Table.texts,
    )
    units: tuple[Unit, ...] = read.pop("unit")
    del read["dtype"]
    if table.data["unit"] == []:
        table.refuse("`unit` is a list of tables, with at least one", "unit")
    learn, every = ([w.name for unit in units for w in unit.weights if w.learns or all_] for all_ in (False, True))
    used, registered = _order(table, units, "used", read["used"], learn), _order(table, units, "registered", read["registered"], every)
    name = read["name"] or Path(table.source).stem
    return table.sound(Shapes(units=units, **{**read, "name": name, "used": used, "registered": registered}))


def _order(table: Table, units: tuple[Unit, ...], key: str, said: tuple[str, ...] | None, needed: Sequence[str]) -> tuple[str, ...] | None:
    """The names of weights in the order that is said; empty where none is, None where it is not known. ``needed``: those that it names."""
    if said is None:
        return None
    parts = {unit.name: [w.name for w in unit.weights] for unit in units} | {w.name: [w.name] for unit in units for w in unit.weights}
    for name in said:
        if name not in parts:
            help = suggestion(name, parts) or "the name of a parameter, or of a unit for all of its parameters"
            table.refuse(f"`{key}` names `{name}`, which is no parameter and no unit", key, code=table.kind.unknown, help=help)
    if not said or table.problems.found:
        return ()
    order = [weight for name in said for weight in parts[name]]
    wrong = sorted({n for n, count in Counter(order).items() if count > 1} | set(needed) - set(order))
    if wrong:
        which = "parameter with a gradient" if key == "used" else "parameter"
        message = f"`{key}` names each {which} once, by itself or with its unit; wrong are {', '.join(wrong[:5])}"
        table.refuse(message, key, code="PP504", help="leave it out to have the order of the file")
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


def _unit(row: Table, names: set[tuple[str, str]], kind: str) -> Unit:
    """One unit. ``names``: those of parameters and of units so far; ``kind``: the type of parameters that say none."""
    texts = dict.fromkeys(("blocks", "frozen", "idle"), Table.texts)
    read = row.fields(
        name=Table.text,
        **dict.fromkeys(("parameters", "split", "dtypes"), Table.table),
        **texts,
        backward=lambda table, key: key not in table.data or table.flag(key),
    )
    if row.data.get("name", "") == "":
        row.refuse(f"unit {row.name} has no name", "name")
    if "parameters" not in row.data:
        row.refuse(f"unit {row.name} says no parameters", "parameters")
    _once(row, names, "unit", read["name"] or f"\0{row.name}", "name")
    shapes, split = read["parameters"], read["split"].data
    for name in shapes.data:
        _once(shapes, names, "parameter", name, name)
    for key in ("split", "dtypes", "frozen", "idle"):
        for name in read[key].data if key in ("split", "dtypes") else read[key]:
            if name not in shapes.data:
                help = suggestion(name, shapes.data) or "a parameter of the same unit"
                path = (name,) if key in ("split", "dtypes") else ()
                row.refuse(f"`{name}` is no parameter of unit {row.name}", key, *path, code=row.kind.unknown, help=help)
    for name in set(read["frozen"]) & set(read["idle"]):
        row.refuse(f"`{name}` is frozen and idle", "idle", code="PP504", help="a frozen parameter gets no gradient: leave it out here")
    types = {name: read["dtypes"].choice(name, names=WEIGHT_TYPES) for name in read["dtypes"].data}
    weights = (
        replace(weight, dtype=types.get(name, kind), trained=name not in read["frozen"], idle=name in read["idle"])
        for name in shapes.data
        if (weight := _weight(row, name, shapes.data[name], split.get(name)))
    )
    return Unit(name=read["name"], weights=tuple(weights), blocks=read["blocks"], backward=read["backward"])


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
    types = Counter(w.dtype for w in shapes.weights)
    usual = "" if types[""] else max(types, key=types.__getitem__, default="")  # a type for all, which some may not have
    if usual:
        lines.append(f'dtype = "{usual}"')
    if shapes.notes:
        lines.append(f"notes = {_listed(shapes.notes)}")
    for key, order in (("used", shapes.used), ("registered", shapes.registered)):
        if order is None:
            lines.append(f'{key} = "unknown"')
        elif order:
            lines.append(f"{key} = {_listed(order)}")
    if shapes.buffers is None:
        lines.append('buffers = "unknown"')
    elif shapes.buffers:
        lines += ["", "[buffers]", *(f"{name} = {count}" for name, count in shapes.buffers)]
    if shapes.dims:
        lines += ["", "[dims]", *(f"{_quoted(name)} = {size}" for name, size in shapes.dims)]
    for unit in shapes.units:
        lines += ["", *_rendered(unit, usual)]
    return "\n".join(lines) + "\n"


def _rendered(unit: Unit, usual: str) -> list[str]:
    """The lines of a unit. ``usual``: the type of weights of which it is not said."""
    lines = ["[[unit]]", f"name = {_quoted(unit.name)}"]
    frozen, idle = [w.name for w in unit.weights if not w.trained], [w.name for w in unit.weights if w.idle]
    said = {"blocks": unit.blocks, "frozen": frozen, "idle": idle}
    lines += [f"{key} = {_listed(names)}" for key, names in said.items() if names]
    lines += [] if unit.backward else ["backward = false"]
    lines += ["[unit.parameters]", *(f"{_quoted(w.name)} = {list(w.shape)}" for w in unit.weights)]
    tables = {
        "split": [f"{_quoted(w.name)} = {w.split}" for w in unit.weights if w.split is not None],
        "dtypes": [f'{_quoted(w.name)} = "{w.dtype}"' for w in unit.weights if w.dtype and w.dtype != usual],
    }
    for key, rows in tables.items():
        lines += [f"[unit.{key}]", *rows] if rows else []
    return lines


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, but for one character that TOML wants escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
