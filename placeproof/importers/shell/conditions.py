"""Conditions of a shell: what `[`, `test` and `[[` say, and what is open of that.

Where a script asks whether something is set that comes from outside, it is taken as not set, and the answer is ``assumed``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placeproof.importers.shell.values import Open, Text, Word, joined, opens, plain

if TYPE_CHECKING:
    from placeproof.importers.shell.words.cursor import Piece
from placeproof.importers.shell.words.expander import Expander

_UNARY = "abcdefghknoprstuvwxzGLNORS"
_NUMBERS = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
_BINARY = {"=", "==", "!=", "<", ">", "-nt", "-ot", "-ef", *_NUMBERS}
#: What of an extended regular expression means the same in Python.
_REGEX = re.compile(r"(?:[\w .,:/@%=~-]|\\[.+*?()\[\]{}|^$/-]|\[\^?[\w.,:/@% +-]+\]|[.^$*+?()|])*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Status:
    """Whether something holds, or a command succeeds; None where that is open. ``assumed``: if what comes from outside is not set."""

    value: bool | None = None
    assumed: bool = False
    outside: tuple[Open, ...] = ()

    def __invert__(self) -> Status:
        """The opposite."""
        return Status(None if self.value is None else not self.value, self.assumed, self.outside)


YES, NO, UNCLEAR = Status(True), Status(False), Status()


def both(left: Status, right: Status) -> Status:
    """Whether two things hold."""
    for side in (left, right):
        if side.value is False and not side.assumed:
            return NO
    for side in (left, right):
        if side.value is False:
            return side
    if None in (left.value, right.value):
        return UNCLEAR
    return Status(True, left.assumed or right.assumed, left.outside + right.outside)


def either(left: Status, right: Status) -> Status:
    """Whether one of two things holds."""
    return ~both(~left, ~right)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A text that is compared: None where it is open; ``outside``: what was taken as not set for it; ``count``: that is `$#` alone."""

    text: str | None
    outside: tuple[Open, ...] = ()
    count: bool = False


def _operand(text: Text) -> _Operand:
    outside = opens(text)
    if not outside:
        return _Operand(plain(text))
    if not all(part.unset or part.name == "$#" for part in outside):
        return _Operand(None)
    known = "".join(part if isinstance(part, str) else "0" if part.name == "$#" else "" for part in text)
    return _Operand(known, outside, count=all(part.name == "$#" for part in outside))


def test(words: Sequence[Word], expander: Expander) -> Status:
    """What ``test`` says of its words."""
    if any(word.loose and _operand(word.text).text is None for word in words):
        return UNCLEAR
    operands = [_operand(word.text) for word in words]
    outside = tuple(part for operand, word in zip(operands, words, strict=True) if word.loose for part in operand.outside)
    kept = [operand for operand, word in zip(operands, words, strict=True) if not word.loose or operand.text]
    status = _tested(kept, expander)
    if outside and status.value is not None:
        asked = len(kept) - (bool(kept) and kept[0].text == "!") < 2
        if asked or all(part.name == "$#" for part in outside):
            return Status(status.value, True, status.outside + outside)
        return UNCLEAR
    return status


def _tested(words: list[_Operand], expander: Expander) -> Status:
    texts = [word.text for word in words]
    match len(words):
        case 0:
            return NO
        case 1:
            return _filled(words[0])
        case 2 if texts[0] == "!":
            return ~_tested(words[1:], expander)
        case 2:
            return _unary(texts[0], words[1], expander)
        case 3 if texts[1] in _BINARY:
            return _binary(words[0], str(texts[1]), words[2])
        case 3 if texts[0] == "!":
            return ~_tested(words[1:], expander)
        case 3 if texts[0] == "(" and texts[2] == ")":
            return _tested(words[1:2], expander)
        case 4 if texts[0] == "!" and texts[2] in _BINARY:
            return ~_tested(words[1:], expander)
    if None in texts[1::2] and len(words) == 3:
        return UNCLEAR
    return _joined(words, texts, expander)


def _joined(words: list[_Operand], texts: Sequence[str | None], expander: Expander) -> Status:
    """Tests that `-a` and `-o` join."""
    for sign, rule in (("-o", either), ("-a", both)):
        if sign in texts and "(" not in texts:
            at = len(texts) - 1 - texts[::-1].index(sign)
            if 0 < at < len(texts) - 1:
                return rule(_tested(words[:at], expander), _tested(words[at + 1 :], expander))
    if len(words) == 3 and None not in texts:
        return NO  # it is a mistake, and fails
    return expander.refuse("this test is not understood", expander.at)


def _filled(word: _Operand) -> Status:
    if word.text is None:
        return UNCLEAR
    if word.outside and not word.text:
        return Status(False, True, word.outside)
    return Status(bool(word.text))


def _unary(sign: str | None, word: _Operand, expander: Expander) -> Status:
    if sign == "-n":
        return _filled(word)
    if sign == "-z":
        return ~_filled(word)
    if sign is not None and re.fullmatch(f"-[{_UNARY}]", sign):
        if sign == "-v" and word.text is not None and re.fullmatch(r"[A-Za-z_]\w*", word.text) and not word.outside:
            return _set(word.text, expander)
        return UNCLEAR
    return UNCLEAR if sign is None else NO


def _set(name: str, expander: Expander) -> Status:
    value = expander.state.held(name, (1, 1, 1))
    if name in expander.state.values:
        perhaps = isinstance(value, tuple) and bool(value) and all(isinstance(part, Open) for part in value)
        return UNCLEAR if perhaps or not isinstance(value, tuple | None) else Status(value is not None)
    outside = opens(value) if isinstance(value, tuple) else ()
    return Status(False, True, outside) if all(part.unset for part in outside) else UNCLEAR


def _binary(left: _Operand, sign: str, right: _Operand) -> Status:
    outside = left.outside + right.outside
    if left.text is None or right.text is None:
        return UNCLEAR
    if sign in ("=", "==", "!="):
        equal = left.text == right.text
        if outside and not equal:
            return UNCLEAR
        return Status(equal is (sign != "!="), bool(outside), outside)
    if sign in _NUMBERS:
        numbers = [_whole(side.text or "") for side in (left, right)]
        if outside and not (all(side.count for side in (left, right) if side.outside)):
            return UNCLEAR
        if None in numbers:
            return Status(False, bool(outside), outside)  # it is a mistake, and fails
        return _compared(sign, numbers[0] or 0, numbers[1] or 0, outside)
    return UNCLEAR


def _compared(sign: str, a: int, b: int, outside: tuple[Open, ...]) -> Status:
    holds = {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[sign]
    return Status(holds, bool(outside), outside)


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*[-+]?\d{1,18}\s*", text, re.ASCII) else None


class Brackets:
    """What ``[[ ... ]]`` says. Raises UnreadError."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander

    def status(self) -> Status:
        """Read all."""
        status = self._either()
        if self._more():
            self.expander.refuse("this condition is not understood", self.expander.at)
        return status

    def _more(self) -> bool:
        return self.expander.blank(lines=True)

    def _sign(self, *signs: str) -> str:
        """Pass over one of these, where it stands alone."""
        if not self._more():
            return ""
        rest = self.expander.text[self.expander.at : self.expander.end]
        for sign in signs:
            if rest.startswith(sign) and (sign in ("(", ")", "&&", "||") or rest[len(sign) : len(sign) + 1] in ("", " ", "\t", "\n")):
                self.expander.at += len(sign)
                return sign
        return ""

    def _either(self) -> Status:
        status = self._both()
        while self._sign("||"):
            status = either(status, self._passing(status, True, self._both))
        return status

    def _both(self) -> Status:
        status = self._negated()
        while self._sign("&&"):
            status = both(status, self._passing(status, False, self._negated))
        return status

    def _passing(self, before: Status, decided: bool, part: Callable[[], Status]) -> Status:
        """The other side. What it assigns is undone where a shell would not look at it."""
        kept = self.expander.state.values
        if before.value is decided or before.value is None or before.assumed:
            self.expander.state.values = dict(kept)
            status = part()
            if self.expander.state.values != kept and before.value is not decided:
                self.expander.refuse("whether this assigns something is open", self.expander.at)
            self.expander.state.values = kept
            return status
        return part()

    def _negated(self) -> Status:
        if self._sign("!"):
            return ~self._negated()
        if self._sign("("):
            status = self._either()
            if not self._sign(")"):
                self.expander.refuse("this condition is not understood", self.expander.at)
            return status
        return self._compared()

    def _word(self) -> list[Piece]:
        begin = self.expander.at
        pieces = self.expander.pieces() if self._more() else []
        if self.expander.at == begin:
            self.expander.refuse("this condition is not understood", begin)
        return pieces

    def _compared(self) -> Status:
        expander, begin = self.expander, self.expander.at
        signs = tuple(f"-{letter}" for letter in _UNARY)
        self._more()
        sign = self._sign(*signs)
        if sign and not self._ended():
            word = _operand(expander.flat(self._word()))
            return _unary(sign, word, expander)
        if sign:
            expander.refuse("this condition is not understood", begin)
        left = _operand(expander.flat(self._word()))
        sign = self._sign("==", "=", "!=", "=~", *_NUMBERS, "-nt", "-ot", "-ef", "<", ">")
        if not sign:
            return _filled(left)
        self._more()
        if sign == "=~":
            return self._matched(left)
        if sign in ("==", "=", "!="):
            return self._like(left, sign != "!=")
        right = _operand(expander.flat(self._word()))
        if sign in _NUMBERS:
            return self._numbers(left, sign, right, begin)
        return UNCLEAR

    def _ended(self) -> bool:
        rest = self.expander.text[self.expander.at : self.expander.end].strip()
        return not rest or rest.startswith(("&&", "||", ")"))

    def _like(self, left: _Operand, wanted: bool) -> Status:
        begin = self.expander.at
        pieces = self._word()
        right = _operand(self.expander.flat(pieces))
        if left.text is None or right.text is None:
            return UNCLEAR
        if right.outside:
            return _binary(left, "=" if wanted else "!=", right)
        pattern = self.expander.matcher(pieces, begin)
        assert pattern is not None
        holds = pattern.fullmatch(left.text) is not None
        if left.outside and (not holds or right.text):
            return UNCLEAR
        return Status(holds is wanted, bool(left.outside), left.outside)

    def _matched(self, left: _Operand) -> Status:
        expander, begin = self.expander, self.expander.at
        match = re.compile(r"[^\s'\"$`\\]+(?=\s|$)|(?:[^\s'\"`$\\]|\$(?=[\s)|]|$)|\\.)+(?=\s|$)").match(expander.text, begin, expander.end)
        if match is None:
            expander.refuse("this expression is not understood", begin)
        expander.at = match.end()
        if left.text is None or left.outside:
            return UNCLEAR
        if not _REGEX.fullmatch(match[0]) or re.search(r"[(*+?|^][*+?]|^[*+?]", match[0]):
            expander.refuse("this expression is not understood", begin)
        try:
            pattern = re.sub(r"\\.|\$", lambda found: r"\Z" if found[0] == "$" else found[0], match[0])
            return Status(re.search(pattern, left.text, re.ASCII | re.DOTALL) is not None)
        except re.error:
            expander.refuse("this expression is not understood", begin)

    def _numbers(self, left: _Operand, sign: str, right: _Operand, begin: int) -> Status:
        outside = left.outside + right.outside
        if left.text is None or right.text is None or not all(side.count for side in (left, right) if side.outside):
            return UNCLEAR
        numbers = [self.expander.number_of(joined([side.text or ""]), begin) for side in (left, right)]
        a, b = numbers
        if isinstance(a, Open) or isinstance(b, Open):
            return UNCLEAR
        return _compared(sign, a, b, outside)
