"""Variables that a script declares: exported, read only, numbers, lists, tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from placeproof.importers.shell.conditions import YES, Status
from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import Array, Span, Table, Text, UnreadError, Value, Word, plain
from placeproof.importers.shell.walk.script import Script
from placeproof.importers.shell.words.cursor import NAME
from placeproof.importers.shell.words.expander import Expander

DECLARING = ("export", "declare", "typeset", "local", "readonly")


@dataclass(slots=True)
class Parts:
    """A simple command as it is read: variables of its own, words, and the text that it is given as input."""

    words: list[Word]
    own: dict[str, Value]
    text: Text | None = None
    declared: list[tuple[str, bool]] | None = None
    pending: list[tuple[str, object, Span]] = field(default_factory=list)
    #: Options of a shell that is run.
    flags: set[str] = field(default_factory=set)


class Declarations(Script):
    """Walks declarations."""

    def _settle(self, parts: Parts, source: Source) -> None:
        """Declare variables, once everything is expanded."""
        names = [name for name, _, _ in parts.pending]
        lists = any(isinstance(value, Array | Table) for _, value, _ in parts.pending)
        if len(set(names)) < len(names) or (lists and len(names) > 1):
            raise UnreadError("what is declared together is not understood", parts.pending[0][2], source.name)
        options = {option for option, _ in parts.declared or ()}
        for name, value, span in parts.pending:
            self._declared(plain(parts.words[0].text) or "", options, name, value, source, span)

    def _declare(self, expander: Expander, parts: Parts) -> None:
        """One argument of `export`, `declare`, `local` or `readonly`."""
        source, keyword = expander.source, plain(parts.words[0].text) or ""
        if parts.declared is None:
            parts.declared = []
        options = {option for option, _ in parts.declared}
        begin = expander.at
        name = NAME.match(source.text, begin)
        if "A" in options and name is not None:
            self.state.tables.add(name[0])
        if self.assign(expander, lambda name, value, span: parts.pending.append((name, value, span))):
            return
        for word in expander.word():
            text = plain(word.text)
            if text is None or word.loose:
                raise UnreadError("what is declared is not known", source.span(begin, expander.at), source.name)
            self._declare_word(keyword, text, parts, options, source, source.span(begin, expander.at))

    def _declare_word(self, keyword: str, text: str, parts: Parts, options: set[str], source: Source, span: Span) -> None:
        if re.fullmatch(r"[-+][a-zA-Z]+|--", text):
            if not set(text[1:]) <= set("aAixrgpfFn-") or (text[0] == "+" and text != "+x") or ("n" in text and keyword != "export"):
                raise UnreadError("this option is not understood", span, source.name)
            assert parts.declared is not None
            parts.declared += [(letter, True) for letter in text[1:]]
            return
        name, sign, value = text.partition("=")
        if not NAME.fullmatch(name):
            if options & set("fFp"):
                self.state.exported |= {f"{name}()"} if keyword == "export" else set()
                return
            raise UnreadError("what is declared is not known", span, source.name)
        if sign:
            if "A" in options or "a" in options or isinstance(self.state.values.get(name), Array | Table):
                raise UnreadError("a list is declared by a text", span, source.name)
            parts.pending.append((name, (value,) if value else (), span))
        elif not options & set("fFp"):
            parts.pending.append((name, ..., span))
        elif keyword == "export":
            self.state.exported.add(f"{name}()")

    def _declared(self, keyword: str, options: set[str], name: str, value: object, source: Source, span: Span) -> None:
        """Declare a variable, with a value or without (``...``)."""
        state = self.state
        local = keyword == "local" or (keyword in ("declare", "typeset") and "g" not in options and bool(state.frames))
        if keyword == "local" and not state.frames:
            raise UnreadError("`local` stands outside of a function", span, source.name)
        if local and name not in state.frames[-1]:
            if name in state.readonly | state.integers:
                raise UnreadError(f"`{name}` cannot be assigned", span, source.name)
            state.frames[-1][name] = (name in state.values, state.values.get(name))
            if value is ...:
                state.values[name] = None
        if "i" in options:
            if state.frames or name in state.tables:
                raise UnreadError("a variable of numbers is declared in a function", span, source.name)
            state.integers.add(name)
        if "A" in options:
            state.tables.add(name)
            value = Table({}) if value is ... and not isinstance(state.values.get(name), Table) else value
        elif "a" in options and value is ... and not isinstance(state.values.get(name), Array):
            value = Array(()) if state.values.get(name) is None and (local or name in state.values) else ...
        if value is not ...:
            self.put(name, value, source, span)  # type: ignore[arg-type]
        if keyword == "export" or "x" in options:
            (state.exported.discard if "n" in options else state.exported.add)(name)
        if keyword == "readonly" or "r" in options:
            state.readonly.add(name)

    def _declared_by_words(self, name: str, words: Sequence[Word], source: Source, span: Span) -> Status:
        parts = Parts([*words[:1]], {}, declared=[])
        for word in words[1:]:
            text = plain(word.text)
            if text is None or word.loose:
                raise UnreadError("what is declared is not known", span, source.name)
            self._declare_word(name, text, parts, {option for option, _ in parts.declared or ()}, source, span)
        self._settle(parts, source)
        return YES
