"""Whether a program trains the reference's model: proved, refuted with a replayed counterexample, or unknown."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from placeproof.core.diagnostics import Place
from placeproof.programs import Program, Resolved
from placeproof.prove import Budget, Order, Proved, Refuted, Unknown, confirm, settle
from placeproof.semantics.encode import CONSISTENCY, GRADIENT, INVARIANT, Line, NoMeaningError, Obligation, Options, encode
from placeproof.semantics.judge.confirm import Confirmed, DisagreementError, NotRun, confirm_by_runs, denied
from placeproof.semantics.judge.ranges import Range
from placeproof.semantics.judge.search import RefutingRun, legible, search, stuck
from placeproof.semantics.meaning import Fault
from placeproof.semantics.meaning.run import run
from placeproof.semantics.resolve import resolve
from placeproof.semantics.searched import Searched
from placeproof.semantics.tensors import Difference, RefutingBlockRun, Result, encode_block
from placeproof.semantics.tensors.lemmas import projections
from placeproof.semantics.tensors.simulate import ran, setups, simulate, smaller
from placeproof.semantics.tensors.simulate import search as search_blocks
from placeproof.semantics.tensors.values import Space

Word = Literal["proved", "refuted", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An obligation with its verdict, the solver that gave it and the seconds it took."""

    obligation: Obligation
    verdict: Proved | Refuted | Unknown
    seconds: float

    @property
    def word(self) -> Word:
        """The verdict in one word."""
        if isinstance(self.verdict, Proved):
            return "proved"
        return "refuted" if isinstance(self.verdict, Refuted) else "unknown"

    @property
    def suspected(self) -> bool:
        """Whether a solver has a model in which it does not hold, and no run shows that."""
        return isinstance(self.verdict, Unknown) and self.verdict.suspected


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """A program's verdict. ``found``: the run that refutes it; ``why``: why it is unknown; ``about``: the broken obligation;
    ``confirmed``: the runs that ended as the proof says; ``results``: how lies what a block returns."""

    program: Resolved
    options: Options
    word: Word
    settled: tuple[Settled, ...] = ()
    for_all: tuple[str, ...] = ()
    warnings: tuple[tuple[str, Place | None], ...] = ()
    about: Obligation | None = None
    found: RefutingRun | RefutingBlockRun | None = None
    why: str = ""
    confirmed: Confirmed | None = None
    results: tuple[Result, ...] = ()

    @property
    def failing_step(self) -> int | None:
        """The step, counted from 1, after which the run that refutes it differs; None of a block, and where no number differs."""
        if not isinstance(self.found, RefutingRun) or isinstance(self.found.what, Fault):
            return None
        return self.found.what.step + 1


def judge(
    program: Program,
    *,
    without: frozenset[str] = frozenset(),
    ranges: tuple[Range, ...] = (),
    budget: Budget | None = None,
    shortest: bool = True,
) -> Judged:
    """Prove a program, or look for a run that refutes it. Proved is said only of what runs confirm, refuted only of a run that was computed
    in fractions. ``shortest``: whether one with short numbers is looked for, which takes longer.

    Raises InputError, and DisagreementError where a run denies what was proved.
    """
    resolved = resolve(program)
    if resolved.tensors:
        return judge_tensors(resolved, budget)
    options = Options(without=without | frozenset(program.without), ranges=ranges)
    try:
        encoding = encode(resolved, options)
    except NoMeaningError as missing:
        return _by_search(_unsaid(resolved, options, missing), shortest=shortest)
    settled = tuple(_settled(o, budget) for o in encoding.obligations)
    open_ = [s for s in settled if s.word != "proved"]
    for_all = tuple(g.name for g in encoding.given if isinstance(g, Order) and not g.name.startswith("tokens each"))
    judged = Judged(program=resolved, options=options, word="proved", settled=settled, for_all=for_all, warnings=encoding.warnings)
    if not open_:
        return _ends(judged, encoding.lines, shortest)
    if all(s.word == "proved" for s in settled if s.obligation.condition == INVARIANT):
        return _ends(replace(judged, warnings=(*judged.warnings, *(_harmless(s) for s in open_))), (), shortest)
    first = min(open_, key=_tells_least)
    assert isinstance(first.verdict, Unknown)
    return _by_search(replace(judged, word="unknown", about=first.obligation, why=first.verdict.why), shortest=shortest)


def provable(
    program: Program, *, without: frozenset[str] = frozenset(), ranges: tuple[Range, ...] = (), budget: Budget | None = None
) -> bool:
    """Whether a step is proved, and runs confirm it; where it is not, nothing is looked for. Raises as :func:`judge` does."""
    options = Options(without=without | frozenset(program.without), ranges=ranges)
    return all_obligations_hold(program, options, budget) and (
        judge(program, without=without, ranges=ranges, budget=budget).word == "proved"
    )


def all_obligations_hold(program: Program, options: Options | None = None, budget: Budget | None = None) -> bool:
    """Whether every obligation of a step is proved. No run confirms it: that takes longer than the proof. Raises InputError."""
    try:
        encoding = encode(resolve(program), options or Options(without=frozenset(program.without)))
    except NoMeaningError:
        return False
    telling = sorted(encoding.obligations, key=lambda o: (GRADIENT, INVARIANT, CONSISTENCY).index(o.condition))
    return all(_settled(o, budget).word == "proved" for o in telling)


def _unsaid(program: Resolved, options: Options, missing: NoMeaningError) -> Judged:
    where = f", line {missing.place.line}" if missing.place else ""
    return Judged(program=program, options=options, word="unknown", why=f"the proof cannot speak of this step: {missing}{where}")


def _ends(judged: Judged, lines: tuple[Line, ...], shortest: bool) -> Judged:
    """A proof says what a step leaves where it ends; of messages, a small run has to show that it does."""
    stopped = stuck(judged.program, without=judged.options.without, ranges=judged.options.ranges)
    clear = None if stopped is None else legible(judged.program, stopped, shortest=shortest)
    return _confirmed(judged, lines, shortest) if clear is None else replace(judged, word="refuted", found=clear)


def _confirmed(judged: Judged, lines: tuple[Line, ...], shortest: bool) -> Judged:
    """What the obligations say, if runs say so too. They say what a step leaves that ends, and reads what is there; that it does not, a run
    says alone."""
    outcome = confirm_by_runs(judged.program, judged.options.without, judged.options.ranges, lines)
    if isinstance(outcome, NotRun):
        return replace(judged, word="unknown", why=f"every obligation is proved, and no run could confirm it: {outcome.why}")
    if isinstance(outcome, RefutingRun):
        clear = legible(judged.program, outcome, shortest=shortest)
        if clear is None or not (isinstance(clear.what, Fault) or clear.what.of_nothing):
            raise denied(judged.program, outcome)
        return replace(judged, word="refuted", found=clear)
    return replace(judged, confirmed=outcome)


def _tells_least(settled: Settled) -> tuple[bool, bool]:
    """What is suspected to be false tells more than what is not decided; and more than a division that may be undefined, which
    everything after it shares."""
    verdict = settled.verdict
    return not (isinstance(verdict, Unknown) and verdict.suspected), "every division is defined" in getattr(verdict, "why", "")


def _harmless(settled: Settled) -> tuple[str, Place | None]:
    """All states are right after the step; so what was read or computed otherwise on the way reaches none of them."""
    obligation = settled.obligation
    return (
        f"it is not shown on every device that {obligation.name} ({obligation.condition}); no state that is kept depends on it",
        obligation.place,
    )


def _settled(obligation: Obligation, budget: Budget | None) -> Settled:
    """An obligation with its verdict."""
    began = time.perf_counter()
    verdict = settle(obligation.claim, budget)
    return Settled(obligation=obligation, verdict=verdict, seconds=time.perf_counter() - began)


def _by_search(judged: Judged, reference: Resolved | None = None, *, shortest: bool = True) -> Judged:
    """A suspicion is confirmed by a run, or it stays one. ``reference``: what one device runs of a block, if it is another text."""
    program, options = judged.program, judged.options
    if program.tensors:
        block = search_blocks(program, reference=reference)
        if isinstance(block, Searched):
            return replace(judged, why=f"{judged.why}; {block.words}")
        shown = replace(judged, about=_about(judged, block.what))
        return _with_run(shown, block, lambda: simulate(program, block.setup) == block.what)
    result = search(program, without=options.without, ranges=options.ranges)
    if not isinstance(result, RefutingRun):  # long thin meshes, too
        denied = confirm_by_runs(program, options.without, options.ranges)
        result = denied if isinstance(denied, RefutingRun) else result
    if not isinstance(result, RefutingRun):
        return replace(judged, why=f"{judged.why}; {result.words}")
    counterexample = legible(program, result, shortest=shortest)
    if counterexample is None:
        return replace(judged, why=f"{judged.why}; a run in residues differed, and in fractions it did not")
    return _with_run(judged, counterexample, lambda: run(program, counterexample.setup) == counterexample.what)


def _about(judged: Judged, what: Difference | Fault) -> Obligation | None:
    """The obligation that a run of a block denies: of those that are not proved, the one about the result that differs."""
    line, derivative = what.line, isinstance(what, Difference) and what.derivative
    open_ = [s.obligation for s in judged.settled if s.word != "proved"]
    alike = [o for o in open_ if o.place is not None and o.place.line == line and ("is the derivative of" in o.name) is derivative]
    return alike[0] if alike else judged.about


def _with_run(judged: Judged, counterexample: RefutingRun | RefutingBlockRun, again: Callable[[], bool]) -> Judged:
    """Refuted by a run, unless it does not confirm what is suspected of an obligation. ``again``: whether a second run ends so, too."""
    about = judged.about
    if about is None:
        return replace(judged, word="refuted", found=counterexample)
    verdict = confirm(about.claim, counterexample, again)
    settled = tuple(replace(s, verdict=verdict) if s.obligation is about else s for s in judged.settled)
    return replace(judged, word="refuted" if isinstance(verdict, Refuted) else "unknown", settled=settled, found=counterexample)


# Blocks.


def judge_tensors(program: Resolved, budget: Budget | None = None, reference: Resolved | None = None, *, lemmas: bool = False) -> Judged:
    """Prove a tensor program, or look for a run that refutes it: ``found`` is a :class:`placeproof.semantics.tensors.RefutingBlockRun`.

    ``reference``: what one device runs, if it is another text. ``lemmas``: whether those that the two have in common are tried first.
    """
    names = projections(program, reference or program) if lemmas else frozenset()
    judged = _obliged(program, budget, reference, names)
    if names and judged.word != "proved":  # lemmas may hide what a proof needs
        judged = _obliged(program, budget, reference, frozenset())
    return _confirmed_block(judged, reference) if judged.word == "proved" else _by_search(judged, reference)


def _obliged(program: Resolved, budget: Budget | None, reference: Resolved | None, lemmas: frozenset[str]) -> Judged:
    """What the obligations of a tensor program say, before anything is run."""
    options = Options(without=frozenset(program.without))
    try:
        encoded = encode_block(program, reference, lemmas)
    except NoMeaningError as missing:
        return _unsaid(program, options, missing)
    settled = tuple(_settled(o, budget) for o in encoded.obligations)
    for_all = tuple(g.name for g in Space.of(program).given())
    judged = Judged(program=program, options=options, word="proved", settled=settled, for_all=for_all, results=encoded.results)
    open_ = [s for s in settled if s.word != "proved"]
    if not open_:
        return judged
    first = next((s for s in open_ if isinstance(s.verdict, Unknown) and s.verdict.suspected), open_[0])
    assert isinstance(first.verdict, Unknown)
    return replace(judged, word="unknown", about=first.obligation, why=first.verdict.why)


def _confirmed_block(judged: Judged, reference: Resolved | None) -> Judged:
    """What the obligations say, if small runs say so too: of one device, of two along each axis, and of three along one."""
    every = list(setups(judged.program, reference=reference))
    of = [s for s in every if sorted(s.degrees.values()) in ([1] * len(s.degrees), [2] * len(s.degrees))]
    of += [s for s in every if max(s.degrees.values(), default=1) == 3 and sum(s.degrees.values()) == len(s.degrees) + 2][-1:]
    done: list[str] = []
    why = "no mesh is small enough"
    for setup in of or every[-1:]:
        outcome = ran(judged.program, setup, slopes=not done)
        if isinstance(outcome, str):
            outcome = ran(judged.program, smaller(judged.program, setup), slopes=not done)
        if isinstance(outcome, RefutingBlockRun):
            raise DisagreementError(judged.program.name, setup.mesh, outcome.words)
        if isinstance(outcome, str):
            why = outcome
        else:
            done.append(setup.mesh)
    if not done:
        return replace(judged, word="unknown", why=f"every obligation is proved, and no run could confirm it: {why}")
    return replace(judged, confirmed=Confirmed(runs=tuple(done)))
