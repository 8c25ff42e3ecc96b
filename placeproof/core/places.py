"""Where the keys of a TOML text stand, which its reader does not say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from placeproof.core.diagnostics import Place

_HEADER = re.compile(r"\s*\[{1,2}([A-Za-z0-9_\-.\"' \t]+)\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"\s*([A-Za-z0-9_.\-\"']+)\s*=")


def toml_fault(error: Exception, text: str, source: str) -> tuple[str, Place]:
    """What a TOML reader found wrong, without the place that it writes into its message, and that place; the end where it names none."""
    lines = text.splitlines() or [""]
    named = re.search(r"line (\d+), column (\d+)", str(error))
    line, column = (int(named[1]), int(named[2])) if named else (len(lines), 1)
    shown = lines[line - 1] if line <= len(lines) else ""
    return re.sub(r" \(at .*\)$", "", str(error)), Place(source=source, line=line, column=column, text=shown)


def toml_place(text: str, source: str, path: tuple[str, ...]) -> Place | None:
    """The line that defines a key, in its table; of a key that is missing, the nearest table around it."""
    index = _index(text)
    for length in range(len(path), 0, -1):
        wanted = path[:length]
        keys = [index.keys[wanted[:n]] for n in range(1, length + 1) if wanted[:n] in index.keys]
        tables = [index.tables[wanted]] if wanted in index.tables else []
        if not keys and not tables:
            continue
        first = min((*keys, *tables), key=lambda found: found.number)
        if not first.key:
            return Place(source=source, line=first.number, column=1, length=len(first.line.strip()), text=first.line)
        return _within(first.line, first.number, first.start, first.key, wanted[first.depth :], source)
    return None


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that defines something. ``key``: as it is written, empty for a table; ``depth``: how many names lead to it."""

    number: int
    line: str
    start: int = 0
    key: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class _Index:
    """The first line that defines each table and each key."""

    tables: dict[tuple[str, ...], _Line]
    keys: dict[tuple[str, ...], _Line]


@lru_cache(maxsize=8)
def _index(text: str) -> _Index:
    """One pass over the lines: who asks for thousands of places must not pass over them each time."""
    found, table = _Index({}, {}), tuple[str, ...]()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = tuple(p.strip().strip("\"'") for p in header[1].split("."))
            found.tables.setdefault(table, _Line(number, line))
        elif key := _KEY.match(line):
            names = table + tuple(p.strip("\"'") for p in key[1].split("."))
            found.keys.setdefault(names, _Line(number, line, key.start(1), key[1], len(names)))
    return found


def _within(line: str, number: int, start: int, key: str, rest: tuple[str, ...], source: str) -> Place:
    if rest and (inner := re.search(rf"(?<![\w]){re.escape(rest[-1])}(?![\w])", line[start + len(key) :])):
        start, key = start + len(key) + inner.start(), rest[-1]
    return Place(source=source, line=number, column=start + 1, length=len(key), text=line)
