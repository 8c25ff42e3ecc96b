"""Reading a document by a table of the settings that a system knows: every other key is a problem, every known one a reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.importers.document import Document, Path
from placeproof.importers.imported import Reading, Role

#: A value that another program fills in: nothing is known of it.
AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A setting that a system knows.

    ``name``: its tables and itself, with dots; ``*`` stands for any name. ``kinds``: ``int``, ``count`` (an integer of at least 1),
    ``number``, ``bool``, ``text``, ``list``, ``table`` (with anything in it) or one of ``choices``. ``note``: what became of it.
    """

    name: str
    kinds: tuple[str, ...]
    role: Role
    note: str
    choices: tuple[object, ...] = ()
    #: What it is if it is not said; a setting that says just that is of no matter, whatever its role.
    default: object = None


def field(name: str, kinds: str, role: Role, note: str, *choices: object, default: object = None) -> Field:
    """A row of a table; ``kinds`` with spaces between."""
    return Field(name=name, kinds=tuple(kinds.split()), role=role, note=note, choices=choices, default=default)


def alike(names: str, kinds: str, role: Role, note: str, *choices: object, default: object = None) -> tuple[Field, ...]:
    """Rows that differ in their names alone; ``names`` with spaces between."""
    return tuple(field(name, kinds, role, note, *choices, default=default) for name in names.split())


class Reader:
    """The values of a document. Problems with any of them are collected; what is wrong reads as its default."""

    def __init__(self, document: Document, fields: Iterable[Field], problems: Problems, *, auto: bool = False) -> None:
        self.document, self.problems, self.auto = document, problems, auto
        self.fields = {f.name: f for f in fields}
        self.found: dict[str, Any] = {}
        self.readings: list[Reading] = []
        self._walk(document.data, ())

    def get(self, name: str) -> Any:
        """What was said, or the default of the table. None for `auto`."""
        if name in self.found:
            return self.found[name]
        known = self._field(tuple(name.split(".")))
        assert known is not None, name
        return known.default

    def said(self, name: str) -> bool:
        """Whether the document says it, and not `auto`."""
        return self.found.get(name) is not None

    def refuse(self, name: str, message: str, help: str, code: str = "PP504") -> None:
        """A problem with a setting, at its place."""
        self.problems.add(code, message, place=self.document.place(*name.split(".")), help=help)

    def _walk(self, table: Mapping[str, Any], path: Path) -> None:
        for key, value in table.items():
            here = (*path, str(key))
            known = self._field(here)
            if known is not None:
                self._one(known, ".".join(str(p) for p in here), value, here)
            elif isinstance(value, dict) and self._inside(here):
                self._walk(value, here)
            elif self._inside(here):
                inside = self._inside(here)
                shown = ", ".join(f"`{n}`" for n in inside[:4]) + (", ..." if len(inside) > 4 else "")
                self.problems.add("PP503", f"`{key}` is a table", place=self.document.place(*here), help=f"with {shown} in it")
            else:
                self._unknown(str(key), path, here)

    def _field(self, path: Path) -> Field | None:
        names = [str(p) for p in path]
        return self.fields.get(".".join(names)) or self.fields.get(".".join([*names[:-1], "*"]))

    def _inside(self, path: Path) -> list[str]:
        """The names that a table may have."""
        before = ".".join(str(p) for p in path) + "."
        return sorted({name[len(before) :].split(".")[0] for name in self.fields if name.startswith(before)})

    def _unknown(self, key: str, path: Path, here: Path) -> None:
        known = self._inside(path) if path else sorted({name.split(".")[0] for name in self.fields})
        where = f" of `{'.'.join(str(p) for p in path)}`" if path else ""
        elsewhere = sorted(name for name in self.fields if name.split(".")[-1] == key)
        hint = suggestion(key, known) or (
            f"there is `{elsewhere[0]}`" if elsewhere else "check its spelling against the system's reference"
        )
        self.problems.add("PP502", f"`{key}` is no setting{where}", place=self.document.place(*here), help=hint)

    def _one(self, known: Field, name: str, value: Any, here: Path) -> None:
        if self.auto and value == AUTO:
            self.found[name] = None
            self.readings.append(self._reading(name, value, known.role, "filled in by the trainer: kept open"))
            return
        read = _fits(known, value)
        if read is _NO:
            expects = " or ".join([*_shown(known.kinds), *(f"`{c}`" for c in known.choices)])
            message = f"`{name}` is {expects}, not {value!r}"
            self.problems.add("PP503", message, place=self.document.place(*here), help=known.note)
            return
        self.found[name] = read
        plain = known.role is not Role.READ and known.default is not None and read == known.default
        self.readings.append(self._reading(name, read, Role.NO_MATTER if plain else known.role, "the default" if plain else known.note))

    def _reading(self, name: str, value: Any, role: Role, note: str) -> Reading:
        return Reading(name=name, value=value, role=role, note=note, place=self.document.place(*name.split(".")))


_NO = object()
_WORDS = {
    "int": "a whole number", "count": "a whole number of at least 1", "number": "a number", "bool": "true or false", "text": "a text",
    "list": "a list", "table": "a table",
}  # fmt: skip


def _shown(kinds: Iterable[str]) -> Iterator[str]:
    return (_WORDS[k] for k in kinds)


def _fits(known: Field, value: Any) -> Any:
    """The value as one of the kinds, or :data:`_NO`. A choice is of the same type: `true` is no 1."""
    if any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in known.choices):
        return value
    for kind in known.kinds:
        read = _as(kind, value)
        if read is not _NO:
            return read
    return _NO


def _as(kind: str, value: Any) -> Any:
    match kind:
        case "bool":
            return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower(), _NO)
        case "int" | "count":
            number = _number(value)
            whole = number is not None and number.denominator == 1 and (kind == "int" or number >= 1)
            return int(number) if whole and number is not None else _NO
        case "number":
            return (
                value if isinstance(value, int | float) and not isinstance(value, bool) else _NO if _number(value) is None else float(value)
            )
        case "text":
            return value if isinstance(value, str) else _NO
        case "list":
            return value if isinstance(value, list) else [value] if isinstance(value, str | int | float) else _NO
        case "table":
            return value if isinstance(value, dict) else _NO
    raise AssertionError(kind)


def _number(value: Any) -> Fraction | None:
    """A number of a file (5e8 counts as whole), or one written as a text on a command line."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return Fraction(str(value)) if not isinstance(value, float) else Fraction(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
