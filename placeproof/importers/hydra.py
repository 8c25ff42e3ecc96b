"""Overrides as Hydra reads them from a command line: ``table.name=value``, ``+table.name=value``, ``~table.name``.

(hydra-core==1.3.2:hydra/grammar/OverrideLexer.g4 and core/override_parser/types.py)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from placeproof.core.diagnostics import Place, Problems
from placeproof.core.places import KeyPath, lines_of

#: ``name=`` with what stands before it: `+` adds a name, `++` sets or adds it, `~` takes one away.
NAME = re.compile(r"(\+\+|\+|~)?([A-Za-z_][\w./@:-]*)=")
_TOKEN = re.compile(r"""(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'\\])+""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
#: Options of Hydra's own that take a value.
_OPTIONS = ("config-name", "config-path", "config-dir")
_SHORT = {"-cn": "config-name", "-cp": "config-path", "-cd": "config-dir"}
#: A value that refers to other settings.
_REFERS = re.compile(r"\$\{[^}]*\}")


@dataclass(slots=True)
class Overrides:
    """Overrides, one after the other, as one tree of settings. Of a name that comes twice the last counts.

    ``added``: names that are added to those that there are. ``files``: the file of settings that holds where overrides say nothing.
    """

    source: str
    text: str
    problems: Problems
    data: dict[str, Any] = field(default_factory=dict)
    spans: dict[KeyPath, tuple[int, int, int]] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    open: dict[str, str] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    _option: str = ""

    def word(self, text: str, span: tuple[int, int, int]) -> None:
        """Read a word that is known as a whole."""
        name = NAME.match(text)
        if self._option:
            self.option(self._option, text, span)
        elif text in _SHORT or (text.startswith("--") and text[2:] in _OPTIONS):
            self._option = _SHORT.get(text, text[2:])
        elif text.startswith("--") and text[2:].partition("=")[0] in _OPTIONS:
            self.option(*text[2:].partition("=")[::2], span)
        elif name is None:
            help = "`table.name=value`, without blanks around the sign"
            self.problems.add("PP501", f"`{text}` is no setting with a value", place=self.place(span), help=help)
        elif name[1] == "~" or "@" in name[2] or "/" in name[2]:
            message = f"`{text}` takes a setting away, or chooses a group of them, which is not read"
            self.problems.add("PP501", message, place=self.place(span), help="give the settings themselves")
        else:
            self.put(name[2], value(text[name.end() :]), span, added=bool(name[1]))

    def option(self, name: str, said: str, span: tuple[int, int, int]) -> None:
        """An option of Hydra's own: of the file, its name alone matters."""
        self._option = ""
        if name == "config-name":
            self.put("defaults", [said.removesuffix(".yaml")], span)

    def put(self, name: str, said: Any, span: tuple[int, int, int], *, added: bool = False) -> None:
        """Set a setting."""
        path = tuple(name.split("."))
        table = self.data
        for depth, part in enumerate(path[:-1]):
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                self._both(path[: depth + 1], span)
                return
            table = inner
            self.spans.setdefault(path[: depth + 1], span)
        if isinstance(table.get(path[-1]), dict) and not isinstance(said, dict):
            self._both(path, span)
            return
        if path[-1] in table:
            self.again.add(name)
        table[path[-1]] = said
        self.spans[path] = span
        self.open.pop(name, None)
        if isinstance(said, str) and (reference := _REFERS.search(said)) is not None:
            self.open[name] = f"it refers to {reference[0]}, which is not followed"
        if added:
            self.added.add(name)

    def _both(self, path: KeyPath, span: tuple[int, int, int]) -> None:
        message = f"`{'.'.join(map(str, path))}` has a value and is a table, too"
        self.problems.add("PP502", message, place=self.place(span), help="leave one of the two out")

    def place(self, span: tuple[int, int, int]) -> Place:
        """Where a word stands."""
        line, column, length = span
        lines = lines_of(self.text)
        return Place(source=self.source, line=line, column=column, length=length, text=lines[line - 1] if line <= len(lines) else "")


def value(text: str) -> Any:
    """A value as Hydra reads it: numbers stay texts, which the reader of settings takes as numbers where it asks for them."""
    said = text.strip()
    if said.lower() in ("true", "false"):
        return said.lower() == "true"
    if said.lower() == "null":
        return None
    if len(said) > 1 and said[0] == said[-1] and said[0] in "'\"":
        return said[1:-1]
    if said.startswith("[") and said.endswith("]"):
        return [value(part) for part in _parts(said[1:-1])]
    if said.startswith("{") and said.endswith("}"):
        pairs = [part.partition(":") for part in _parts(said[1:-1])]
        return {key.strip().strip("'\""): value(inner) for key, _, inner in pairs}
    return said


def _parts(text: str) -> list[str]:
    """The elements of a list, or the pairs of a table: what stands between commas that are in no brackets and no quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[{(":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    return [part for part in parts if part.strip()]


def read(text: str, source: str, problems: Problems) -> Overrides:
    """A text of overrides, one after the other, as a shell would hand them over."""
    found = Overrides(source=source, text=text, problems=problems)
    for number, line in enumerate(text.splitlines(), start=1):
        body = re.sub(r"(^|\s)#.*$", "", line).rstrip().removesuffix("\\")
        for token in _TOKEN.finditer(body):
            found.word(_unquoted(token[0]), (number, token.start() + 1, len(token[0])))
    if not found.data and not problems.found:
        place = Place(source=source, line=1, column=1, text=(text.splitlines() or [""])[0])
        problems.add("PP501", "there is no setting in it", place=place, help="for example `trainer.nnodes=2`")
    return found


def _unquoted(token: str) -> str:
    """A word without the quotes of a shell."""
    parts = re.findall(r"""\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^"'\\]+""", token, re.DOTALL)
    return "".join(part[1:-1] if part[0] in "'\"" else _ESCAPED.sub(r"\1", part) for part in parts)
