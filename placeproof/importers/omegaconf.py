"""Values that refer to other settings, as OmegaConf follows them: ``${table.name}``, ``${.beside}``, ``${mul:2, ${table.name}}``.

(omegaconf==2.3.0:docs/source/usage.rst, "Variable interpolation" and "Resolvers")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.core.places import KeyPath
from placeproof.importers.document import Document

_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
#: A value that is to be said elsewhere.
MISSING = "???"


def followed(
    document: Document, functions: Mapping[str, Callable[..., Any]] | None = None, *, problems: Problems | None = None
) -> Document:
    """The document with what its values refer to in their place. What cannot be followed is left open, with the reason.

    ``functions``: those that a program adds, ``${name:1, 2}``. ``problems``: where all settings are at hand, so that a reference to none is
    a problem.
    """
    found = _Followed(document, functions or {}, problems)
    data = found.table(document.data, (), ())
    still = {name: why for name, why in document.open.items() if name not in found.closed}
    return replace(document, data=data, open={**still, **found.open}, referred=frozenset(found.referred))


class _OpenError(Exception):
    """A value is not known, and why."""


@dataclass(slots=True)
class _Followed:
    document: Document
    functions: Mapping[str, Callable[..., Any]]
    problems: Problems | None
    open: dict[str, str] = field(default_factory=dict)
    #: Names whose values were left open before, and are known now.
    closed: set[str] = field(default_factory=set)
    #: Settings that values refer to, and the tables around them.
    referred: set[KeyPath] = field(default_factory=set)

    def table(self, table: Mapping[str, Any], path: KeyPath, around: tuple[KeyPath, ...]) -> dict[str, Any]:
        """A table. ``around``: the settings that lead here by reference."""
        return {key: self.value(value, (*path, str(key)), around) for key, value in table.items()}

    def value(self, value: Any, path: KeyPath, around: tuple[KeyPath, ...]) -> Any:
        """A value; of one that is not known its text."""
        if isinstance(value, Mapping):
            return self.table(value, path, around)
        if isinstance(value, list):
            return [self.value(item, path, around) for item in value]
        if not isinstance(value, str) or ("${" not in value and value != MISSING):
            return value
        name = ".".join(map(str, path))
        try:
            known = self.text(value, path, around)
        except _OpenError as why:
            if around:
                raise
            self.open[name] = str(why)
            return value
        self.closed.add(name)
        return known

    def text(self, text: str, path: KeyPath, around: tuple[KeyPath, ...]) -> Any:
        """A text with the values in it; the value itself where it is no more than that."""
        if text == MISSING:
            raise _OpenError(f"nothing is said, but `{MISSING}`")
        whole = text
        while (found := _INNERMOST.search(text)) is not None:
            value = self.one(found[1].strip(), path, around)
            if found[0] == text:
                return value
            text = f"{text[: found.start()]}{value}{text[found.end() :]}"
        if "${" in text:
            raise _OpenError(f"it refers to {whole}, which is not followed")
        return text

    def one(self, body: str, path: KeyPath, around: tuple[KeyPath, ...]) -> Any:
        """What one reference stands for."""
        name, colon, rest = body.partition(":")
        if colon:
            if name not in self.functions:
                raise _OpenError(f"it refers to ${{{body}}}, which is not followed")
            return self._called(name, [_number(word) for word in rest.split(",")], body)
        dots = len(body) - len(body.lstrip("."))
        target = (*(path[:-dots] if dots else ()), *body[dots:].split("."))
        if target in around or target == path:
            raise _OpenError(f"it refers to ${{{body}}}, which refers to it")
        value: Any = self.document.data
        for part in target:
            if not isinstance(value, Mapping) or part not in value:
                self._missing(body, path)
                raise _OpenError(f"it refers to ${{{body}}}, which is not followed")
            value = value[part]
        self.referred.update(target[:depth] for depth in range(1, len(target) + 1))
        return self.value(value, target, (*around, path))

    def _called(self, name: str, values: list[Any], body: str) -> Any:
        try:
            return self.functions[name](*values)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise _OpenError(f"it refers to ${{{body}}}, which has no value") from error

    def _missing(self, body: str, path: KeyPath) -> None:
        if self.problems is not None:
            message = f"`{'.'.join(map(str, path))}` refers to `{body}`, and there is no such setting"
            self.problems.add("PP504", message, place=self.document.place(*path), help="write the value itself, or the setting")


def _number(word: str) -> Any:
    """An argument of a function: a number, or else its text."""
    said = word.strip()
    for read in (int, float):
        try:
            return read(said)
        except ValueError:
            continue
    return said
