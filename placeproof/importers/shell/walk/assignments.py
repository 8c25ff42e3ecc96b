"""What assignments make of variables: texts, lists, tables, numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from placeproof.importers.shell.conditions import UNCLEAR, YES, Status
from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import Array, Open, Span, Table, Text, UnreadError, Value, Word, joined, plain
from placeproof.importers.shell.walk.frames import Walk
from placeproof.importers.shell.words.cursor import Piece
from placeproof.importers.shell.words.expander import Expander

if TYPE_CHECKING:
    from tree_sitter import Node

_UNTOUCHED = re.compile(r"POSIXLY_CORRECT|BASH_COMPAT|BASHOPTS|SHELLOPTS|UID|EUID|PPID|BASH_VERSINFO")


class Assignments(Walk):
    """Walks assignments."""

    def _assignments(self, source: Source, node: Node) -> Status:
        start, end = source.range(node)
        while source.text[start:end].endswith("\n") and not source.text[start:end].endswith("\\\n"):
            end -= 1
        expander = Expander(source, self.state, start, end, self.nested)
        while expander.blank():
            if not self.assign(expander):
                raise UnreadError("this is not understood", source.span(expander.at, end), source.name)
        return YES if not re.search(r"\$\(|`", source.text[start:end]) else UNCLEAR

    def assign(self, expander: Expander, put: Callable[[str, Value, Span], None] | None = None) -> bool:
        """One assignment, if that is what comes next."""
        source, begin = expander.source, expander.at
        match = re.compile(r"([A-Za-z_]\w*)(\[)?", re.ASCII).match(expander.text, begin, expander.end)
        if match is None:
            return False
        index = None
        if match[2]:
            close = expander.text.find("]", match.end(), expander.end)
            index = expander.text[match.end() : close] if close >= 0 else None
            if index is None or "[" in index or not re.match(r"\+?=", expander.text[close + 1 : expander.end]):
                return False
            expander.at = close + 1
        else:
            expander.at = match.end()
        sign = re.compile(r"\+?=").match(expander.text, expander.at, expander.end)
        if sign is None:
            expander.at = begin
            return False
        expander.at = sign.end()
        span = source.span(begin, expander.at)
        if expander.text[expander.at : expander.at + 1] == "(" and expander.at < expander.end:
            if index is not None:
                expander.refuse("a list is no field of a list", begin)
            value: Value = self._array(expander, match[1], begin)
        else:
            value = expander.value()
        self._store(match[1], index, value, sign[0] == "+=", expander, begin, put or (lambda n, v, s: self.put(n, v, source, s)), span)
        return True

    def _array(self, expander: Expander, name: str, begin: int) -> Value:
        """A list in parentheses."""
        close = self._closing(expander)
        inner = Expander(expander.source, self.state, expander.at + 1, close, self.nested)
        rows: dict[str, Text] = {}
        words: list[Word] = []
        keyed = re.compile(r"\[([^\]]*)\]=")
        while inner.blank(lines=True):
            if (key := keyed.match(inner.text, inner.at, close)) is not None:
                inner.at = key.end()
                index = key[1]
                text = index[1:-1] if re.fullmatch(r"'[^']*'", index) else plain(inner.within(index))
                if text is None or name not in self.state.tables:
                    inner.refuse("keys are read in tables alone, `declare -A`", begin)
                rows[text] = inner.value()
            else:
                words += inner.word()
        expander.at = close + 1
        if expander.at < expander.end and not re.match(r"\s|[;&|)\\]", expander.text[expander.at]):
            expander.refuse("something stands behind a list", begin)
        if name in self.state.tables:
            if words:
                expander.refuse("a table has keys", begin)
            return Table(rows)
        return Array(tuple(words))

    def _closing(self, expander: Expander) -> int:
        """Where the parenthesis is closed that is opened here."""
        copy = Expander(expander.source, self.state.copy(), expander.at + 1, expander.end)
        keyed = re.compile(r"\[([^\]]*)\]=")
        while copy.blank(lines=True) and copy.text[copy.at] != ")":
            if (key := keyed.match(copy.text, copy.at, copy.end)) is not None:
                copy.at = key.end()
                copy.value()
            else:
                copy.word()
        if copy.at >= copy.end:
            expander.refuse("a parenthesis is not closed", expander.at)
        return copy.at

    def _store(
        self, name: str, index: str | None, value: Value, added: bool, expander: Expander, begin: int,
        put: Callable[[str, Value, Span], None], span: Span,
    ) -> None:  # fmt: skip
        before = self.state.held(name, span) if added or index is not None else self.state.values.get(name)
        known = name in self.state.values
        if index is not None:
            put(name, self._field(name, index, value, added, expander, begin), span)
        elif not added:
            if isinstance(before, Array) and isinstance(value, tuple):  # the first of a list alone is assigned
                first = Array((Word(value), *before.words[1:]))
                loose = bool(before.words) and before.words[0].loose
                put(name, (Open(f"${name}", span, "a list is assigned to"),) if loose else first, span)
            elif isinstance(before, Table) and isinstance(value, tuple):
                expander.refuse("a table is assigned to", begin)
            else:
                put(name, value, span)
        elif isinstance(value, Table) or isinstance(before, Table):
            if not isinstance(value, Table) or not isinstance(before, Table | None):
                expander.refuse("a table is added to", begin)
            put(name, Table({**(before.rows if before is not None else {}), **value.rows}), span)
        elif isinstance(value, Array):
            first_words = before.words if isinstance(before, Array) else () if before is None else (Word(before, loose=not known),)
            put(name, Array((*first_words, *value.words)), span)
        elif isinstance(before, Array):
            if not before.words or before.words[0].loose:
                expander.refuse("the first of a list is added to, which is not known", begin)
            put(name, Array((Word(joined([*before.words[0].text, *(value or ())])), *before.words[1:])), span)
        elif name in self.state.integers:
            put(name, joined([*(before or ("0",)), "+(", *(value or ("0",)), ")"]), span)
        else:
            put(name, joined([*(before or ()), *(value or ())]), span)

    def _field(self, name: str, index: str, value: Value, added: bool, expander: Expander, begin: int) -> Value:
        """A list or a table of which one text is assigned."""
        assert isinstance(value, tuple)
        before = self.state.values.get(name)
        if name in self.state.tables:
            key = index[1:-1] if re.fullmatch(r"'[^']*'", index) else plain(expander.within(index))
            if key is None or not isinstance(before, Table | None):
                expander.refuse("the key of this table is open", begin)
            rows = dict(before.rows) if before is not None else {}
            rows[key] = joined([*rows.get(key, ()), *value]) if added else value
            return Table(rows)
        number = expander.number(index, begin)
        words = list(before.words) if isinstance(before, Array) else []
        if isinstance(before, tuple) or (before is None and name not in self.state.values):
            return self._fresh(name, number, value, added, before, expander, begin)
        if isinstance(number, Open) or any(word.loose for word in words) or not 0 <= number <= len(words):
            expander.refuse("which one of this list is assigned is not known, or it has gaps", begin)
        old = words[number].text if number < len(words) else ()
        words[number : number + 1] = [Word(joined([*old, *value]) if added else value)]
        return Array(tuple(words))

    def _fresh(self, name: str, number: int | Open, value: Text, added: bool, before: Value, expander: Expander, begin: int) -> Value:
        """A list that begins with one text that is assigned."""
        if number != 0 or before is not None or added:
            expander.refuse("which one of this list is assigned is not known, or it has gaps", begin)
        self.state.taken.setdefault(f"${name}", expander.source.span(begin, begin + 1))
        return Array((Word(value),))

    def put(self, name: str, value: Value, source: Source, span: Span) -> None:
        """Set a variable."""
        if name in self.state.readonly or _UNTOUCHED.fullmatch(name):
            raise UnreadError(f"`{name}` cannot be assigned", span, source.name)
        self.state.values[name] = self._worked_out(value, source, span) if name in self.state.integers else value
        if "a" in self.state.flags:
            self.state.exported.add(name)

    def _worked_out(self, value: Value, source: Source, span: Span) -> Value:
        """What a variable of numbers comes to hold."""
        if isinstance(value, Array | Table | None):
            raise UnreadError("a list of numbers is not understood", span, source.name)
        inner = Source("", source.name, span, parse=False)
        number = Expander(inner, self.state, 0, 0).number_of(value, 0)
        return (number if isinstance(number, Open) else str(number),)

    # Expansions.

    def _expander(self, source: Source, node: Node) -> Expander:
        return Expander(source, self.state, *source.range(node), self.nested)

    def _expanded(self, source: Source, start: int, end: int) -> list[Word]:
        return Expander(source, self.state, start, end, self.nested).words()

    def _whole(self, source: Source, node: Node) -> list[Piece]:
        """The parts of a node that is one word."""
        expander = self._expander(source, node)
        pieces = expander.pieces(assigned=True)
        if expander.at != expander.end:
            raise UnreadError("this is not understood", source.place(node), source.name)
        return pieces
