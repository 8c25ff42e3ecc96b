"""Braces of a shell: what ``a{b,c}`` and ``{1..8}`` come to, before anything else of a word is expanded."""

from __future__ import annotations

import re

#: So many words one word comes to at most.
MOST = 1_000
_SEQUENCE = re.compile(r"(-?\d{1,9}|[a-z]|[A-Z])\.\.(-?\d{1,9}|[a-z]|[A-Z])(?:\.\.(-?\d{1,9}))?")
#: What may be a sequence in other shells, or is one of very large numbers.
_PERHAPS = re.compile(r"[-+\w]+\.\.[-+\w]+(\.\.[-+\w]*)?")
_PASSED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|\$\{[^{}]*\}", re.DOTALL)


class UnsureError(Exception):
    """A word of which it is not worked out what it comes to, as it is too many."""


def braced(text: str) -> list[str]:
    """The words that one comes to, as they are written. Quotes stay, and what they hold is left alone. Raises UnsureError."""
    at = 0
    while at < len(text):
        if passed := _PASSED.match(text, at):
            at = passed.end()
            continue
        close = _closing(text, at) if text[at] == "{" else None
        inner = None if close is None else _alternatives(text[at + 1 : close])
        if close is None or inner is None:
            at += 1
            continue
        rest = braced(text[close + 1 :])
        if len(inner) * len(rest) > MOST:
            raise UnsureError
        return [text[:at] + one + other for one in inner for other in rest]
    return [text]


def _closing(text: str, at: int) -> int | None:
    """Where the brace is closed that is opened at a place."""
    depth = 0
    while at < len(text):
        if passed := _PASSED.match(text, at):
            at = passed.end()
            continue
        depth += (text[at] == "{") - (text[at] == "}")
        if not depth:
            return at
        at += 1
    return None


def _alternatives(text: str) -> list[str] | None:
    """What braces with a text between them stand for; None where they stand for themselves."""
    parts, start, depth, at = list[str](), 0, 0, 0
    while at < len(text):
        if passed := _PASSED.match(text, at):
            at = passed.end()
            continue
        depth += (text[at] == "{") - (text[at] == "}")
        if text[at] == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    if parts:
        return [word for part in (*parts, text[start:]) for word in braced(part)]
    if match := _SEQUENCE.fullmatch(text):
        return _sequence(*match.groups())
    if _PERHAPS.fullmatch(text):
        raise UnsureError
    return None


def _sequence(first: str, last: str, by: str | None) -> list[str]:
    kinds = {"letters" if one.islower() else "capitals" if one.isupper() else "numbers" for one in (first, last)}
    if len(kinds) > 1:  # what lies between letters and capitals are signs, some of them quotes
        raise UnsureError
    letters = "numbers" not in kinds
    begin, end = (ord(first), ord(last)) if letters else (int(first), int(last))
    step = abs(int(by or 1)) or 1
    numbers = range(begin, end + 1, step) if begin <= end else range(begin, end - 1, -step)
    if len(numbers) > MOST:
        raise UnsureError
    if letters:
        return [chr(number) for number in numbers]
    padded = any(re.match(r"-?0\d", side) for side in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{number:0{width}d}" for number in numbers]
