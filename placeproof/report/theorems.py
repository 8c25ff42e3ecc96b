"""A declared theorem in words: what it states, what was found when it was last accepted, where it comes from, its controls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placeproof.prove import Relation
from placeproof.report.renderers import expression_latex
from placeproof.theory.bibliography import known_to
from placeproof.theory.claims import hypotheses
from placeproof.theory.lock import read
from placeproof.theory.statements import ByInduction, Trains
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
    locked = read(Path(theorem.path).parent) or {}
    formulas: tuple[str, ...] = ()
    how, program = "", ""
    where: dict[str, sympy.Expr] = {}
    if isinstance(statement, Trains):
        from placeproof.programs import render

        states: tuple[str, ...] = (f"{statement.subject} trains what one device trains",)
        given: tuple[str, ...] = (*statement.assuming, *statement.for_all)
        program = render(statement.program)
    else:
        what = statement.what if isinstance(statement, ByInduction) else statement
        states = tuple(str(g) for g in what.goals)
        formulas = tuple(formula(g.written()) for g in what.goals)
        where = {label: expr for g in (*what.goals, *what.given) for label, expr in g.where().items()}
        given = tuple(h.name for h in hypotheses(theorem, statement))
        how = f"by induction over {statement.on}, from {statement.start}" if isinstance(statement, ByInduction) else ""
        if what.lemmas:
            how = "; ".join(filter(None, [how, "with " + ", ".join(dict.fromkeys(lemma.theorem.id for lemma in what.lemmas))]))
    return Described(
        theorem=theorem,
        states=states,
        formulas=formulas,
        given=given,
        where=where,
        how=how,
        program=program,
        expected=_expected(theorem),
        found=locked.get(theorem.id),
        sources=tuple(known_to(Path(theorem.path).parent)[key].text().replace("*", "") for key in theorem.cite),
        controls=tuple(_control(one) for one in theorem.controls),
    )


def _expected(theorem: Theorem) -> str:
    expect = theorem.expect
    if not isinstance(expect, Refuted):
        return expect.word
    at = ", ".join(f"{name} = {value}" for name, value in expect.witness.items())
    where = f" at {at}" if at else f"; it breaks {expect.breaks}" if expect.breaks else ""
    return f"refuted{where}: {expect.because}"


def _control(one: Control) -> str:
    if one.proved:
        return f"{one.label}: proved"
    if one.breaks is not None:
        return f"{one.label}: refuted, it breaks {one.breaks}"
    at = ", ".join(f"{name} = {value}" for name, value in (one.refuted_at or {}).items())
    return f"{one.label}: refuted at {at}"


def text(theorem: Theorem) -> Iterator[str]:
    """A theorem for the command line."""
    found = described(theorem)
    yield f"theorem {theorem.id}"
    yield ""
    yield theorem.says
    if theorem.remarks:
        yield ""
        yield theorem.remarks
    yield ""
    for line in found.states:
        yield f"states    {line}"
    for label, expr in found.where.items():
        yield f"where     {label} = {expr}"
    yield f"given     {', '.join(found.given) or 'nothing'}"
    if found.how:
        yield f"shown     {found.how}"
    yield f"expected  {found.expected}"
    if found.found is not None:
        yield f"found     {found.found['verdict']}, by {found.found['evidence']}"
    yield f"source    {'; '.join(found.sources)}"
    for line in found.controls:
        yield f"control   {line}"
    if found.program:
        yield ""
        yield from (f"    {line}" for line in found.program.splitlines())
    yield ""
    yield f"`placeproof check {theorem.id}` checks it"
