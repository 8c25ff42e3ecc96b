"""Whether one step does what another does, as terms of theorems: ``placeproof prove A --against B``."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from placeproof.theory.language import Goal, Term, taken, term
from placeproof.theory.statements import read_subject, same_text

if TYPE_CHECKING:
    from placeproof.core.strategy import Strategy
    from placeproof.programs import Program
    from placeproof.semantics.judge.refine import Difference
    from placeproof.strategies import Template


def apart(left: str | Strategy | Template | Program, right: str | Strategy | Template | Program) -> Term:
    """In how many parts two steps differ: where states lie, what is gathered, reduced, and by what it is scaled, group by group; and a part
    more for each of the two that is not proved. Raises InputError for a subject that cannot be read."""
    (name, program), (other, against) = read_subject(left), read_subject(right)
    number = len(_differences(program, against)) + sum(not _proved(p) for p in (program, against))
    label = f"differences({name}, {other})"
    return taken(term(number).expr, label, f"differences of\n{_text(program)}\nand\n{_text(against)}", "program")


def refines(left: str | Strategy | Template | Program, right: str | Strategy | Template | Program) -> Goal:
    """That two steps are right and do the same, however they are written: ``apart(left, right) == 0``. Raises as :func:`apart`."""
    return apart(left, right) == 0


@lru_cache(maxsize=4096)
def _differences(left: Program, right: Program) -> tuple[Difference, ...]:
    from placeproof.semantics.judge.refine import differences

    return differences(left, right)


@lru_cache(maxsize=256)
def _proved(program: Program) -> bool:
    from placeproof.semantics.judge.verdict import judge

    return judge(program, shortest=False).word == "proved"


@lru_cache(maxsize=256)
def _text(program: Program) -> str:
    return same_text(program)
