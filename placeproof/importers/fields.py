"""Reading a document by a table of the settings that a system knows: every other key is a problem, every known one a reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isfinite
from types import MappingProxyType
from typing import Any

from placeproof.core.diagnostics import MOST, Problems, suggestion
from placeproof.core.places import KeyPath
from placeproof.importers.document import Document
from placeproof.importers.imported import Note, Reading, Role

#: A value that another program fills in: nothing is known of it.
AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A setting that a system knows.

    ``name``: its tables and itself, with dots; ``*`` stands for any name. ``kinds``: those of :data:`KINDS`, or one of ``choices``.
    ``note``: what became of it. ``also``: other names of the same setting.
    """

    name: str
    kinds: tuple[str, ...]
    role: Role
    note: str
    choices: tuple[object, ...] = ()
    #: What it is if it is not said; a setting that says just that is of no matter, whatever its role.
    default: object = None
    also: tuple[str, ...] = ()
    #: The rule of a system that allows no other values.
    rule: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All names of it."""
        return (self.name, *self.also)


class Reader:
    """The values of a document. Problems with any of them are collected; what is wrong reads as its default.

    ``auto``: a value may be left to another program. ``passed_over``: in these tables the system looks settings up by their names: what it
    does not know it passes over, and says nothing. The outermost table is ``""``. ``as_written``: a value there it takes as it is, a
    text as no number. ``unread``: tables of which the system reads no more than whether they are ``enabled``, and why.
    """

    def __init__(
        self,
        document: Document,
        fields: Iterable[Field],
        problems: Problems,
        *,
        auto: bool = False,
        passed_over: Iterable[str] = (),
        as_written: bool = True,
        unread: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.document, self.problems, self.auto, self.as_written = document, problems, auto, as_written
        self.passed_over, self.unread = frozenset(passed_over), unread
        rows = tuple(fields)
        self.fields = {name: row for row in rows for name in row.names}
        self._looked_up = 0
        self._tables: dict[str, set[str]] = {}
        for name in self.fields:
            parts = name.split(".")
            for depth in range(len(parts)):
                self._tables.setdefault(".".join(parts[:depth]), set()).add(parts[depth])
        self.found: dict[str, Any] = {}
        self.readings: list[Reading] = []
        #: Settings whose values are left to another program.
        self.open: set[str] = set()
        #: What became of settings, in place of the notes of their rows.
        self.notes: dict[str, Note] = {}
        self._walk(document.data, ())
        for known in rows:
            first, *others = [name for name in known.names if name in self.found] or [""]
            for name in others:
                message, place = f"`{name}` and `{first}` are one setting, said twice", document.place(*name.split("."))
                problems.add("PP502", message, place=place, help="say it once, under the name that your version knows")

    def name(self, name: str) -> str:
        """The name under which the document says a setting."""
        known = self._field(tuple(name.split(".")))
        return next((one for one in known.names if one in self.found), name) if known is not None else name

    def get(self, name: str) -> Any:
        """What was said, or the default of the table. None for `auto`."""
        said = self.name(name)
        if said in self.found:
            return self.found[said]
        known = self._field(tuple(name.split(".")))
        assert known is not None, name
        return known.default

    def known(self, name: str) -> bool:
        """Whether it is a setting whose value is known: neither left open nor one that it cannot have."""
        return name in self.fields and self.name(name) not in self.open and self.sound(name)

    def value(self, name: str) -> Any:
        """What it comes to: a switch that is not said is off. Raises KeyError where the value is not known."""
        if not self.known(name):
            raise KeyError(name)
        value = self.get(name)
        return False if value is None and self.fields[name].kinds == ("bool",) else value

    def note(self, name: str, text: str, role: Role | None = None, *, told: bool = False) -> None:
        """Say what became of a setting, with a role where it is not that of its row."""
        self.notes[self.name(name)] = Note(role, text, told)

    def said(self, name: str) -> bool:
        """Whether the document says it, and not `auto`."""
        return self.found.get(self.name(name)) is not None

    def sound(self, *names: str) -> bool:
        """Whether none was said with a value that it cannot have: a rule must not judge the default in its place."""
        return all(one in self.found or not self._stands(one) for name in names for one in getattr(self.fields.get(name), "names", (name,)))

    def refuse(self, name: str, message: str, help: str, code: str = "PP504", notes: tuple[str, ...] = ()) -> None:
        """A problem with a setting, at its place."""
        self.problems.add(code, message, place=self.document.place(*self.name(name).split(".")), help=help, notes=notes)

    def _stands(self, name: str) -> bool:
        """Whether the document has such a key that is read, whatever its value."""
        value: Any = {} if self.why_unread(name) else self.document.data
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return False
            value = value[part]
        return True

    def _walk(self, table: Mapping[str, Any], path: KeyPath) -> None:
        for key, value in table.items():
            here = (*path, str(key))
            known, unread = self._field(here), self.why_unread(".".join(map(str, here)))
            if unread and not isinstance(value, dict):
                name = ".".join(map(str, here))
                self.readings.append(Reading(name=name, value=value, role=Role.NO_MATTER, note=unread, place=self.document.place(*here)))
            elif unread or (isinstance(value, dict) and ".".join(map(str, here)) not in self.fields and self._inside(here)):
                self._walk(value, here)
            elif known is not None:
                self._one(known, ".".join(str(p) for p in here), value, here)
            elif inside := self._inside(here):
                shown = ", ".join(f"`{n}`" for n in inside[:4]) + (", ..." if len(inside) > 4 else "")
                self.problems.add("PP503", f"`{key}` is a table", place=self.document.place(*here), help=f"with {shown} in it")
            else:
                self._unknown(str(key), value, path, here)

    def why_unread(self, name: str) -> str:
        """Why a setting is not read; empty where it is."""
        return next((why for table, why in self.unread.items() if name.startswith(f"{table}.") and name != f"{table}.enabled"), "")

    def _field(self, path: KeyPath) -> Field | None:
        names = [str(p) for p in path]
        return self.fields.get(".".join(names)) or self.fields.get(".".join([*names[:-1], "*"]))

    def _inside(self, path: KeyPath) -> list[str]:
        """The names that a table may have."""
        return sorted(self._tables.get(".".join(str(p) for p in path), ()))

    def _unknown(self, key: str, value: Any, path: KeyPath, here: KeyPath) -> None:
        table, place = ".".join(str(p) for p in path), self.document.place(*here)
        if table in self.passed_over:
            self._looked_up += 1
            near = suggestion(key, self._inside(path)) if self._looked_up <= MOST else None
            role, note = Role.UNKNOWN, near or "check its spelling against the system's reference"
            if here in self.document.referred:
                role, note = Role.NO_MATTER, "other settings refer to it"
            self.readings.append(Reading(name=".".join(str(p) for p in here), value=value, role=role, note=note, place=place))
            return
        where = f" of `{table}`" if path else ""
        self.problems.add("PP502", f"`{key}` is no setting{where}", place=place, help=lambda: self._near(key, path))

    def _near(self, key: str, path: KeyPath) -> str:
        elsewhere = sorted(known.name for name, known in self.fields.items() if name.split(".")[-1] == key)
        plain = key.removeprefix("no_")  # a flag that is told not to be
        if plain in self._inside(path):
            return f"there is `{plain}`: leave it out where it is not wanted"
        return suggestion(key, self._inside(path)) or (
            f"there is `{elsewhere[0]}`" if elsewhere else "check its spelling against the system's reference"
        )

    def _one(self, known: Field, name: str, value: Any, path: KeyPath) -> None:
        left = self.document.open.get(name)
        if left is not None or (self.auto and value == AUTO):
            self.found[name] = None
            self.open.add(name)
            note = "filled in by the trainer: kept open" if left is None else f"{left}; {known.note}"
            self.readings.append(self._reading(name, value, known.role, note))
            return
        literal = self.document.typed or (self.as_written and name.rpartition(".")[0] in self.passed_over)
        text = literal and isinstance(value, str) and "text" not in known.kinds
        read = _NO if text and value not in known.choices else _fits(known, value)
        if read is _NO:
            expects = " or ".join(dict.fromkeys([*(KINDS[kind] for kind in known.kinds), *(f"`{c}`" for c in known.choices)]))
            shown = repr(value)
            message = f"`{name}` is {expects}, not {shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '...'}"
            if value is True and self.document.bare:
                message = f"`{name}` has no value: it is {expects}"
            notes = (f"`placeproof explain {known.rule}`",) if known.rule else ()
            self.problems.add("PP503", message, place=self.document.place(*path), help=known.note, notes=notes)
            return
        self.found[name] = read
        plain = known.role is not Role.READ and known.default is not None and read == known.default
        self.readings.append(self._reading(name, read, Role.NO_MATTER if plain else known.role, "the default" if plain else known.note))

    def _reading(self, name: str, value: Any, role: Role, note: str) -> Reading:
        again = any(f"{name}.".startswith(f"{one}.") for one in self.document.again)
        shown = f"given more than once, and the last counts; {note}" if again else note
        return Reading(name=name, value=value, role=role, note=shown, place=self.document.place(*name.split(".")), told=again)


_NO = object()
#: What a value may be. Numbers are finite; what may be infinite has a kind for that.
KINDS = {
    "int": "a whole number",
    "size": "a whole number of at least 0",
    "count": "a whole number of at least 1",
    "number": "a number",
    "amount": "a number of at least 0",
    "positive": "a number above 0",
    "fraction": "a number from 0 to 1",
    "infinity": "infinity",
    "bool": "true or false",
    "text": "a text",
    "list": "a list",
    "table": "a table",
    "null": "null",
}
#: What the kinds of numbers ask of one.
_DOMAINS: dict[str, Callable[[Fraction], bool]] = {
    "int": lambda n: n.denominator == 1,
    "size": lambda n: n.denominator == 1 and n >= 0,
    "count": lambda n: n.denominator == 1 and n >= 1,
    "number": isfinite,
    "amount": lambda n: n >= 0,
    "positive": lambda n: n > 0,
    "fraction": lambda n: 0 <= n <= 1,
}
_WHOLE = ("int", "size", "count")
#: Characters of a wrong value that are shown.
_LONGEST = 60


def fits(kind: str, value: Any) -> bool:
    """Whether a value is of one of :data:`KINDS`."""
    return not (isinstance(value, float) and not isfinite(value)) and _as(kind, value) is not _NO


def _fits(known: Field, value: Any) -> Any:
    """The value as one of the kinds, or :data:`_NO`. A choice is of the same type: `true` is no 1."""
    if isinstance(value, float) and not isfinite(value):
        return value if value == inf and "infinity" in known.kinds else _NO
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
        case "text":
            return value if isinstance(value, str) else _NO
        case "list":
            return value if isinstance(value, list) else [value] if isinstance(value, str | int | float) else _NO
        case "table":
            return value if isinstance(value, dict) else _NO
        case "null":
            return value if value is None else _NO
        case "infinity":
            return inf if str(value).strip().lower().removeprefix("+") in ("inf", "infinity") else _NO
    number = _number(value)
    if number is None or not _DOMAINS[kind](number):
        return _NO
    return int(number) if kind in _WHOLE else value if isinstance(value, int | float) else float(value)


def _number(value: Any) -> Fraction | None:
    """A number of a file (5e8 counts as whole), or one written as a text on a command line. None for what is not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        if not isfinite(float(value)):
            return None
        return Fraction(
            int(value) if isinstance(value, int) or (isinstance(value, str) and value.strip().lstrip("+-").isdigit()) else float(value)
        )
    except (ValueError, OverflowError):  # also a number beyond what a float holds, which an exponent writes in few characters
        return None
