"""Parts of words: quotes, backslashes, what a dollar begins, commands within a text."""

from __future__ import annotations

import re
from dataclasses import replace

from placeproof.importers.shell.source import FIRST_OPEN
from placeproof.importers.shell.values import Open, Text, Word, joined
from placeproof.importers.shell.words.cursor import NAME, SPECIAL, Piece, Reference, is_open
from placeproof.importers.shell.words.expansions import Expansions

_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
}


class Quotes(Expansions):
    """Reads the parts of a word."""

    def _piece(self, stops: str) -> list[Piece]:
        char = self.text[self.at]
        operand = stops == "}"
        if char == "\\":
            self.at += 2
            if self.at > self.end or is_open(self.text[self.at - 1]):
                self.refuse("a backslash stands before what is not known", self.at - 2)
            return [] if self.text[self.at - 1] == "\n" else [Piece((self.text[self.at - 1],), quoted=True)]
        if char == "'":
            return [Piece(self._until("'"), quoted=True)]
        if char == '"':
            self.at += 1
            return self._quoted()
        if char == "$":
            return self._dollar(quoted=False)
        if char == "`":
            return [self._backquoted(quoted=False)]
        if is_open(char):
            return [Piece((self._placed(char),), split=True)]
        begin = self.at
        while self.at < self.end and self.text[self.at] not in stops and self.text[self.at] not in "\\'\"$`":
            if is_open(self.text[self.at]):
                break
            self.at += 1
        if self.at == begin:
            self.refuse(f"`{char}` is not understood here", begin)
        return [Piece((self.text[begin : self.at],), split=operand)]

    def _placed(self, char: str) -> Open:
        self.at += 1
        if ord(char) - FIRST_OPEN >= len(self.source.opens):
            self.refuse("a character for private use", self.at - 1)
        return self.source.opens[ord(char) - FIRST_OPEN]

    def _until(self, quote: str) -> Text:
        end = self.text.find(quote, self.at + 1, self.end)
        if end < 0:
            self.refuse("a quote is not closed", self.at)
        text, self.at = self.text[self.at + 1 : end], end + 1
        placed = {chr(FIRST_OPEN + number): value for number, value in enumerate(self.source.opens)}
        return joined(placed.get(char, char) for char in text) if placed else joined([text])

    def _quoted(self, stop: str = '"') -> list[Piece]:
        """Up to the closing quote, or to the end of a text that is as if it were quoted (``stop``: empty)."""
        pieces, begin = list[Piece](), self.at
        while self.at < self.end and self.text[self.at] != (stop or "\0"):
            pieces += self._in_quotes("$`\\" + stop)
        listed = any(piece.words is not None for piece in pieces)
        if listed and re.search(r"\$\{[^}]*[-+=?][^}]*\s", self.text[begin : self.at]):
            self.refuse("a default with blanks beside a list, in one pair of quotes", begin)
        if listed and not any(piece.words for piece in pieces) and not any(isinstance(p, str) for piece in pieces for p in piece.text):
            text = joined(part for piece in pieces for part in piece.text)  # where that is empty, it is no word
            pieces = [Piece(words=(Word(text, loose=True),), quoted=True)] if text else []
        elif not listed:
            pieces.append(Piece((), quoted=True))  # it is a word, though it may be empty
        if stop and self.at >= self.end:
            self.refuse("a quote is not closed", begin - 1)
        self.at += len(stop)
        return pieces

    def _in_quotes(self, escaped: str) -> list[Piece]:
        char, after = self.text[self.at], self.text[self.at + 1 : min(self.at + 2, self.end)]
        if char == "\\":
            self.at += 1 + len(after)
            if after and is_open(after):
                self.refuse("a backslash stands before what is not known", self.at - 2)
            return [] if after == "\n" else [Piece((after if after and after in escaped else char + after,), quoted=True)]
        if char == "$":
            return self._dollar(quoted=True)
        if char == "`":
            return [self._backquoted(quoted=True)]
        if is_open(char):
            return [Piece((self._placed(char),), quoted=True)]
        self.at += 1
        return [Piece((char,), quoted=True)]

    def document(self) -> list[Piece]:
        """All of a text that follows a command: quotes are characters."""
        return self._quoted("")

    def quoted_operand(self) -> list[Piece]:
        """All of a text that stands behind an operator within quotes."""
        pieces = [Piece((), quoted=True)]
        while self.at < self.end:
            if self.text[self.at] == '"':
                self.at += 1
                pieces += self._quoted()
            else:
                pieces += self._in_quotes('$`"\\}')
        return pieces

    def _backquoted(self, quoted: bool) -> Piece:
        begin = self.at
        end = self.source.nested.get(begin)
        if end is None:
            self.refuse("this command is not understood", begin)
        return self._substituted(quoted)

    def _substituted(self, quoted: bool) -> Piece:
        begin, self.at = self.at, self.source.nested[self.at]
        if self.nested is not None:
            self.nested(self.source, begin)
        raw = self.text[begin : self.at]
        return Piece((self._open(raw, begin, "it is what a command prints"),), quoted=quoted, split=not quoted)

    def _dollar(self, quoted: bool) -> list[Piece]:
        begin, after = self.at, self.text[self.at + 1 : min(self.at + 2, self.end)]
        if self.text.startswith("((", begin + 1) and self._closing(begin) is not None:
            return [self._number(quoted)]
        if begin in self.source.nested:
            return [self._substituted(quoted)]
        if after == "{":
            self.at += 2
            return self._braces(begin, quoted)
        if after in ("'", '"') and not quoted:
            self.at += 1
            if after == '"':
                self.at += 1
                return self._quoted()
            return [Piece((self._escaped(),), quoted=True)]
        if after in ("(", "["):
            self.refuse("this expansion is not understood", begin)
        if after == "\\" and self.text.startswith("\n", begin + 2):
            self.refuse("a line is joined within an expansion", begin)
        if name := NAME.match(self.text, begin + 1, self.end):
            self.at = name.end()
            if re.match(r"\\\n\w", self.text[self.at : self.at + 3]):
                self.refuse("a line is joined within an expansion", begin)
            return self._plain(Reference(name[0]), begin, quoted)
        if after and (after in SPECIAL or after.isdigit()):
            self.at += 2
            if after == "$" and self.text[self.at : self.at + 1] in ("{", "("):
                self.refuse("this expansion is not understood", begin)
            return self._plain(Reference(after), begin, quoted)
        self.at += 1
        return [Piece(("$",), quoted=True)]

    def _escaped(self) -> str:
        """What stands in ``$'...'``."""
        begin, text = self.at, ""
        self.at += 1
        while self.at < self.end and self.text[self.at] != "'":
            char, after = self.text[self.at], self.text[self.at + 1 : self.at + 2]
            if char == "\\" and after not in _ESCAPES:
                self.refuse("this escape is not understood", self.at)
            text += _ESCAPES[after] if char == "\\" else char
            self.at += 2 if char == "\\" else 1
        if self.at >= self.end:
            self.refuse("a quote is not closed", begin)
        self.at += 1
        return text

    # Numbers.

    def _number(self, quoted: bool) -> Piece:
        """``$((...))``."""
        begin, at = self.at, self._closing(self.at)
        assert at is not None
        self.at = at + 2
        inner = self.inside(begin + 3, at)
        number = inner.evaluated(begin)
        raw = self.text[begin : self.at]
        text: Text = (
            replace(self._open(raw, begin, number.why), of=number.of or number.name) if isinstance(number, Open) else str(number),
        )
        return Piece(text, quoted=quoted, split=not quoted)

    def _closing(self, begin: int) -> int | None:
        """Where the two parentheses that begin here are closed, both at once; None where they are not: then two shells begin here."""
        depth, at = 0, begin + 3
        while at < self.end and depth >= 0:
            if at in self.source.nested:
                at = self.source.nested[at]
                continue
            if not depth and self.text.startswith("))", at):
                return at
            depth += (self.text[at] == "(") - (self.text[at] == ")")
            at += 1
        return None

    def evaluated(self, begin: int) -> int | Open:
        """All of the text as a number."""
        if "'" in self.text[self.at : self.end]:
            self.refuse("this arithmetic is not understood", begin)
        return self.number_of(self.flat(self.quoted_operand()), begin)
