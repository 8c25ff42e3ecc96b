"""Problems of an input, as data: a code, a place, what was expected, and a remedy.

Every reader in placeproof collects all problems of an input and raises them together as one :class:`InputError`, so that
a user mends a file once rather than once a mistake. Rendering is the business of ``report``.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

T = TypeVar("T")
#: So many problems of one code are shown: a file with more of them is the wrong file, or has one mistake many times.
MOST = 20
_OTHERS = "mend the others first"


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
    """An input cannot be used. Raised with every problem found; the command line turns it into exit code 2. ``after``: what became of
    the rest."""

    after = "nothing was computed"

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        if not self.diagnostics:
            raise ValueError("an InputError needs at least one diagnostic")
        super().__init__("\n".join(f"{d.code}: {d.message}" for d in self.diagnostics))

    def __reduce__(self) -> tuple[type[InputError], tuple[tuple[Diagnostic, ...]]]:
        """Between processes it goes with its problems, and not as their text."""
        return type(self), (self.diagnostics,)


@dataclass(slots=True)
class Problems:
    """A collector: readers add to it and go on, and ``raise_if_any`` ends the reading."""

    found: list[Diagnostic] = field(default_factory=list)
    #: What was not kept, by its code: beyond :data:`MOST`.
    left_out: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        code: str,
        message: str,
        *,
        place: Place | None = None,
        help: str | Callable[[], str | None] | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        """Record one problem; an exact repetition is recorded once. ``help`` may be computed, which is only done if it is shown."""
        alike = [known for known in self.found if known.code == code]
        if len(alike) >= MOST:
            self.left_out[code] = self.left_out.get(code, 0) + 1
            return
        remedy = help() if callable(help) else help
        problem = Diagnostic(code=code, message=message, place=place, help=remedy, notes=tuple(notes))
        if problem not in alike:
            self.found.append(problem)

    def extend(self, problems: Iterable[Diagnostic]) -> None:
        """Record problems that are made already."""
        for one in problems:
            self.add(one.code, one.message, place=one.place, help=one.help, notes=one.notes)

    def raise_if_any(self) -> None:
        """Raise one :class:`InputError` with all that was found."""
        if self.found:
            rest = (
                Diagnostic(code=code, message=f"and {number} more problem{'' if number == 1 else 's'} of this kind", help=_OTHERS)
                for code, number in self.left_out.items()
            )
            raise InputError([*sorted(self.found, key=_order), *rest])

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Turn an :class:`InputError` of the block into entries of this collector."""
        try:
            yield
        except InputError as error:
            self.found.extend(d for d in error.diagnostics if d not in self.found)

    def attempt(self, make: Callable[[], T]) -> Callable[[], T]:
        """The value that a function makes, to be had by a call.

        What :class:`InputError` says of it becomes entries of this collector, and is raised again where the value is asked for.
        """
        try:
            value = make()
        except InputError as error:
            problem = error
            self.found.extend(d for d in error.diagnostics if d not in self.found)
        else:
            return lambda: value

        def again() -> T:
            raise problem

        return again


def refuse(code: str, message: str, help: str | None = None, *, place: Place | None = None, notes: Iterable[str] = ()) -> NoReturn:
    """Raise :class:`InputError` with this one problem."""
    raise InputError([Diagnostic(code=code, message=message, place=place, help=help, notes=tuple(notes))])


def _order(problem: Diagnostic) -> tuple[int, int]:
    """In the order of the file; a count of those that are left out comes last."""
    if problem.help is _OTHERS:
        return sys.maxsize, 0
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)


def suggestion(name: str, known: Iterable[str], *, near: float = 0.55) -> str | None:
    """A ``did you mean`` sentence for a name that is not among the known ones, or None when nothing is ``near``, by difflib's ratio."""
    candidates = sorted(known)
    close = difflib.get_close_matches(name.lower(), [c.lower() for c in candidates], n=2, cutoff=near)
    apart = {c: difflib.SequenceMatcher(None, c, name.lower()).ratio() for c in close}
    words = {c: name.lower() in re.split(r"[-_./ ]", c) for c in close}
    picked = sorted({c for c in candidates if c.lower() in close}, key=lambda c: (not words[c.lower()], -apart[c.lower()], c))
    if not picked:
        return None
    return "did you mean " + " or ".join(f"`{c}`" for c in picked) + "?"


def unknown_name(message: str, name: str, known: Iterable[str], listed: str) -> InputError:
    """That there is nothing of a name (PP101): what was meant, and a sentence that lists what there is."""
    hint = suggestion(name, known)
    return InputError([Diagnostic(code="PP101", message=message, help=f"{hint} {listed}" if hint else listed)])
