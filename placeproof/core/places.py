"""Where the keys of a TOML text stand, which its reader does not say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from placeproof.core.diagnostics import Place

#: Keys that lead to a value; a number counts the tables of a list, from 0.
KeyPath: TypeAlias = tuple[str | int, ...]

_NAME = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_\-]+)"""
_NAMES = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_HEADER = re.compile(rf"\s*(\[{{1,2}})[ \t]*({_NAMES})[ \t]*\]{{1,2}}\s*(?:#.*)?$")
_KEY = re.compile(rf"\s*({_NAMES})\s*=")


def characters(text: str, count: int) -> int:
    """How many characters the first bytes of a line are: ``ast`` counts bytes."""
    return min(count, len(text)) if text.isascii() else len(text.encode()[:count].decode(errors="ignore"))


def toml_fault(error: Exception, text: str, source: str) -> tuple[str, Place]:
    """What a TOML reader found wrong, without the place that it writes into its message, and that place; the end where it names none."""
    lines = text.splitlines() or [""]
    named = re.search(r"line (\d+), column (\d+)", str(error))
    line, column = (int(named[1]), int(named[2])) if named else (len(lines), 1)
    shown = lines[line - 1] if line <= len(lines) else ""
    return re.sub(r" \(at .*\)$", "", str(error)), Place(source=source, line=line, column=column, text=shown)


def toml_place(text: str, source: str, path: KeyPath) -> Place | None:
    """The line that defines a key, in its table; of a key that is missing, the nearest table around it.

    A path without numbers leads to the first table of a list.
    """
    index = _index(text)
    for depth in range(len(path), 0, -1):
        if line := index.get(path[:depth]):
            return line.place(path[depth:], source)
    return None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that defines something. ``start``, ``length``: the part that is shown; ``inside``: where what it holds begins."""

    number: int
    text: str
    start: int
    length: int
    inside: int

    def place(self, rest: KeyPath, source: str) -> Place:
        """The place of a key that the line itself holds; that of the line where it does not."""
        start, length, inside = self.start, self.length, self.inside
        for key in rest:
            if isinstance(key, int):
                row = re.compile(rf"(?:[^{{]*\{{){{{key + 1}}}").match(self.text, inside)
                inside = row.end() if row else len(self.text)
            elif inner := re.compile(rf"(?<!\w){re.escape(key)}(?!\w)").search(self.text, inside):
                start, length, inside = inner.start(), len(key), inner.end()
        return Place(source=source, line=self.number, column=start + 1, length=length, text=self.text)


@lru_cache(maxsize=8)
def _index(text: str) -> dict[KeyPath, _Line]:
    """The first line that defines each table and each key.

    One pass over the lines: who asks for thousands of places must not pass over them each time. A table of a list begins with a header,
    or with a line that begins with a brace.
    """
    index: dict[KeyPath, _Line] = {}
    rows: dict[KeyPath, int] = {}  # how many tables each list has so far
    table: KeyPath = ()
    listed: KeyPath = ()  # the key whose list may go on
    braces = 0
    for number, line in enumerate(text.splitlines(), start=1):
        start = len(line) - len(line.lstrip())
        if header := _HEADER.match(line):
            table = names = _numbered(header[2], rows, new=header[1] == "[[")
            made = _Line(number, line, 0, len(line.strip()), len(line))
            listed = ()
        elif key := _KEY.match(line):
            listed = names = (*table, *_names(key[1]))
            made = _Line(number, line, start, len(key[1]), key.end())
            braces = line.count("{")
        elif listed and line.startswith("{", start):
            names = (*listed, braces)
            made = _Line(number, line, start, len(line.strip().rstrip(",")), start)
            braces += 1
        else:
            continue
        index.setdefault(names, made)
        index.setdefault(tuple(name for name in names if isinstance(name, str)), made)
    return index


def _names(written: str) -> Iterator[str]:
    return (name.strip("\"'") for name in re.findall(_NAME, written))


def _numbered(written: str, rows: dict[KeyPath, int], *, new: bool) -> KeyPath:
    """The names of a header with the number of the table in each list that they lead through; ``new``: a table of a list begins."""
    table: KeyPath = ()
    for name in _names(written):
        table = (*table, name)
        if table in rows:
            table = (*table, rows[table] - 1)
    if new:
        names = table[:-1] if isinstance(table[-1], int) else table
        rows[names] = rows.get(names, 0) + 1
        table = (*names, rows[names] - 1)
    return table


@lru_cache(maxsize=16)
def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a text. A file of which much is wrong is asked for them at each place."""
    return tuple(text.splitlines())
