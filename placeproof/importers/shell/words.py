"""Words of a shell: how quotes, variables and arithmetic are expanded, and where words are split.

What is not understood raises UnreadError. What a script does not say is open, and nothing is concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from placeproof.importers.shell.arithmetic import Arithmetic, FaultError
from placeproof.importers.shell.braces import UnsureError, braced
from placeproof.importers.shell.source import FIRST_OPEN, LAST_OPEN, Source
from placeproof.importers.shell.values import (
    Array,
    Open,
    Span,
    State,
    Table,
    Text,
    UnreadError,
    Value,
    Word,
    emptiness,
    joined,
    opens,
    plain,
    shown,
)

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: Where a word that is not quoted ends.
ENDS = " \t\n;&|()<>"
_SPECIAL = "@*#?$!-"
_BLANKS = " \t\n"
#: What a shell sets anew each time that it is read.
_DYNAMIC = re.compile(
    r"RANDOM|SRANDOM|SECONDS|LINENO|BASHPID|EPOCH\w+|FUNCNAME|BASH_\w+|PIPESTATUS|DIRSTACK|GROUPS|HISTCMD|PWD|OLDPWD|UID|EUID|PPID|_"
)
_DEEPEST = 50
_BRACES = "braces are not expanded here"
_STARTED = "it is handed to the script when it is started"
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


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word: text, or words of a list. ``quoted``: nothing happens to it any more; ``split``: it is split at blanks."""

    text: Text = ()
    quoted: bool = False
    split: bool = False
    words: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Reference:
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


class OpenNumberError(Exception):
    """A number that is open."""

    def __init__(self, value: Open) -> None:
        super().__init__(value.name)
        self.value = value


class Expander:
    """Expands words of a text from a place on, as far as ``end``. ``nested``: is told where each command substitution begins."""

    def __init__(
        self, source: Source, state: State, at: int, end: int, nested: Callable[[Source, int], None] | None = None, depth: int = 0
    ) -> None:
        self.source, self.text, self.state = source, source.text, state
        self.at, self.end, self.nested, self.depth = at, end, nested, depth

    # Words.

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

    # Parts.

    def _piece(self, stops: str) -> list[Piece]:
        char = self.text[self.at]
        operand = stops == "}"
        if char == "\\":
            self.at += 2
            if self.at > self.end or _is_open(self.text[self.at - 1]):
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
        if _is_open(char):
            return [Piece((self._placed(char),), split=True)]
        begin = self.at
        while self.at < self.end and self.text[self.at] not in stops and self.text[self.at] not in "\\'\"$`":
            if _is_open(self.text[self.at]):
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
            if after and _is_open(after):
                self.refuse("a backslash stands before what is not known", self.at - 2)
            return [] if after == "\n" else [Piece((after if after and after in escaped else char + after,), quoted=True)]
        if char == "$":
            return self._dollar(quoted=True)
        if char == "`":
            return [self._backquoted(quoted=True)]
        if _is_open(char):
            return [Piece((self._placed(char),), quoted=True)]
        self.at += 1
        return [Piece((char,), quoted=True)]

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
            return self._plain(_Reference(name[0]), begin, quoted)
        if after and (after in _SPECIAL or after.isdigit()):
            self.at += 2
            if after == "$" and self.text[self.at : self.at + 1] in ("{", "("):
                self.refuse("this expansion is not understood", begin)
            return self._plain(_Reference(after), begin, quoted)
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

    # Variables.

    def _plain(self, reference: _Reference, begin: int, quoted: bool) -> list[Piece]:
        """A variable, with nothing done to it."""
        if reference.every:
            return [self._listed(self.every(reference.name, begin), reference, quoted)]
        value = self.scalar(reference, begin)
        if value is None and "u" in self.state.flags:
            self.refuse(f"`{reference.name}` is not set, which ends the script under `set -u`", begin)
        return [Piece(value or (), quoted=quoted, split=not quoted)]

    def _listed(self, words: tuple[Word, ...], reference: _Reference, quoted: bool) -> Piece:
        if not (quoted and reference.star):
            return Piece(words=words, quoted=quoted)
        value = self.state.values.get("IFS", (" ",))
        between = " " if value is None else plain(value) if isinstance(value, tuple) else None
        if between is None:
            self.refuse("it is not known what `IFS` is", self.at)
        if len(words) > 1 and any(word.loose for word in words):  # it may be no word, and then nothing is between
            return Piece((self._open(f"${{{reference.name}[*]}}", self.at, _why(Array(words))),), quoted=True)
        parts: list[str | Open] = []
        for number, word in enumerate(words):
            parts += [between[:1], *word.text] if number else word.text
        return Piece(joined(parts), quoted=True)

    def scalar(self, reference: _Reference, begin: int) -> Text | None:
        """The text of a variable, None where it is known to be unset."""
        name, state = reference.name, self.state
        if name.isdigit() or name in _SPECIAL:
            return self._positional(name, begin)
        if _DYNAMIC.fullmatch(name):
            return (self._open(f"${name}", begin, "the shell sets it"),)
        value = state.held(name, self._here(begin))
        if reference.index is not None:
            return self._item(value, reference, begin)
        if isinstance(value, Array):
            first = value.words[0] if value.words else None
            return None if first is None else first.text if not first.loose else (self._open(f"${name}", begin, _why(value)),)
        return value.rows.get("0") if isinstance(value, Table) else value

    def _positional(self, name: str, begin: int) -> Text | None:
        given = self.state.arguments
        if name in "?$!-" or name == "0":
            return (self._open(f"${name}", begin, "the shell sets it"),)
        if given is None:
            foreign = "" if self.state.foreign is None else self.state.foreign.why
            why = foreign or _STARTED
            return (Open(f"${name}" if not foreign else f"${{{name}}}", self._here(begin), why, unset=not foreign and name != "#"),)
        loose = any(word.loose for word in given[: int(name)] if name.isdigit()) if name != "#" else any(word.loose for word in given)
        if loose:
            return (self._open(f"${{{name}}}", begin, _why(Array(given))),)
        if name == "#":
            return (str(len(given)),)
        return given[int(name) - 1].text if int(name) <= len(given) else None

    def _item(self, value: Value, reference: _Reference, begin: int) -> Text | None:
        """One text of a list or a table."""
        index = reference.index or ""
        if isinstance(value, Table):
            key = index[1:-1] if re.fullmatch(r"'[^']*'", index) else plain(self.within(index))
            return (self._open(self._raw_of(begin), begin, "its key is open"),) if key is None else value.rows.get(key)
        number = self.number(index, begin)
        if isinstance(number, Open):
            return (self._open(self._raw_of(begin), begin, number.why),)
        if not isinstance(value, Array):
            if number not in (0, -1) and value and isinstance(value[0], Open) and len(value) == 1 and not value[0].unset:
                return (self._open(self._raw_of(begin), begin, value[0].why),)  # it may be a list
            return value if number in (0, -1) else None
        if any(word.loose for word in value.words):
            return (self._open(self._raw_of(begin), begin, _why(value)),)
        return value.words[number].text if -len(value.words) <= number < len(value.words) else None

    def every(self, name: str, begin: int) -> tuple[Word, ...]:
        """All words of a list."""
        if name in ("@", "*"):
            if self.state.arguments is not None:
                return self.state.arguments
            return (Word((Open(f"${name}", self._here(begin), _STARTED, unset=self.state.foreign is None),), loose=True),)
        if _DYNAMIC.fullmatch(name):
            return (Word((self._open(f"${{{name}[@]}}", begin, "the shell sets it"),), loose=True),)
        value = self.state.held(name, self._here(begin))
        if isinstance(value, Array):
            return value.words
        if isinstance(value, Table):
            words = tuple(value.rows.values())
            several = (Word((self._open(f"${{{name}[@]}}", begin, "the order of a table is open"),), loose=True),)
            return tuple(map(Word, words)) if len(words) < 2 else several
        loose = name not in self.state.values or (bool(value) and all(isinstance(part, Open) for part in value or ()))
        return () if value is None else (Word(value, loose=loose),)

    def _braces(self, begin: int, quoted: bool) -> list[Piece]:
        """``${...}``, whose name begins here."""
        sign, after = self.text[self.at : self.at + 1], self.text[self.at + 1 : self.at + 2]
        if sign and sign in "#!" and after != "}":
            if not re.match(r"[A-Za-z0-9_@*]", after, re.ASCII):
                self.refuse("this expansion is not understood", begin)
            self.at += 1
            return self._measured(sign, begin, quoted)
        reference = self._reference(begin)
        if self._takes("}"):
            return self._plain(reference, begin, quoted)
        for signs in ((":-", ":=", ":+", ":?"), ("-", "=", "+", "?")):
            for sign in signs:
                if self._takes(sign):
                    return self._default(reference, sign, begin, quoted)
        return self._changed(reference, begin, quoted)

    def _reference(self, begin: int) -> _Reference:
        match = NAME.match(self.text, self.at, self.end) or re.compile(r"\d+|[@*#?$!-]").match(self.text, self.at, self.end)
        if match is None:
            self.refuse("this expansion is not understood", begin)
        self.at = match.end()
        if not self._takes("["):
            return _Reference(match[0])
        index = self._bracketed(begin)
        return _Reference(match[0], index)

    def _bracketed(self, begin: int) -> str:
        start, depth = self.at, 1
        while self.at < self.end:
            char = self.text[self.at]
            depth += (char == "[") - (char == "]")
            self.at += 1
            if not depth:
                return self.text[start : self.at - 1]
        return self.refuse("a bracket is not closed", begin)

    def _takes(self, text: str) -> bool:
        if self.text.startswith(text, self.at) and self.at + len(text) <= self.end:
            self.at += len(text)
            return True
        return False

    def _measured(self, sign: str, begin: int, quoted: bool) -> list[Piece]:
        """``${#NAME}`` and ``${!NAME}``."""
        reference = self._reference(begin)
        if (sign == "!" and self._takes("@}")) or (sign == "!" and reference.index is None and self._takes("*}")):
            return [Piece(words=(Word((self._open(self._raw_of(begin), begin, "it stands for names of variables"),), loose=True),))]
        if sign == "!" and not self._takes("}"):
            self.refuse("this expansion is not understood", begin)
        if sign == "#" and not self._takes("}"):
            self.refuse("this expansion is not understood", begin)
        if sign == "!":
            return self._indirect(reference, begin, quoted)
        if reference.every:
            words = self.every(reference.name, begin)
            loose = next((word for word in words if word.loose), None)
            number: Text = (str(len(words)),) if loose is None else (self._open(self._raw_of(begin), begin, _why(Array((loose,)))),)
            if loose is not None and self.state.arguments is None and reference.name in "@*":
                number = self._positional("#", begin) or ()
            return [Piece(number, quoted=quoted, split=not quoted)]
        value = self.scalar(reference, begin) or ()
        text = plain(value)
        known = text is not None and text.isascii()
        return [
            Piece(
                (str(len(text or "")) if known else self._open(self._raw_of(begin), begin, _why_text(value)),),
                quoted=quoted,
                split=not quoted,
            )
        ]

    def _indirect(self, reference: _Reference, begin: int, quoted: bool) -> list[Piece]:
        name = plain(self.scalar(reference, begin) or ()) if not reference.every else None
        if name is not None and not NAME.fullmatch(name):
            self.refuse("the name of a variable is expected", begin)
        if reference.every or name is None:
            value = self._open(self._raw_of(begin), begin, "which variable it is, is open")
            return [Piece(words=(Word((value,), loose=True),), quoted=quoted)] if reference.every else [Piece((value,), quoted, not quoted)]
        return self._plain(_Reference(name), begin, quoted)

    def _default(self, reference: _Reference, sign: str, begin: int, quoted: bool) -> list[Piece]:
        """``${NAME:-default}`` and its kin."""
        start = self.at
        self._passed(begin)
        stop = self.at
        if reference.every and reference.name not in self.state.values and reference.name not in ("@", "*"):
            reference = _Reference(reference.name)
        missing, assumed = self._missing(reference, sign, begin)
        raw = self._raw_of(begin)
        if assumed and sign[-1] != "?":
            self._take(reference, begin)

        def operand() -> list[Piece]:
            return self._operand(start, stop, quoted)

        def own() -> list[Piece]:
            return self._plain(reference, begin, quoted)

        if sign[-1] == "?":
            return own() if not missing or assumed else self._asked(reference, raw, begin, quoted)
        if missing is None:
            sides = ((self.flat(own()),), (self.flat(operand()),)) if sign[-1] in "-=" else ((), (self.flat(operand()),))
            value = self.scalar(reference, begin) if not reference.every else None
            choice = Open(raw, self._here(begin), _why_text(value or ()), sides=sides)
            if sign[-1] == "=":
                self._assignable(reference, begin)
                self.state.values[reference.name] = (choice,)
            return [Piece((choice,), quoted, not quoted)]
        if sign[-1] == "+":
            none = [Piece((), quoted=True, words=() if reference.every else None)] if quoted else []
            return none if missing else operand()
        if not missing:
            return own()
        if sign[-1] == "=":
            return self._assigned(reference, start, stop, begin, quoted)
        return operand()

    def _asked(self, reference: _Reference, raw: str, begin: int, quoted: bool) -> list[Piece]:
        """What the script ends without: where it goes on, that is something."""
        value = Open(raw, self._here(begin), "the script ends where it is not set")
        if reference.index is None and NAME.fullmatch(reference.name):
            self.state.values[reference.name] = (value,)
        return [Piece((value,), quoted=quoted, split=not quoted)]

    def _assigned(self, reference: _Reference, start: int, stop: int, begin: int, quoted: bool) -> list[Piece]:
        self._assignable(reference, begin)
        text = self.flat(self._operand(start, stop, quoted))
        self.state.values[reference.name] = text
        return [Piece(text, quoted=quoted, split=not quoted)]

    def _assignable(self, reference: _Reference, begin: int) -> None:
        if reference.index is not None or not NAME.fullmatch(reference.name) or reference.name in self.state.readonly | self.state.integers:
            self.refuse("this assignment is not understood", begin)

    def _missing(self, reference: _Reference, sign: str, begin: int) -> tuple[bool | None, bool]:
        """Whether the other text is taken, None where that is open; and whether that takes what comes from outside as not set."""
        if reference.every:
            words = self.every(reference.name, begin)
            if any(word.loose for word in words):
                outside = reference.name in "@*" and self.state.arguments is None and self.state.foreign is None
                return (True, True) if outside else (None, False)
            if len(words) == 1 and sign[0] == ":":
                return emptiness(words[0].text)
            return not words, False
        value = self.scalar(reference, begin)
        if value is None:
            return True, False
        outside = reference.name not in self.state.values and (reference.name.isdigit() or bool(NAME.fullmatch(reference.name)))
        if sign[0] != ":" and not (outside and len(value) == 1 and isinstance(value[0], Open) and value[0].name == f"${reference.name}"):
            perhaps = all(isinstance(part, Open) and part.perhaps for part in value) and bool(value)
            return (None, False) if perhaps else (False, False)
        return emptiness(value)

    def _take(self, reference: _Reference, begin: int) -> None:
        """Note that something is taken as not set."""
        value = None if reference.every else self.scalar(reference, begin)
        for name in [part.name for part in opens(value or ())] or [f"${reference.name}"]:
            self.state.taken.setdefault(name, self._here(begin))

    def _passed(self, begin: int) -> None:
        """Pass over what stands before the closing brace, and over that."""
        if self.depth > _DEEPEST:
            self.refuse("this is nested too deeply", begin)
        self._skip(begin)

    def _skip(self, begin: int) -> None:
        while self.at < self.end and self.text[self.at] != "}":
            if self.text[self.at] == "\\":
                self.at += 2
            elif self.text.startswith("${", self.at):
                self.at += 2
                self._skip(begin)
            else:  # a brace in quotes ends it too early: then the quote is not closed, and that is refused
                self.at = self.source.nested.get(self.at, self.at + 1)
        if self.at >= self.end:
            self.refuse("a brace is not closed", begin)
        self.at += 1

    def _operand(self, start: int, stop: int, quoted: bool) -> list[Piece]:
        """What stands behind an operator, expanded."""
        inner = Expander(self.source, self.state, start, stop - 1, self.nested, self.depth + 1)
        if self.depth > _DEEPEST:
            self.refuse("this is nested too deeply", start)
        if quoted:
            pieces = inner.quoted_operand()
        else:
            pieces = []
            while inner.at < inner.end:
                pieces += inner._piece("}")
            if re.match(r"~", self.text[start:stop]):
                self.refuse("a folder of whoever runs the script", start)
        if inner.at != inner.end:
            self.refuse("this expansion is not understood", start)
        return pieces

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

    def _changed(self, reference: _Reference, begin: int, quoted: bool) -> list[Piece]:
        """A variable of which a part is taken, or replaced."""
        start = self.at
        self._passed(begin)
        stop = self.at - 1
        if reference.every:
            words = self.every(reference.name, begin)
            return [self._listed(self._some(words, reference, start, stop, begin), reference, quoted)]
        value = self.scalar(reference, begin)
        text = plain(value or ())
        if text is None or not text.isascii():
            opened: Text = (self._open(self._raw_of(begin), begin, _why_text(value or ())),)
            return [Piece(opened, quoted=quoted, split=not quoted)]
        return [Piece(self._cut(text, start, stop, begin), quoted=quoted, split=not quoted)]

    def _some(self, words: tuple[Word, ...], reference: _Reference, start: int, stop: int, begin: int) -> tuple[Word, ...]:
        """Some words of a list, or all of them changed."""
        slots = [part.strip() for part in self.text[start + 1 : stop].split(":")] if self.text[start] == ":" else None
        opened = (Word((self._open(self._raw_of(begin), begin, "it is not worked out"),), loose=True),)
        if any(word.loose for word in words):
            return opened
        if slots is None:
            texts = [plain(word.text) for word in words]
            return tuple(Word(self._cut(text, start, stop, begin)) for text in texts if text is not None) if None not in texts else opened
        numbers = [self.number(slot, begin) for slot in slots]
        if any(isinstance(number, Open) or number < 0 for number in numbers) or len(numbers) > 2:
            return opened
        first, *length = [number for number in numbers if isinstance(number, int)]
        if reference.name in ("@", "*"):
            if not first:
                return opened
            first -= 1
        return words[first : first + length[0]] if length else words[first:]

    def _cut(self, text: str, start: int, stop: int, begin: int) -> Text:
        """Apply the operator that stands at a place to a text."""
        operator = self.text[start : min(start + 2, stop)]
        opened: Text = (self._open(self._raw_of(begin), begin, "it is not worked out"),)
        if operator in ("##", "%%") or operator[0] in "#%":
            longest = operator in ("##", "%%")
            pattern = self.pattern(start + 1 + longest, stop)
            return opened if pattern is None else joined([_trimmed(text, pattern, operator[0], longest)])
        if operator[0] == ":":
            part = self._sliced(text, self.text[start + 1 : stop], begin)
            return opened if part is None else joined([part])
        if operator[0] == "/":
            result = self._replaced(text, start, stop)
            return opened if result is None else result
        if self.text[start:stop] in ("^^", ",,", "^", ","):
            change = str.upper if operator[0] == "^" else str.lower
            return joined([change(text) if operator in ("^^", ",,") else change(text[:1]) + text[1:]])
        return opened if operator[0] == "@" else self.refuse("this expansion is not understood", begin)

    def _sliced(self, text: str, slots: str, begin: int) -> str | None:
        if "?" in slots or "(" in slots or slots.count(":") > 1:
            self.refuse("this expansion is not understood", begin)
        numbers = [self.number(slot, begin) for slot in slots.split(":")]
        if any(isinstance(number, Open) for number in numbers):
            return None
        first, *length = [number for number in numbers if isinstance(number, int)]
        first = first + len(text) if first < 0 else first
        if first < 0 or (length and length[0] < 0):
            return None
        return text[first : first + length[0]] if length else text[first:]

    def _replaced(self, text: str, start: int, stop: int) -> Text | None:
        start += 1
        sign = self.text[start : start + 1] if self.text[start : start + 1] in ("/", "#", "%") else ""
        start += bool(sign)
        slash = self._slash(start, stop)
        pattern = self.pattern(start, slash)
        raw = self.text[slash + 1 : stop]
        if pattern is None or slash == start or re.search(r"[\\'\"&]", raw) or (not text and pattern.fullmatch("")):
            return None
        new = plain(self.flat(self._operand(slash + 1, stop + 1, quoted=False))) if slash < stop else ""
        if new is None or "&" in new:
            return None
        if sign in ("#", "%"):
            for size in range(len(text), -1, -1):
                part = text[:size] if sign == "#" else text[len(text) - size :]
                if pattern.fullmatch(part):
                    return joined([new + text[size:] if sign == "#" else text[: len(text) - size] + new])
            return joined([text])
        return joined([_substituted(text, pattern, new, every=sign == "/")])

    def _slash(self, start: int, stop: int) -> int:
        at = start
        while at < stop and self.text[at] != "/":
            if self.text[at] in "\\'\"$`":
                if self.text[at] != "\\":
                    self.refuse("this pattern is not understood", at)
                at += 1
            at += 1
        return min(at, stop)

    def pattern(self, start: int, stop: int) -> re.Pattern[str] | None:
        """A pattern that stands there; None where some of it is open."""
        inner = Expander(self.source, self.state, start, stop, self.nested, self.depth + 1)
        pieces = []
        while inner.at < inner.end:
            pieces += inner._piece("}")
        return self.matcher(pieces, start)

    def matcher(self, pieces: Sequence[Piece], begin: int) -> re.Pattern[str] | None:
        """Parts of a word as a pattern."""
        result = ""
        for piece in pieces:
            texts = [piece.text] if piece.words is None else [self.flat([piece])]
            for text in texts:
                known = plain(text)
                if known is None:
                    return None
                result += re.escape(known) if piece.quoted else self._translated(known, begin)
        return re.compile(result, re.DOTALL)

    def _translated(self, text: str, begin: int) -> str:
        if re.search(r"[?*+@!]\(|\\|\[\[|\[[^\]]*$|\[[!^]?\]", text):
            self.refuse("this pattern is not understood", begin)
        result = ""
        for token in re.findall(r"\[[^\]]*\]|.", text, re.DOTALL):
            if token[0] == "[" and len(token) > 1:
                inner = token[1:-1]
                negated = inner[:1] in ("!", "^")
                body = re.sub(r"([\\^&~|\[])", r"\\\1", inner[negated:])
                if any(a > b for a, b in re.findall(r"(.)-(.)", body)):
                    self.refuse("this pattern is not understood", begin)
                result += f"[{'^' if negated else ''}{body}]"
            else:
                result += {"*": ".*", "?": "."}.get(token, re.escape(token))
        return result

    # Numbers.

    def _number(self, quoted: bool) -> Piece:
        """``$((...))``."""
        begin, at = self.at, self._closing(self.at)
        assert at is not None
        self.at = at + 2
        inner = Expander(self.source, self.state, begin + 3, at, self.nested, self.depth + 1)
        number = inner.evaluated(begin)
        raw = self.text[begin : self.at]
        text: Text = (self._open(raw, begin, number.why) if isinstance(number, Open) else str(number),)
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

    def number(self, text: str, begin: int) -> int | Open:
        """A text of the script as a number."""
        return self.number_of(self.within(text), begin)

    def within(self, text: str) -> Text:
        """A text that stands within another one, expanded as if it were quoted."""
        if re.search(r"\$\(|[`\\']", text):
            self.refuse("this is not understood in brackets", self.at)
        source = Source(text, self.source.name, self._here(), self.source.opens, parse=False)
        return self.flat(Expander(source, self.state, 0, len(text), self.nested, self.depth + 1).quoted_operand())

    def number_of(self, text: Text, begin: int) -> int | Open:
        """A text as a number. What it assigns is assigned."""
        known = plain(text)
        changed = [
            a or b for a, b in re.findall(r"([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%&|^]?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)", shown(text))
        ]
        if known is None:
            self._unknown(changed, opens(text)[0], begin)
            return opens(text)[0]
        try:
            return Arithmetic(
                known, lambda name: self._variable(name, begin, 0), lambda name, value: self._write(name, value, begin)
            ).value()
        except OpenNumberError as error:
            self._unknown(changed, error.value, begin)
            return error.value
        except (FaultError, RecursionError) as error:
            self.refuse(f"arithmetic: {error}", begin)

    def _unknown(self, names: Iterable[str], value: Open, begin: int) -> None:
        for name in names:
            if name in self.state.readonly:
                self.refuse(f"`{name}` cannot be assigned", begin)
            self.state.values[name] = (Open(f"${name}", self._here(begin), value.why),)

    def _variable(self, name: str, begin: int, depth: int) -> int:
        if depth > 10:
            raise FaultError("variables that stand for one another")
        text = self.scalar(_Reference(name), begin)
        known = plain(text or ())
        if known is None:
            raise OpenNumberError(opens(text or ())[0])
        return Arithmetic(
            known, lambda inner: self._variable(inner, begin, depth + 1), lambda name, value: self._write(name, value, begin)
        ).value()

    def _write(self, name: str, value: int, begin: int) -> None:
        if name in self.state.readonly:
            self.refuse(f"`{name}` cannot be assigned", begin)
        if isinstance(self.state.values.get(name), Array | Table):
            self.refuse(f"`{name}` is a list", begin)
        self.state.values[name] = (str(value),)

    # Places.

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


def _is_open(char: str) -> bool:
    return FIRST_OPEN <= ord(char) <= LAST_OPEN


def _trimmed(text: str, pattern: re.Pattern[str], end: str, longest: bool) -> str:
    sizes = range(len(text), -1, -1) if longest else range(len(text) + 1)
    for size in sizes:
        part = text[:size] if end == "#" else text[len(text) - size :]
        if pattern.fullmatch(part):
            return text[size:] if end == "#" else text[: len(text) - size]
    return text


def _substituted(text: str, pattern: re.Pattern[str], new: str, *, every: bool) -> str:
    result, at = "", 0
    while at < len(text):
        size = next((size for size in range(len(text) - at, 0, -1) if pattern.fullmatch(text[at : at + size])), 0)
        if size:
            result, at = result + new, at + size
            if not every:
                break
        else:
            result, at = result + text[at], at + 1
    return result + text[at:]


def _why(value: Value) -> str:
    if isinstance(value, Array):
        return next((part.why for word in value.words for part in opens(word.text)), "it is open")
    return "it is open"


def _why_text(text: Text) -> str:
    return next((part.why for part in opens(text)), "it is not worked out")
