"""Patterns of a shell, as regular expressions, and what they cut off and replace."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

from placeproof.importers.shell.values import plain
from placeproof.importers.shell.words.cursor import Piece
from placeproof.importers.shell.words.variables import Variables


class Patterns(Variables):
    """Reads patterns."""

    @abstractmethod
    def _piece(self, stops: str) -> list[Piece]:
        """What stands next, up to a character that ends it."""

    def pattern(self, start: int, stop: int) -> re.Pattern[str] | None:
        """A pattern that stands there; None where some of it is open."""
        inner = self.inside(start, stop)
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


def trimmed(text: str, pattern: re.Pattern[str], end: str, longest: bool) -> str:
    """A text without what a pattern matches at its beginning (`#`) or its end."""
    sizes = range(len(text), -1, -1) if longest else range(len(text) + 1)
    for size in sizes:
        part = text[:size] if end == "#" else text[len(text) - size :]
        if pattern.fullmatch(part):
            return text[size:] if end == "#" else text[: len(text) - size]
    return text


def substituted(text: str, pattern: re.Pattern[str], new: str, *, every: bool) -> str:
    """A text with what a pattern matches replaced: the first place, or every one."""
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
