"""What is remembered from one term to the next: what substitutions gave, which fresh variables were used, and the record that is open."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placeproof.prove.terms.nodes import Poly
    from placeproof.prove.terms.recording import Record

#: What substitutions into an atom gave, by the atom and what was replaced in it: blocks' programs ask the same again and again.
substituted: dict[tuple[str, tuple[tuple[str, str], ...]], Poly] = {}
_MOST = 100_000
#: The numbers of fresh variables.
numbers: Iterator[int] = itertools.count()
#: The record that is open (:func:`placeproof.prove.terms.recording.recording`).
record: Record | None = None


def remember(key: tuple[str, tuple[tuple[str, str], ...]], result: Poly) -> Poly:
    """Keep what a substitution gave."""
    if len(substituted) >= _MOST:
        substituted.clear()
    substituted[key] = result
    return result


def forget(names: Iterator[int] | None = None) -> Iterator[int]:
    """Forget what substitutions gave, and number fresh variables from the beginning, or as ``names`` goes on; where they are now."""
    global numbers
    substituted.clear()
    before, numbers = numbers, itertools.count() if names is None else names
    return before
