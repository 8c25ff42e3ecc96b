"""The arguments of a program that a script starts, as a document: what is open of them, and what that means for what they set."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from placeproof.core.diagnostics import Place, Problems
from placeproof.core.places import KeyPath, lines_of
from placeproof.importers import hydra
from placeproof.importers.document import Document, overridden
from placeproof.importers.fields import Field
from placeproof.importers.imported import Reading, Role
from placeproof.importers.settings import settings
from placeproof.importers.shell.programs import option_names
from placeproof.importers.shell.values import STARTED, UNSET, Open, Span, Text, Word, opens, plain, shown

#: What the notes of settings begin with that say a model's shape, and so numbers.
_SHAPE = "the model's shape"


@dataclass(slots=True)
class _Option:
    """One argument with its values, and what is open of them."""

    name: str
    word: Word
    values: list[Text] = field(default_factory=list)


class Arguments:
    """Arguments of a program, ``--name value``, as they are read one after the other."""

    def __init__(self, system: str, source: str, text: str, problems: Problems) -> None:
        self.source, self.text, self.problems = source, text, problems
        self.fields: dict[str, Field] = {name: row for row in settings(system) for name in row.names}
        self.data: dict[str, Any] = {}
        self.spans: dict[KeyPath, Span] = {}
        self.again: set[str] = set()
        self.unknown: dict[str, str] = {}
        self.open: list[Reading] = []
        self.line: Span = (1, 1, 1)

    def shown(self, name: str) -> str:
        """An argument as a command line has it."""
        return "--" + name.replace("_", "-")

    def names(self, part: Open) -> Iterator[str]:
        """The arguments that stand on the sides of something open."""
        return option_names(part)

    def row(self, name: str) -> Field | None:
        """What is known of an argument."""
        return self.fields.get(name) or self.fields.get(f"{name.rpartition('.')[0]}.*")

    def document(self) -> Document:
        """What is known of them."""
        return Document(
            data=self.data, source=self.source, text=self.text, spans=self.spans, again=frozenset(self.again), bare=True, open=self.unknown
        )

    def read(self, arguments: tuple[tuple[Word, ...], Span]) -> None:
        """Read all."""
        words, self.line = arguments
        option: _Option | None = None
        for word in words:
            first = word.text[0] if word.text and isinstance(word.text[0], str) else ""
            name = re.match(r"--([^=]+)(=)?", first)
            if name is not None and (name[2] or len(word.text) == 1):
                self._put(option)
                option = _Option(name[1].replace("-", "_"), word)
                if name[2]:
                    rest = first[name.end() :]
                    option.values.append((*((rest,) if rest else ()), *word.text[1:]))
                    self._put(option)
                    option = None
            elif opens(word.text) and not self._takes(option, word):
                self._put(option)
                option = None
                self._further(word)
            elif option is not None:
                option.values.append(word.text)
            else:
                self._stray(word)
        self._put(option)

    def _takes(self, option: _Option | None, word: Word) -> bool:
        """Whether a word of which something is open is a value of the option before it."""
        if option is None or any(next(option_names(part), None) for part in opens(word.text)):
            return False
        row = self.fields.get(option.name)
        if row is not None and row.kinds == ("bool",):
            return False
        return not option.values or row is None or "list" in row.kinds

    def _stray(self, word: Word) -> None:
        message = f"`{shown(word.text)}` belongs to no `--name`"
        self.problems.add("PP501", message, place=self._place(), help="is a backslash or a quote missing?")

    def _put(self, option: _Option | None) -> None:
        if option is None:
            return
        name, row = option.name, self.fields.get(option.name)
        texts = [shown(value) for value in option.values]
        value: Any = texts if len(texts) > 1 else texts[0] if texts else True
        unknown = [part for text in option.values for part in opens(text)]
        if (name,) in self.spans:
            self.again.add(name)
        self.spans[(name,)] = self.line
        self.data[name] = value
        self.unknown.pop(name, None)
        if not unknown or row is None:
            return
        if row.role is Role.NO_MATTER:
            self.unknown[name] = f"the script does not say it: {unknown[0].why}"
            return
        self._unsaid(name, unknown[0])
        self.unknown[name] = "the script does not say it"

    def _unsaid(self, name: str, part: Open) -> None:
        message = f"`{self.shown(name)}` is `{part.name}`, and the script does not say what that is: {part.why}"
        variable = re.fullmatch(r"\$\{?(\w+)\}?", part.of or part.name)
        example = f", or set it in the script, `{variable[1]}=8`" if variable and not variable[1].isdigit() else ""
        if variable and part.why in (UNSET, STARTED):
            example += f", or say it: `--env {variable[1]}=8`"
        remedy = "put it in quotes" if part.why.startswith("it stands for names of files") else f"write the value in its place{example}"
        self.problems.add("PP501", message, place=self._place(part.span), help=remedy)

    def _further(self, word: Word) -> None:
        """What may be any arguments, or none."""
        for part in opens(word.text):
            if part.sides:
                for name in dict.fromkeys(self.names(part)):
                    self._perhaps(name, part)
            elif part.unset and len(word.text) == 1:
                note = "may be further arguments: taken as none, as it is not set in the script"
                reading = Reading(name=part.name, value="?", role=Role.ANOTHER_STEP, note=note, place=self._place(part.span))
                self.open += [reading] if part.name not in {known.name for known in self.open} else []
            else:
                message = f"`{part.name}` may be any arguments, and the script does not say which: {part.why}"
                self.problems.add("PP501", message, place=self._place(part.span), help="write them in its place")

    def _perhaps(self, name: str, part: Open) -> None:
        """An argument that may be handed over, or not."""
        row = self.row(name)
        if row is not None and row.role is Role.NO_MATTER and not row.note.startswith(_SHAPE):
            note = f"whether it is handed over, or with which value, is open: {part.why}"
            self.open.append(Reading(name=name, value="?", role=Role.NO_MATTER, note=note, place=self._place(part.span)))
            return
        message = f"whether `{self.shown(name)}` is handed over, or with which value, is open: {part.why}"
        self.problems.add("PP501", message, place=self._place(part.span), help="write the branch that is meant, without the condition")

    def _place(self, span: Span | None = None) -> Place:
        return in_source(self.source, self.text, span or self.line)


class Overrides(Arguments):
    """Settings as Hydra takes them, ``table.name=value``."""

    def __init__(self, system: str, source: str, text: str, problems: Problems) -> None:
        super().__init__(system, source, text, problems)
        self.found = hydra.Overrides(source=source, text=text, problems=problems)

    def shown(self, name: str) -> str:
        """A setting as a command line has it."""
        return name

    def names(self, part: Open) -> Iterator[str]:
        """The settings that stand on the sides of something open."""
        for text in (text for words in part.sides for text in words):
            for piece in text:
                if isinstance(piece, Open):
                    yield from self.names(piece)
                else:
                    yield from (name[2] for word in piece.split() if (name := hydra.NAME.match(word)) is not None)

    def document(self) -> Document:
        """What is known of them."""
        return overridden(self.found)

    def read(self, arguments: tuple[tuple[Word, ...], Span]) -> None:
        """Read all."""
        words, self.line = arguments
        for word in words:
            said, first = plain(word.text), word.text[0] if word.text and isinstance(word.text[0], str) else ""
            name = hydra.NAME.match(first)
            if said is not None and not word.loose:
                self.found.word(said, self.line)
            elif first.startswith("-"):
                continue  # where files of settings lie: which one it is would be named
            elif name is None:
                self._further(word)
            else:
                self._open(
                    name[2], Word((*((first[name.end() :],) if name.end() < len(first) else ()), *word.text[1:])), added=bool(name[1])
                )

    def _open(self, name: str, word: Word, *, added: bool) -> None:
        """A setting of whose value something is open."""
        part, row = opens(word.text)[0], self.row(name)
        self.found.put(name, shown(word.text), self.line, added=added)
        if row is None:
            return
        if row.role is not Role.NO_MATTER:
            self._unsaid(name, part)
        self.found.open[name] = f"the script does not say it: {part.why}"


def in_source(source: str, text: str, span: Span) -> Place:
    """A place in a file."""
    line, column, length = span
    lines = lines_of(text)
    return Place(source=source, line=line, column=column, length=length, text=lines[line - 1] if line <= len(lines) else "")
