"""What stands in ``${...}``: defaults, lengths, parts of texts and of lists, replacements."""

from __future__ import annotations

import re

from placeproof.importers.shell.values import Array, Open, Text, Word, emptiness, joined, opens, plain
from placeproof.importers.shell.words.cursor import DEEPEST, NAME, Piece, Reference, why_of, why_of_text
from placeproof.importers.shell.words.patterns import Patterns, substituted, trimmed


class Expansions(Patterns):
    """Reads variables with something done to them."""

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

    def _reference(self, begin: int) -> Reference:
        match = NAME.match(self.text, self.at, self.end) or re.compile(r"\d+|[@*#?$!-]").match(self.text, self.at, self.end)
        if match is None:
            self.refuse("this expansion is not understood", begin)
        self.at = match.end()
        if not self._takes("["):
            return Reference(match[0])
        index = self._bracketed(begin)
        return Reference(match[0], index)

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
            number: Text = (str(len(words)),) if loose is None else (self._open(self._raw_of(begin), begin, why_of(Array((loose,)))),)
            if loose is not None and self.state.arguments is None and reference.name in "@*":
                number = self._positional("#", begin) or ()
            return [Piece(number, quoted=quoted, split=not quoted)]
        value = self.scalar(reference, begin) or ()
        text = plain(value)
        known = text is not None and text.isascii()
        return [
            Piece(
                (str(len(text or "")) if known else self._open(self._raw_of(begin), begin, why_of_text(value)),),
                quoted=quoted,
                split=not quoted,
            )
        ]

    def _indirect(self, reference: Reference, begin: int, quoted: bool) -> list[Piece]:
        name = plain(self.scalar(reference, begin) or ()) if not reference.every else None
        if name is not None and not NAME.fullmatch(name):
            self.refuse("the name of a variable is expected", begin)
        if reference.every or name is None:
            value = self._open(self._raw_of(begin), begin, "which variable it is, is open")
            return [Piece(words=(Word((value,), loose=True),), quoted=quoted)] if reference.every else [Piece((value,), quoted, not quoted)]
        return self._plain(Reference(name), begin, quoted)

    # Defaults.

    def _default(self, reference: Reference, sign: str, begin: int, quoted: bool) -> list[Piece]:
        """``${NAME:-default}`` and its kin."""
        start = self.at
        self._passed(begin)
        stop = self.at
        if reference.every and reference.name not in self.state.values and reference.name not in ("@", "*"):
            reference = Reference(reference.name)
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
            choice = Open(raw, self._here(begin), why_of_text(value or ()), sides=sides)
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

    def _asked(self, reference: Reference, raw: str, begin: int, quoted: bool) -> list[Piece]:
        """What the script ends without: where it goes on, that is something."""
        value = Open(raw, self._here(begin), "the script ends where it is not set")
        if reference.index is None and NAME.fullmatch(reference.name):
            self.state.values[reference.name] = (value,)
        return [Piece((value,), quoted=quoted, split=not quoted)]

    def _assigned(self, reference: Reference, start: int, stop: int, begin: int, quoted: bool) -> list[Piece]:
        self._assignable(reference, begin)
        text = self.flat(self._operand(start, stop, quoted))
        self.state.values[reference.name] = text
        return [Piece(text, quoted=quoted, split=not quoted)]

    def _assignable(self, reference: Reference, begin: int) -> None:
        if reference.index is not None or not NAME.fullmatch(reference.name) or reference.name in self.state.readonly | self.state.integers:
            self.refuse("this assignment is not understood", begin)

    def _missing(self, reference: Reference, sign: str, begin: int) -> tuple[bool | None, bool]:
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

    def _take(self, reference: Reference, begin: int) -> None:
        """Note that something is taken as not set."""
        value = None if reference.every else self.scalar(reference, begin)
        for name in [part.name for part in opens(value or ())] or [f"${reference.name}"]:
            self.state.taken.setdefault(name, self._here(begin))

    def _passed(self, begin: int) -> None:
        """Pass over what stands before the closing brace, and over that."""
        if self.depth > DEEPEST:
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
        inner = self.inside(start, stop - 1)
        if self.depth > DEEPEST:
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

    # Changes.

    def _changed(self, reference: Reference, begin: int, quoted: bool) -> list[Piece]:
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
            opened: Text = (self._open(self._raw_of(begin), begin, why_of_text(value or ())),)
            return [Piece(opened, quoted=quoted, split=not quoted)]
        return [Piece(self._cut(text, start, stop, begin), quoted=quoted, split=not quoted)]

    def _some(self, words: tuple[Word, ...], reference: Reference, start: int, stop: int, begin: int) -> tuple[Word, ...]:
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
            return opened if pattern is None else joined([trimmed(text, pattern, operator[0], longest)])
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
        return joined([substituted(text, pattern, new, every=sign == "/")])

    def _slash(self, start: int, stop: int) -> int:
        at = start
        while at < stop and self.text[at] != "/":
            if self.text[at] in "\\'\"$`":
                if self.text[at] != "\\":
                    self.refuse("this pattern is not understood", at)
                at += 1
            at += 1
        return min(at, stop)
