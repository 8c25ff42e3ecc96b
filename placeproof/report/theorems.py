"""A declared theorem in words: what it states, what was found when it was last accepted, where it comes from, its controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placeproof.prove import Relation
from placeproof.report.renderers import expression_latex
from placeproof.theory.statements import OF_PROGRAMS, ByInduction, Keeps, Statement, Trains
from placeproof.theory.suite.bibliography import known_to
from placeproof.theory.suite.checks.claims import premises
from placeproof.theory.suite.lock import read
from placeproof.theory.theorem import Control, Refuted, Theorem


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A theorem as text. ``formulas``: its goals as LaTeX, none for a statement about a program; ``where``: what derived
    quantities are; ``found``: what is locked of it."""

    theorem: Theorem
    states: tuple[str, ...]
    formulas: tuple[str, ...]
    given: tuple[str, ...]
    where: Mapping[str, sympy.Expr]
    how: str
    program: str
    expected: str
    found: Mapping[str, Any] | None
    sources: tuple[str, ...]
    controls: tuple[str, ...]


if TYPE_CHECKING:
    import sympy

_OPERATORS = {"==": "=", "!=": "\\neq", "<=": "\\leq", "<": "<"}


def formula(relation: Relation) -> str:
    """A relation as LaTeX."""
    return f"{expression_latex(relation.left)} {_OPERATORS[relation.op]} {expression_latex(relation.right)}"


def described(theorem: Theorem) -> Described:
    """Everything that can be said of a theorem without proving it. Raises StatementError or InputError if it cannot be understood."""
    statement = theorem.statement()
    goals, given = ((), ()) if isinstance(statement, OF_PROGRAMS) else (statement.what.goals, statement.what.given)
    return Described(
        theorem=theorem,
        states=statement.says,
        formulas=tuple(formula(g.written()) for g in goals),
        given=premises(theorem, statement),
        where={label: expr for g in (*goals, *given) for label, expr in g.where().items()},
        how=_how(statement),
        program=_program(statement),
        expected=_expected(theorem),
        found=(read(Path(theorem.path).parent) or {}).get(theorem.id),
        sources=tuple(known_to(Path(theorem.path).parent)[key].text().replace("*", "") for key in theorem.cite),
        controls=tuple(_control(one) for one in theorem.controls),
    )


def _program(statement: Statement) -> str:
    """The text of the program that a statement is about; of several, their names."""
    from placeproof.programs import render

    if isinstance(statement, Keeps):
        alone = len(statement.programs) == 1
        return render(statement.programs[0][1]) if alone else "\n".join(name for name, _ in statement.programs)
    return render(statement.program) if isinstance(statement, Trains) else ""


def _how(statement: Statement) -> str:
    if isinstance(statement, OF_PROGRAMS):
        return ""
    induction = [f"by induction over {statement.on}, from {statement.start}"] if isinstance(statement, ByInduction) else []
    lemmas = ", ".join(dict.fromkeys(lemma.theorem.id for lemma in statement.what.lemmas))
    return "; ".join([*induction, *([f"with {lemmas}"] if lemmas else [])])


def _expected(theorem: Theorem) -> str:
    expect = theorem.expect
    if not isinstance(expect, Refuted):
        return expect.word
    point = ", ".join(f"{name} = {value}" for name, value in expect.witness.items())
    where = f" at {point}" if point else f"; it breaks {expect.breaks}" if expect.breaks else ""
    return f"refuted{where}: {expect.because}"


def _control(control: Control) -> str:
    if control.proved:
        return f"{control.label}: proved"
    if control.breaks is not None:
        return f"{control.label}: refuted, it breaks {control.breaks}"
    point = ", ".join(f"{name} = {value}" for name, value in (control.refuted_at or {}).items())
    return f"{control.label}: refuted at {point}" if point else f"{control.label}: it fails"


def text(theorem: Theorem) -> Iterator[str]:
    """A theorem for the command line."""
    description = described(theorem)
    yield from (f"theorem {theorem.id}", "", theorem.says, *(("", theorem.remarks) if theorem.remarks else ()), "")
    rows = [
        *(("states", line) for line in description.states),
        *(("where", f"{label} = {expr}") for label, expr in description.where.items()),
        ("given", ", ".join(description.given) or "nothing"),
        *([("shown", description.how)] if description.how else []),
        ("expected", description.expected),
        *([("found", f"{description.found['verdict']}, by {description.found['evidence']}")] if description.found is not None else []),
        ("source", "; ".join(description.sources)),
        *(("control", line) for line in description.controls),
    ]
    yield from (f"{name:<8}  {line}" for name, line in rows)
    yield from ("", *(f"    {line}" for line in description.program.splitlines())) if description.program else ()
    yield from ("", f"`placeproof check {theorem.id}` checks it")
