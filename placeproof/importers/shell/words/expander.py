"""Words of a shell: how they are put together, and where they are split.

What is not understood raises UnreadError. What a script does not say is open, and nothing is concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import Open, Text, Word, joined, plain, shown
from placeproof.importers.shell.words.braces import UnsureError, braced
from placeproof.importers.shell.words.cursor import Piece
from placeproof.importers.shell.words.quotes import Quotes

#: Where a word that is not quoted ends.
ENDS = " \t\n;&|()<>"
_BLANKS = " \t\n"
_BRACES = "braces are not expanded here"


class Expander(Quotes):
    """Expands the words of a text."""

    def words(self, *, lines: bool = False) -> list[Word]:
        """All words up to the end. ``lines``: they stand in parentheses, where lines end and remarks begin as blanks do."""
        words: list[Word] = []
        while self.blank(lines=lines):
            words += self.word()
        return words

    def blank(self, *, lines: bool = False) -> bool:
        """Pass over blanks; whether something follows."""
        while self.at < self.end:
            if self.text.startswith("\\\n", self.at):
                self.at += 2
            elif self.text[self.at] in (_BLANKS if lines else " \t"):
                self.at += 1
            elif lines and self.text[self.at] == "#":
                self.at = min(self.text.find("\n", self.at) % (len(self.text) + 1), self.end)
            else:
                return True
        return False

    def word(self) -> list[Word]:
        """The words that the next one comes to."""
        begin = self.at
        pieces = self.pieces()
        if self.at == begin:
            self.refuse(f"`{self.text[self.at]}` is not understood here", begin)
        if any(isinstance(part, Open) and part.why == _BRACES for piece in pieces for part in piece.text):
            return self._braced(self.text[begin : self.at]) or self.fields(pieces)
        return self.fields(pieces)

    def _braced(self, raw: str) -> list[Word]:
        """The words that one with braces comes to, each expanded by itself; none where that is not worked out."""
        if re.search(r"\$\(|[`<>]|\$\{[^}]*[={]|[\n]", raw):  # what is expanded would change something, or be several times
            return []
        try:
            every = braced(raw)
        except UnsureError:
            return []
        sources = [Source(one, self.source.name, self._here(), self.source.opens, parse=False) for one in every]
        inner = [Expander(source, self.state, 0, len(source.text), self.nested, self.depth + 1) for source in sources]
        return [] if every == [raw] else [word for one in inner for word in one.words()]

    def pieces(self, *, assigned: bool = False) -> list[Piece]:
        """The parts of the next word."""
        begin, pieces = self.at, list[Piece]()
        if self.at < self.end and self.text[self.at] == "#" and not assigned:
            self.refuse("a remark stands within a command", begin)
        while self.at < self.end:
            if self.text[self.at] in ENDS:
                if self.text[self.at : self.at + 2] not in ("<(", ">(") or self.at not in self.source.nested:
                    break
                pieces.append(self._substituted(quoted=True))
            else:
                pieces += self._piece(ENDS)
        return self._special(pieces, begin, assigned)

    def _special(self, pieces: list[Piece], begin: int, assigned: bool) -> list[Piece]:
        """Tildes and braces, which are open."""
        raw = self.text[begin : self.at]
        bare = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|\$\{[^}]*\}", "_", raw, flags=re.DOTALL)
        tilde = re.match(r"(\w+\+?=)?(.*:)?~", bare, re.DOTALL)
        if tilde is not None and (assigned or not tilde[2] or tilde[1]):
            return [Piece((self._open(raw, begin, "it is a folder of whoever runs the script"),), quoted=True)]
        if not assigned and re.search(r"\{[^{}]*(,|\.\.)", bare) and "}" in bare:
            return [Piece((self._open(raw, begin, _BRACES),), split=True)]
        return pieces

    def fields(self, pieces: Iterable[Piece]) -> list[Word]:
        """The words that parts come to: split, and with names of files open."""
        done, current = list[Word](), _Field()
        for piece in pieces:
            if current.sealed and (piece.text or piece.words):
                self.refuse("a list of which it is not known how it ends has something behind it", self.at)
            if piece.words is not None:
                ragged = len(piece.words) > 1 and (piece.words[0].loose, piece.words[-1].loose)
                if ragged and ragged[0] and current.parts is not None:
                    self.refuse("a list of which it is not known how it begins has something before it", self.at)
                for number, word in enumerate(piece.words):
                    current = self._closed(current, done) if number else current
                    if piece.quoted:
                        current.add(word.text, loose=word.loose)
                    else:
                        current = self._split(word.text, current, done, loose=word.loose)
                current.sealed = bool(ragged and ragged[1])
            elif piece.split:
                current = self._split(piece.text, current, done)
            else:
                current.add(piece.text, pattern=not piece.quoted)
        self._closed(current, done)
        return done

    def _closed(self, current: _Field, done: list[Word]) -> _Field:
        if current.parts is not None:
            text = joined(current.parts)
            if current.pattern and "f" not in self.state.flags and _is_pattern(current.bare, shown(text)):
                text = (Open(shown(text), self._here(), "it stands for names of files", sides=((text,),)),)
                done.append(Word(text, loose=True))
            else:
                done.append(Word(text, loose=current.loose))
        return _Field()

    def _split(self, text: Text, current: _Field, done: list[Word], *, loose: bool = False) -> _Field:
        blanks = self._blanks()
        for part in text:
            if isinstance(part, Open):
                current.add((part,), loose=True)
            elif blanks is None and part:
                current.add((Open(part, self._here(), "it is split at what `IFS` says"),), loose=True)
            else:
                for token in re.findall(f"[{blanks}]+|[^{blanks}]+", part) if blanks else [part]:
                    if token[0] in (blanks or ""):
                        current = self._closed(current, done)
                    else:
                        current.add((token,), pattern=True, loose=loose)
        return current

    def _blanks(self) -> str | None:
        """Where words are split; None where that is not at blanks."""
        value = self.state.values.get("IFS", (_BLANKS,))
        text = _BLANKS if value is None else plain(value) if isinstance(value, tuple) else None
        return text if text is not None and set(text) <= set(_BLANKS) else None

    def value(self) -> Text:
        """What is assigned: it is not split."""
        return self.flat(self.pieces(assigned=True))


class _Field:
    """A word as it is put together. ``bare``: what of it is not quoted."""

    def __init__(self) -> None:
        self.parts: list[str | Open] | None = None
        self.loose = self.pattern = self.sealed = False
        self.bare = ""

    def add(self, text: Text, *, pattern: bool = False, loose: bool = False) -> None:
        """Add a part. ``pattern``: it is not quoted."""
        self.parts = [*(self.parts or []), *text]
        self.loose |= loose
        known = "".join(part for part in text if isinstance(part, str))
        self.pattern |= pattern
        self.bare += known if pattern else "_" * len(known)


def _is_pattern(bare: str, text: str) -> bool:
    """Whether a word may stand for names of files. No file is taken to have a quote or a parenthesis in its name."""
    return re.search(r"[*?]|\[.*\]", bare, re.DOTALL) is not None and not re.search(r"['\"()]", text)
