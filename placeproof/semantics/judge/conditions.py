"""What the conditions of a right step ask of a program, each obligation by itself: proved for all degrees, or denied by a run's numbers.

A verdict on a step is about what it leaves. Here it is asked what is read and written on the way, also where no state depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from placeproof.programs import Program, Resolved
from placeproof.prove import Budget, Proved, settle
from placeproof.semantics.encode import NoMeaningError, Obligation, Options, encode
from placeproof.semantics.judge.confirm import BY_LINE, DisagreementError, meshes
from placeproof.semantics.judge.linewise import sides
from placeproof.semantics.judge.search import describe
from placeproof.semantics.judge.verdict import Word
from placeproof.semantics.meaning.run import NoMeaningError as NoRunError
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.meaning.setup import Setup
from placeproof.semantics.resolve import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An obligation with its answer. ``numbers``: at how many places its sides were compared in a run; ``where``: a run in which they
    differ, in words."""

    obligation: Obligation
    word: Word
    numbers: int = 0
    where: str = ""


def answered(program: Program, *, without: frozenset[str] = frozenset(), budget: Budget | None = None) -> tuple[Answered, ...]:
    """The obligations of a step, each answered by itself.

    Raises NoMeaningError for a step that a proof cannot speak of, and DisagreementError where a run denies what is proved.
    """
    resolved = resolve(program)
    options = Options(without=without | frozenset(program.without))
    obligations = encode(resolved, options).obligations
    setup, run = _first_step(resolved, options)
    return tuple(_answered(program, o, setup, run, budget) for o in obligations)


def _first_step(program: Resolved, options: Options) -> tuple[Setup | None, Run | None]:
    """A run of two of everything after its first step, if there is one."""
    setup = next(reversed(list(islice(meshes(program, options.without), BY_LINE + 1))), None)
    if setup is None:
        return None, None
    try:
        run = Run(program, setup)
        run.step(0)
    except (NoRunError, ZeroDivisionError):
        return setup, None
    return setup, run


def _answered(program: Program, obligation: Obligation, setup: Setup | None, run: Run | None, budget: Budget | None) -> Answered:
    compared = sides(run, obligation) if run is not None else 0
    proved = isinstance(settle(obligation.claim, budget), Proved)
    if isinstance(compared, int):
        return Answered(obligation=obligation, word="proved" if proved else "unknown", numbers=compared)
    assert setup is not None
    if proved:
        raise DisagreementError(program.name, describe(setup), compared.why)
    return Answered(obligation=obligation, word="refuted", where=f"{describe(setup)}: {compared.sides}")


__all__ = ["Answered", "NoMeaningError", "answered"]
