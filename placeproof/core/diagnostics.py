"""Problems of an input, as data: a code, a place, what was expected, and a remedy.

Every reader in placeproof collects all problems of an input and raises them together as one :class:`InputError`, so that
a user mends a file once rather than once a mistake. Rendering is the business of ``report``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in an input something stands; lines and columns count from 1."""

    source: str
    line: int
    column: int
    length: int = 1
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One problem. ``code`` is a key of :data:`placeproof.core.codes.CODES`."""

    code: str
    message: str
    place: Place | None = None
    help: str | None = None
    notes: tuple[str, ...] = ()


class InputError(Exception):
    """An input cannot be used. Raised with every problem found; the command line turns it into exit code 2."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        if not self.diagnostics:
            raise ValueError("an InputError needs at least one diagnostic")
        super().__init__("\n".join(f"{d.code}: {d.message}" for d in self.diagnostics))


@dataclass(slots=True)
class Problems:
    """A collector: readers add to it and go on, and ``raise_if_any`` ends the reading."""

    found: list[Diagnostic] = field(default_factory=list)

    def add(self, code: str, message: str, *, place: Place | None = None, help: str | None = None, notes: Iterable[str] = ()) -> None:
        """Record one problem; an exact repetition is recorded once."""
        problem = Diagnostic(code=code, message=message, place=place, help=help, notes=tuple(notes))
        if problem not in self.found:
            self.found.append(problem)

    def raise_if_any(self) -> None:
        """Raise one :class:`InputError` with all that was found."""
        if self.found:
            raise InputError(sorted(self.found, key=_order))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Turn an :class:`InputError` of the block into entries of this collector."""
        try:
            yield
        except InputError as error:
            self.found.extend(d for d in error.diagnostics if d not in self.found)


def _order(problem: Diagnostic) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """A ``did you mean`` sentence for a name that is not among the known ones, or None when nothing is near."""
    candidates = sorted(known)
    near = difflib.get_close_matches(name.lower(), [c.lower() for c in candidates], n=2, cutoff=0.55)
    picked = [c for c in candidates if c.lower() in near]
    if not picked:
        return None
    return "did you mean " + " or ".join(f"`{c}`" for c in picked) + "?"
