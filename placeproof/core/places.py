"""Where the keys of a TOML text stand, which its reader does not say."""

from __future__ import annotations

import re

from placeproof.core.diagnostics import Place


def toml_fault(error: Exception, text: str, source: str) -> tuple[str, Place]:
    """What a TOML reader found wrong, without the place that it writes into its message, and that place; the end where it names none."""
    lines = text.splitlines() or [""]
    named = re.search(r"line (\d+), column (\d+)", str(error))
    line, column = (int(named[1]), int(named[2])) if named else (len(lines), 1)
    shown = lines[line - 1] if line <= len(lines) else ""
    return re.sub(r" \(at .*\)$", "", str(error)), Place(source=source, line=line, column=column, text=shown)


def toml_place(text: str, source: str, path: tuple[str, ...]) -> Place | None:
    """The line that defines a key, in its table; of a key that is missing, the nearest table around it."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[{1,2}\s*([A-Za-z0-9_\-.\"' ]+?)\s*\]{1,2}\s*(?:#.*)?$", line):
            table = tuple(p.strip().strip("\"'") for p in header[1].split("."))
            if table == path:
                return Place(source=source, line=number, column=1, length=len(line.strip()), text=line)
            continue
        if key := re.match(r"\s*([A-Za-z0-9_.\-\"']+)\s*=", line):
            keys = table + tuple(p.strip("\"'") for p in key[1].split("."))
            if keys == path or (len(path) > len(keys) and path[: len(keys)] == keys):
                return _within(line, number, key.start(1), key[1], path[len(keys) :], source)
    return toml_place(text, source, path[:-1]) if len(path) > 1 else None


def _within(line: str, number: int, start: int, key: str, rest: tuple[str, ...], source: str) -> Place:
    if rest and (inner := re.search(rf"(?<![\w]){re.escape(rest[-1])}(?![\w])", line[start + len(key) :])):
        start, key = start + len(key) + inner.start(), rest[-1]
    return Place(source=source, line=number, column=start + 1, length=len(key), text=line)
