"""How much may be written while the terms of one program are worked out: a power of a long sum, written out, may have no end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from placeproof.prove.terms.remembered import forget

#: Characters, counted with each monomial and each term that is made, which itself counts as many: about a minute. No single one may be
#: a fiftieth of that.
MOST, EACH = 3_000_000_000, 500
_left = 10**100


class TooLargeError(Exception):
    """More would be written than may be."""


#: What is raised where terms grow too large or too deep, and how this is said.
TOO_LARGE, WHY = (TooLargeError, RecursionError), "what is computed there is too large once it is written out as a sum of products"


def spend(characters: int) -> None:
    """So much is written. Raises TooLargeError."""
    global _left  # noqa: PLW0603
    _left -= EACH + characters
    if _left < 0 or characters > MOST // 50:
        raise TooLargeError


@contextmanager
def limited() -> Iterator[None]:
    """As much may be written as for one program, with nothing remembered of others: whether it is too much depends on it alone."""
    global _left  # noqa: PLW0603
    before, _left = _left, MOST
    forget()
    try:
        yield
    finally:
        _left = before
