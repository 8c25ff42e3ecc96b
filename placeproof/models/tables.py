"""Tables of a TOML file, read key by key: every problem is collected with its place and a remedy."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.places import toml_fault, toml_place
from placeproof.models.expressions import Expression, expression

_ONE = expression("1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a file. ``path``: the keys that lead to it. What is wrong is added to ``problems``, and something usable is returned."""

    data: Mapping[str, Any]
    source: str
    content: str
    problems: Problems = field(default_factory=Problems)
    path: tuple[str, ...] = ()

    @classmethod
    def read(cls, content: str, *, source: str) -> Table:
        """A whole file. Raises InputError where the text is no TOML."""
        problems = Problems()
        try:
            data = tomllib.loads(content)
        except (ValueError, RecursionError) as error:  # a number that is too long is a ValueError of Python's own
            message, place = toml_fault(error, content, source)
            problems.add("PP501", f"this is not TOML: {message}", place=place, help="mend that line")
            problems.raise_if_any()
            raise AssertionError("unreachable") from error
        return cls(data=data, source=source, content=content, problems=problems)

    def refuse(self, code: str, message: str, *keys: str, help: str) -> None:
        """Record a problem at a key of this table, or at the table."""
        self.problems.add(code, message, place=toml_place(self.content, self.source, (*self.path, *keys)), help=help)

    def unknown(self, message: str, name: str, names: Iterable[str], *keys: str, code: str = "PP502") -> None:
        """Record a name that is not among those that may stand there."""
        listed = "one of " + ", ".join(f"`{n}`" for n in sorted(names))
        self.refuse(code, message, *keys, help=suggestion(name, names) or listed)

    def known(self, keys: Collection[str]) -> None:
        """Refuse every other key."""
        for key in self.data:
            if key not in keys:
                self.unknown(f"`{key}` is no key here", key, keys, key)

    def text(self, key: str, *, required: bool = False) -> str:
        """A text; empty where it is not said."""
        value: object = self.data.get(key, "")
        if not isinstance(value, str):
            self.refuse("PP503", f"`{key}` is a text, not {value!r}", key, help=f'write `{key} = "..."`')
            return ""
        if required and not value:
            self.refuse("PP503", f"`{key}` is missing in {self.source}", key, help=f'add `{key} = "..."`')
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty where it is not said."""
        value = self.data.get(key, [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.refuse("PP503", f"`{key}` is a list of texts, not {value!r}", key, help=f'write `{key} = ["..."]`')
        return ()

    def table(self, *keys: str) -> Table:
        """A table of this one; empty where it is not there."""
        value: Any = self.data
        for number, key in enumerate(keys, start=1):
            value = value.get(key, {})
            if not isinstance(value, dict):
                shown = ".".join((*self.path, *keys[:number]))
                self.refuse("PP503", f"`{key}` is a table, not {value!r}", *keys[:number], help=f"write `[{shown}]` and its keys below")
                value = {}
        return Table(data=value, source=self.source, content=self.content, problems=self.problems, path=(*self.path, *keys))

    def mapping(self, key: str) -> dict[str, str]:
        """A table of texts; empty where it is not there."""
        inner = self.table(key)
        return {name: inner.text(name, required=True) for name in inner.data}

    def expression(self, key: str, default: str) -> Expression:
        """An expression of symbols."""
        value = self.data.get(key, default)
        try:
            if isinstance(value, str):
                return expression(value)
            self.refuse("PP503", f"`{key}` is an expression in quotes, not {value!r}", key, help='for example "h/a"')
        except ValueError as error:
            self.refuse("PP503", str(error), key, help='for example "h/a" or "L - 1"')
        return _ONE

    def expressions(self, key: str) -> dict[str, Expression]:
        """A table of expressions; empty where it is not there."""
        inner = self.table(key)
        return {name: inner.expression(name, "1") for name in inner.data}

    def counts(self, key: str) -> dict[str, int]:
        """A table of whole numbers of at least 0; empty where it is not there."""
        inner = self.table(key)
        for name, value in inner.data.items():
            if type(value) is not int or value < 0:
                inner.refuse("PP503", f"`{name}` is a whole number of at least 0, not {value!r}", name, help="sizes are whole numbers")
        return {name: value for name, value in inner.data.items() if type(value) is int and value >= 0}
