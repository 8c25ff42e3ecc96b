"""What variables come to where they are expanded, and texts as numbers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable

from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import STARTED, Array, Open, Table, Text, Value, Word, joined, opens, plain, shown
from placeproof.importers.shell.words.arithmetic import Arithmetic, FaultError
from placeproof.importers.shell.words.cursor import SPECIAL, Cursor, Piece, Reference, why_of

#: What a shell sets anew each time that it is read.
_DYNAMIC = re.compile(
    r"RANDOM|SRANDOM|SECONDS|LINENO|BASHPID|EPOCH\w+|FUNCNAME|BASH_\w+|PIPESTATUS|DIRSTACK|GROUPS|HISTCMD|PWD|OLDPWD|UID|EUID|PPID|_"
)


class OpenNumberError(Exception):
    """A number that is open."""

    def __init__(self, value: Open) -> None:
        super().__init__(value.name)
        self.value = value


class Variables(Cursor, ABC):
    """Reads variables: words, positions, items of lists and tables."""

    @abstractmethod
    def quoted_operand(self) -> list[Piece]:
        """All of a text that stands behind an operator within quotes."""

    def _plain(self, reference: Reference, begin: int, quoted: bool) -> list[Piece]:
        """A variable, with nothing done to it."""
        if reference.every:
            return [self._listed(self.every(reference.name, begin), reference, quoted)]
        value = self.scalar(reference, begin)
        if value is None and "u" in self.state.flags:
            self.refuse(f"`{reference.name}` is not set, which ends the script under `set -u`", begin)
        return [Piece(value or (), quoted=quoted, split=not quoted)]

    def _listed(self, words: tuple[Word, ...], reference: Reference, quoted: bool) -> Piece:
        if not (quoted and reference.star):
            return Piece(words=words, quoted=quoted)
        value = self.state.values.get("IFS", (" ",))
        between = " " if value is None else plain(value) if isinstance(value, tuple) else None
        if between is None:
            self.refuse("it is not known what `IFS` is", self.at)
        if len(words) > 1 and any(word.loose for word in words):  # it may be no word, and then nothing is between
            return Piece((self._open(f"${{{reference.name}[*]}}", self.at, why_of(Array(words))),), quoted=True)
        parts: list[str | Open] = []
        for number, word in enumerate(words):
            parts += [between[:1], *word.text] if number else word.text
        return Piece(joined(parts), quoted=True)

    def scalar(self, reference: Reference, begin: int) -> Text | None:
        """The text of a variable, None where it is known to be unset."""
        name, state = reference.name, self.state
        if name.isdigit() or name in SPECIAL:
            return self._positional(name, begin)
        if _DYNAMIC.fullmatch(name):
            return (self._open(f"${name}", begin, "the shell sets it"),)
        value = state.held(name, self._here(begin))
        if reference.index is not None:
            return self._item(value, reference, begin)
        if isinstance(value, Array):
            first = value.words[0] if value.words else None
            return None if first is None else first.text if not first.loose else (self._open(f"${name}", begin, why_of(value)),)
        return value.rows.get("0") if isinstance(value, Table) else value

    def _positional(self, name: str, begin: int) -> Text | None:
        given = self.state.positional()
        if name in "?$!-" or name == "0":
            return (self._open(f"${name}", begin, "the shell sets it"),)
        if given is None:
            foreign = "" if self.state.foreign is None else self.state.foreign.why
            why = foreign or STARTED
            return (Open(f"${name}" if not foreign else f"${{{name}}}", self._here(begin), why, unset=not foreign and name != "#"),)
        loose = any(word.loose for word in given[: int(name)] if name.isdigit()) if name != "#" else any(word.loose for word in given)
        if loose:
            return (self._open(f"${{{name}}}", begin, why_of(Array(given))),)
        if name == "#":
            return (str(len(given)),)
        return given[int(name) - 1].text if int(name) <= len(given) else None

    def _item(self, value: Value, reference: Reference, begin: int) -> Text | None:
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
            return (self._open(self._raw_of(begin), begin, why_of(value)),)
        return value.words[number].text if -len(value.words) <= number < len(value.words) else None

    def every(self, name: str, begin: int) -> tuple[Word, ...]:
        """All words of a list."""
        if name in ("@", "*"):
            given = self.state.positional()
            if given is not None:
                return given
            return (Word((Open(f"${name}", self._here(begin), STARTED, unset=self.state.foreign is None),), loose=True),)
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

    # Numbers.

    def number(self, text: str, begin: int) -> int | Open:
        """A text of the script as a number."""
        return self.number_of(self.within(text), begin)

    def within(self, text: str) -> Text:
        """A text that stands within another one, expanded as if it were quoted."""
        if re.search(r"\$\(|[`\\']", text):
            self.refuse("this is not understood in brackets", self.at)
        source = Source(text, self.source.name, self._here(), self.source.opens, parse=False)
        return self.flat(type(self)(source, self.state, 0, len(text), self.nested, self.depth + 1).quoted_operand())

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
        text = self.scalar(Reference(name), begin)
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
