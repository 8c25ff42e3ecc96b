"""A place in the text of a shell, and what is read there: pieces of words, references to variables.

What is not understood raises UnreadError. What a script does not say is open, and nothing is concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, Self

from placeproof.importers.shell.source import FIRST_OPEN, LAST_OPEN, Source
from placeproof.importers.shell.values import Array, Open, Span, State, Text, UnreadError, Value, Word, joined, opens

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Variables that a shell has beside those that have names.
SPECIAL = "@*#?$!-"
#: How deep expansions stand within one another.
DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word: text, or words of a list. ``quoted``: nothing happens to it any more; ``split``: it is split at blanks."""

    text: Text = ()
    quoted: bool = False
    split: bool = False
    words: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """A variable that is expanded: its name, and what stands in brackets behind it."""

    name: str
    index: str | None = None

    @property
    def every(self) -> bool:
        """Whether it is all words of a list."""
        return self.name in ("@", "*") if self.index is None else self.index in ("@", "*")

    @property
    def star(self) -> bool:
        """Whether its words are joined where it is quoted."""
        return "*" in (self.name, self.index)


class Cursor:
    """Reads a text from a place on, as far as ``end``. ``nested``: is told where each command substitution begins."""

    def __init__(
        self, source: Source, state: State, at: int, end: int, nested: Callable[[Source, int], None] | None = None, depth: int = 0
    ) -> None:
        self.source, self.text, self.state = source, source.text, state
        self.at, self.end, self.nested, self.depth = at, end, nested, depth

    def inside(self, start: int, end: int) -> Self:
        """The same at another place of the text, which stands within this one."""
        return type(self)(self.source, self.state, start, end, self.nested, self.depth + 1)

    def _takes(self, text: str) -> bool:
        if self.text.startswith(text, self.at) and self.at + len(text) <= self.end:
            self.at += len(text)
            return True
        return False

    def _bracketed(self, begin: int) -> str:
        start, depth = self.at, 1
        while self.at < self.end:
            char = self.text[self.at]
            depth += (char == "[") - (char == "]")
            self.at += 1
            if not depth:
                return self.text[start : self.at - 1]
        return self.refuse("a bracket is not closed", begin)

    def flat(self, pieces: Iterable[Piece]) -> Text:
        """The text of parts."""
        parts: list[str | Open] = []
        for piece in pieces:
            if piece.words is None:
                parts += piece.text
                continue
            for number, word in enumerate(piece.words):
                parts += [" ", *word.text] if number else word.text
        return joined(parts)

    def refuse(self, message: str, begin: int) -> NoReturn:
        """Say that something is not understood."""
        raise UnreadError(message, self._here(begin), self.source.name)

    def _here(self, begin: int | None = None) -> Span:
        begin = self.at if begin is None else begin
        return self.source.span(begin, max(self.at, begin + 1))

    def _raw_of(self, begin: int) -> str:
        return self.text[begin : self.at]

    def _open(self, name: str, begin: int, why: str) -> Open:
        return Open(name, self._here(begin), why)


def is_open(char: str) -> bool:
    """Whether a character stands for what is open."""
    return FIRST_OPEN <= ord(char) <= LAST_OPEN


def why_of(value: Value) -> str:
    """Why a value is open."""
    if isinstance(value, Array):
        return next((part.why for word in value.words for part in opens(word.text)), "it is open")
    return "it is open"


def why_of_text(text: Text) -> str:
    """Why a text is open."""
    return next((part.why for part in opens(text)), "it is not worked out")
