"""What is wrong with a theorem before anything is proved: each place of its declaration, statement and controls, and where that is."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from os.path import isfile
from pathlib import Path
from typing import Any

from placeproof.core.bounds import brief
from placeproof.core.diagnostics import Diagnostic, InputError, Place, suggestion
from placeproof.theory.language import StatementError
from placeproof.theory.statements import ByInduction, Holds, Keeps, Statement, Trains
from placeproof.theory.theorem import Refuted, Theorem


def undeclared(theorem: Theorem, known: Collection[str]) -> list[Diagnostic]:
    """What is wrong with a declaration, and beside that with its statement and its controls. ``known``: keys of sources.

    Nothing where the declaration is right: its statement is read when it is checked.
    """
    problems = list(theorem.problems)
    for key in theorem.cite:
        if key not in known:
            problems.append(
                ("PP404", f"no source is called `{key}`", suggestion(key, known) or "add it to references.bib beside the theorems")
            )
    if not problems:
        return []
    found = [misstated(theorem, message, code=code, help=remedy) for code, message, remedy in problems]
    if set(inspect.signature(theorem.function).parameters) <= set(theorem.domains):
        try:
            stated(theorem)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit, too
            return found + raised(theorem, error)
    return found + _without_control(theorem)


def stated(theorem: Theorem) -> Statement:
    """The statement of a theorem, with witness and controls that say where they fail. Raises StatementError or InputError if it cannot be
    understood."""
    statement = theorem.statement()
    if wrong := list(_of_points(theorem, statement)):
        raise StatementError(*wrong)
    return statement


def raised(theorem: Theorem, error: BaseException) -> list[Diagnostic]:
    """What an error says that a statement or a control raised, and whether there is no control. Raises it again where nothing of it is the
    theorem's."""
    place = failing_place(error, Path(theorem.path))
    place = place if place.line > 1 else place_of(theorem)
    match error:
        case StatementError():
            found = [misstated(theorem, text, place) for text in error.args]
        case InputError():
            where = f"in the statement at {place.source}:{place.line}"
            found = [replace(d, message=f"{theorem.id}: {d.message}", notes=(*d.notes, where)) for d in error.diagnostics]
        case _:
            if all(Path(f.filename) != Path(theorem.path) for f in traceback.extract_tb(error.__traceback__)):
                raise error
            found = [misstated(theorem, f"{type(error).__name__}: {error}", place)]
    return found + _without_control(theorem)


def misstated(
    theorem: Theorem, message: str, place: Place | None = None, *, code: str = "PP406", help: str = "mend the statement"
) -> Diagnostic:
    """A problem of a theorem; without a place, where it is declared."""
    return Diagnostic(code=code, message=f"{theorem.id}: {message}", place=place or place_of(theorem), help=help)


def _of_points(theorem: Theorem, statement: Statement) -> Iterator[str]:
    """What is wrong with the points and the conditions at which a theorem, or a control of it, is to fail."""
    at_points = isinstance(statement, Holds | ByInduction)
    if at_points and isinstance(theorem.expect, Refuted):
        yield from _of_witness(theorem, f"the witness of {theorem.name}", theorem.expect.witness, whole=True)
    for control in (one for one in theorem.controls if not one.proved):
        name = f"the control {brief(control.label)} of {theorem.name}"
        if at_points and control.refuted_at is not None:
            yield from _of_witness(theorem, name, control.refuted_at)
        elif at_points:
            yield f"{name} does not say where it fails: refuted_at={{...}}"
        elif isinstance(statement, Trains | Keeps) and control.breaks is None:
            yield f"{name} does not say what it breaks: breaks='gradient integrity'"


def _without_control(theorem: Theorem) -> list[Diagnostic]:
    if (missing := uncontrolled(theorem)) is None or "controls" in theorem.skip:
        return []
    return [misstated(theorem, missing, code="PP403", help="`.control(label, make, refuted_at=...)`, or `breaks=...`, below the theorem")]


def uncontrolled(theorem: Theorem) -> str | None:
    """What to add to a theorem that needs a control and has none."""
    if theorem.controls or theorem.expect.word == "open":
        return None
    wanted = "a corrected form that is proved" if theorem.expect.word == "refuted" else "a changed form that is refuted"
    return f"it has no control: add {wanted}"


def _of_witness(theorem: Theorem, name: str, given: Any, *, whole: bool = False) -> Iterator[str]:
    """What is wrong with values by parameter. ``whole``: whether each parameter needs one."""
    if not isinstance(given, Mapping):  # the declaration says so
        return
    for parameter, value in given.items():
        if parameter not in theorem.domains:
            yield f"{name} names {brief(parameter)}, which is no parameter"
        if isinstance(value, float):
            yield f"{name} has the inexact number {brief(value)}; write a fraction in quotes"
            continue
        try:
            Fraction(value)
        except (ValueError, TypeError, ArithmeticError):
            yield f"{name} has no number for {brief(parameter)}: {brief(value)}"
    if whole and (missing := sorted(set(theorem.domains) - set(given))):
        names, point = ", ".join(f"`{one}`" for one in missing), ", ".join(f"{one!r}: 2" for one in theorem.domains)
        yield f"{name} gives no value for {names}: `Refuted(witness={{{point}}}, ...)` names a point at which it fails"


# Where.


def place_of(theorem: Theorem) -> Place:
    """Where a theorem is declared."""
    return place_at(Path(theorem.path), theorem.line)


def place_at(path: Path, line: int, column: int = 1) -> Place:
    """A place in a file, up to the end of its line."""
    try:
        text = path.read_text(encoding="utf-8").splitlines()[line - 1] if isfile(path) else ""  # a pipe can be read once
    except (OSError, UnicodeDecodeError, IndexError):
        text = ""
    column = max(column, len(text) - len(text.lstrip()) + 1)
    near = path.is_relative_to(Path.cwd())
    return Place(
        source=str(path.relative_to(Path.cwd()) if near else path),
        line=line,
        column=column,
        length=max(1, len(text.rstrip()) - column + 1),
        text=text,
    )


def failing_place(error: BaseException, path: Path) -> Place:
    """The last line of a file that an error passed through."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.lineno and Path(f.filename) == path]
    return place_at(path, lines[-1] if lines else 1)
