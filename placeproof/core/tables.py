"""Tables of files, read key by key: every problem is collected with its place and a remedy."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from placeproof.core import files
from placeproof.core.bounds import A_COUNT, is_count, too_long
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.places import KeyPath, toml_fault, toml_place

T = TypeVar("T")
#: What reads the value of a key.
Reader: TypeAlias = "Callable[[Table, str], Any]"


def _nowhere(path: KeyPath) -> None:
    """The place of what is in no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A kind of file. ``noun``: what one is called. ``manual``: where it is described, the remedy of a problem that has none of its own.
    ``json``: it is JSON, and no TOML.

    The codes of what may be wrong with one: ``unreadable``, it is no TOML; ``unknown``: a key or a name; ``wrong``: a value; ``missing``:
    a key.
    """

    noun: str
    manual: str
    unreadable: str = "PP110"
    unknown: str = "PP111"
    wrong: str = "PP112"
    missing: str = "PP113"
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a file. ``path``: the keys that lead to it. What is wrong is added to ``problems``, and something usable is returned.

    ``locate``: where a key stands, by the path to it. Numbers with a point are exact decimals in a table that was read from TOML.
    """

    data: Mapping[str, Any]
    kind: FileKind
    source: str
    locate: Callable[[KeyPath], Place | None] = _nowhere
    problems: Problems = field(default_factory=Problems)
    path: KeyPath = ()

    @classmethod
    def read(cls, content: str, *, kind: FileKind, source: str) -> Table:
        """A whole file of TOML. Raises InputError where the text is none."""
        problems = Problems()
        try:
            data = tomllib.loads(content, parse_float=_decimal)
        except (ValueError, RecursionError) as error:  # a number that is too long is a ValueError of Python's own
            message, place = toml_fault(error, content, source)
            problems.add(kind.unreadable, f"this is not TOML: {message}", place=place, help=kind.manual)
            problems.raise_if_any()
        return cls(data=data, kind=kind, source=source, locate=partial(toml_place, content, source), problems=problems)

    @classmethod
    def open(cls, path: str | Path, *, kind: FileKind, source: str = "") -> Table:
        """A file of TOML; ``source``: its name in messages, where that is not its path. Raises InputError where it cannot be read."""
        content = files.read_text(path, code=kind.unreadable, help="give the path of a readable TOML file")
        return cls.read(content, kind=kind, source=source or str(path))

    def sound(self, made: T) -> T:
        """What was made of the file. Raises InputError with all that is wrong with it."""
        self.problems.raise_if_any()
        return made

    # Problems.

    @property
    def name(self) -> str:
        """The last name that leads to it."""
        return str(self.path[-1])

    @property
    def header(self) -> str:
        """How it begins in its file, such as ``[axes.dp]``, or its name in JSON; empty for the whole file."""
        names = ".".join(key for key in self.path if isinstance(key, str))
        if self.kind.json or not self.path:
            return names
        return f"[[{names}]]" if isinstance(self.path[-1], int) else f"[{names}]"

    def line(self, key: str, value: str) -> str:
        """How a key is written with a value."""
        return f'`"{key}": {value}`' if self.kind.json else f"`{key} = {value}`"

    def place(self, *keys: str | int) -> Place | None:
        """Where a key of this table stands, or the table."""
        return self.locate((*self.path, *keys))

    def refuse(self, message: str, *keys: str | int, code: str = "", help: str | Callable[[], str] = "") -> None:
        """Record a problem at a key of this table, or at the table; ``code``: that of a wrong value where none is given."""
        self.problems.add(code or self.kind.wrong, message, place=self.place(*keys), help=help or self.kind.manual)

    def missing(self, key: str, value: str = "...") -> None:
        """Record a key that has to be there."""
        where = f" in `{self.header}`" if self.path else ""
        help = f"add {self.line(key, value)}{where or f' at the top of {self.source}'}"
        self.refuse(f"`{key}` is missing{where}", key, code=self.kind.missing, help=help)

    def unknown(self, message: str, name: str, names: Collection[str], *keys: str | int, code: str = "") -> None:
        """Record a name that is not among those that may stand there."""
        self.refuse(message, *keys, code=code or self.kind.unknown, help=lambda: suggestion(name, names) or one_of(names))

    def known(self, keys: Collection[str], noun: str = "") -> None:
        """Refuse every other key; ``noun``: what keys are, where they are no keys of every such file."""
        noun = noun or f"key of {f'`{self.header}`' if self.path else self.kind.noun}"
        for key in self.data:
            if key not in keys:
                self.unknown(f"`{key}` is no {noun}", key, keys, key)

    # Values.

    def fields(self, **readers: Reader) -> dict[str, Any]:
        """The value of each key by its reader; every other key is refused."""
        self.known(readers)
        return {key: read(self, key) for key, read in readers.items()}

    def record(self, made: Callable[..., T], given: Mapping[str, Any] = MappingProxyType({}), /, **readers: Reader) -> T:
        """A dataclass whose fields are the keys of this table, but for those that are ``given``; other keys are refused.

        Each is read by its reader, or else as its type says: a text, a list of texts, a count. Texts without a default have to be said.
        """
        own = [one for one in fields(made) if one.name not in given]  # type: ignore[arg-type]
        self.known([one.name for one in own])
        values = dict(given)
        for one in own:
            needed = one.default is MISSING and one.default_factory is MISSING
            if needed or one.name in self.data:
                read = readers.get(one.name) or (_REQUIRED if needed else _READERS)[one.type]
                values[one.name] = read(self, one.name)
        return made(**values)

    def value(self, key: str, test: Callable[[Any], bool], what: str, *, help: str = "") -> Any:
        """A value that passes a test, which is ``what`` in words; None where it is not said, or refused."""
        if key not in self.data or test(self.data[key]):
            return self.data.get(key)
        self.refuse(f"`{key}` is {what}, not {shown(self.data[key])}", key, help=help)
        return None

    def text(self, key: str) -> str:
        """A text; empty where it is not said."""
        return self.value(key, lambda value: isinstance(value, str), "a text", help="write " + self.line(key, '"..."')) or ""

    def required(self, key: str) -> str:
        """A text that has to be said."""
        if self.data.get(key, "") == "":
            self.missing(key, '"..."')
        return self.text(key)

    def required_texts(self, key: str) -> tuple[str, ...]:
        """A list of texts that has to be said, and is not empty."""
        if self.data.get(key, []) == []:
            self.missing(key, '["..."]')
        return self.texts(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty where it is not said."""
        return tuple(self.value(key, _are_texts, "a list of texts", help="write " + self.line(key, '["..."]')) or ())

    def choice(self, key: str, names: Collection[str], default: str = "", *, noun: str = "") -> str:
        """One of some names, each a ``noun``; the default where another is said, or none. Without a default one has to be said."""
        value = self.text(key) if default else self.required(key)
        if not value or value in names:
            return value or default
        self.unknown(f"`{value}` is no {noun or key}", value, names, key, code=self.kind.wrong)
        return default

    def flag(self, key: str) -> bool:
        """True or false; false where it is not said."""
        return self.value(key, lambda value: isinstance(value, bool), "true or false") or False

    def count(self, key: str) -> int | None:
        """A whole number of at least 1; None where it is not said."""
        number: int | None = self.value(key, is_count, A_COUNT)
        return number

    def parsed(
        self, key: str, read: Callable[[str], T], default: str = "0", *, required: bool = False, numbers: bool = False, help: str = ""
    ) -> T:
        """What is read of a text. ``read`` raises ValueError for a text that it does not understand; it understands the default.

        ``numbers``: a whole number may stand there without quotes.
        """
        value = self.data.get(key, default)
        if required and key not in self.data:
            self.missing(key, '"..."')
        if numbers and type(value) is int:
            value = str(value)
        try:
            if isinstance(value, str):
                return read(value)
            self.refuse(f"`{key}` is an expression in quotes, not {shown(value)}", key, help=help)
        except ValueError as error:
            self.refuse(str(error), key, help=help)
        return read(default)

    def each(self, key: str, read: Callable[[str], T]) -> tuple[T, ...]:
        """What is read of each text of a list, as by :meth:`parsed`."""
        made = []
        for text in self.texts(key):
            try:
                made.append(read(text))
            except ValueError as error:
                self.refuse(str(error), key)
        return tuple(made)

    # Tables in this one.

    def table(self, *keys: str) -> Table:
        """A table of this one; empty where it is not there."""
        inner = self
        for key in keys:
            value = inner.data.get(key, {})
            made = replace(inner, data=value if isinstance(value, Mapping) else {}, path=(*inner.path, key))
            if not isinstance(value, Mapping):
                help = inner.line(key, "{...}") if self.kind.json else f"`{made.header}` and its keys below"
                inner.refuse(f"`{key}` is a table, not {shown(value)}", key, help=f"write {help}")
            inner = made
        return inner

    def needed(self, key: str) -> Table:
        """A table that has to be there."""
        made = self.table(key)
        if key not in self.data:
            self.refuse(f"`{made.header}` is missing", key, code=self.kind.missing, help=f"add `{made.header}` to {self.source}")
        return made

    def tables(self, *keys: str) -> tuple[Table, ...]:
        """The tables in a table, whose names the author chooses."""
        outer = self.table(*keys)
        return tuple(outer.table(name) for name in outer.data)

    def rows(self, key: str) -> tuple[Table, ...]:
        """A list of tables; empty where it is not said."""
        first = replace(self, data={}, path=(*self.path, key, 0))
        help = f"write {self.line(key, '[{...}]') if self.kind.json else f'`{first.header}` before each'}"
        rows = self.value(key, _are_tables, "a list of tables", help=help) or ()
        return tuple(replace(self, data=row, path=(*self.path, key, number)) for number, row in enumerate(rows))

    def counts(self, key: str) -> dict[str, int]:
        """A table of whole numbers of at least 0; empty where it is not there."""
        inner, what = self.table(key), "a whole number of at least 0"
        return {name: inner.value(name, lambda value: type(value) is int and value >= 0, what) or 0 for name in inner.data}

    def mapping(self, key: str) -> dict[str, str]:
        """A table of texts; empty where it is not there."""
        inner = self.table(key)
        return {name: inner.required(name) for name in inner.data}


def records(made: Callable[..., T], **readers: Reader) -> Callable[[Table, str], tuple[T, ...]]:
    """What reads a list of tables as dataclasses, by :meth:`Table.record`."""
    return lambda table, key: tuple(row.record(made, **readers) for row in table.rows(key))


def one_of(names: Collection[str]) -> str:
    """The names that may stand somewhere, as a remedy."""
    return "one of " + ", ".join(f"`{name}`" for name in sorted(names)) if names else "there is none"


def shown(value: object) -> str:
    """A value as a message shows it."""
    return str(value) if isinstance(value, Decimal) else repr(value)


def _decimal(text: str) -> Decimal:
    if too_long(text):
        raise ValueError(f"the number {text[:40]} has too many digits")
    return Decimal(text)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


#: What reads a field of a type; and one that has no default.
_READERS: Mapping[Any, Reader] = {
    "str": Table.text,
    "str | None": Table.text,
    "bool": Table.flag,
    "int": Table.count,
    "tuple[str, ...]": Table.texts,
    "Mapping[str, str]": Table.mapping,
    "Mapping[str, int]": Table.counts,
}
_REQUIRED: Mapping[Any, Reader] = {**_READERS, "str": Table.required, "tuple[str, ...]": Table.required_texts}
