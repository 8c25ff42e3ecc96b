"""Checking one theorem: its verdict against what is expected, and every independent check."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from placeproof.core.diagnostics import InputError
from placeproof.prove import Proved, Refuted, Unknown, Verdict
from placeproof.theory.clauses import Clauses
from placeproof.theory.language import StatementError
from placeproof.theory.statements import OF_PROGRAMS, ByInduction, Holds, Keeps, Statement, Trains
from placeproof.theory.suite.bound import subject
from placeproof.theory.suite.checks import arithmetic, clauses, conditions, programs
from placeproof.theory.suite.checks.claims import premises
from placeproof.theory.suite.checks.points import shown
from placeproof.theory.suite.faults import stated, uncontrolled
from placeproof.theory.suite.outcome import Check, Outcome, Settings
from placeproof.theory.theorem import Control, Theorem
from placeproof.theory.theorem import Refuted as ExpectRefuted


def check(theorem: Theorem, settings: Settings | None = None) -> Outcome:
    """Check one theorem. Raises StatementError or InputError if it cannot be understood."""
    began = time.perf_counter()
    chosen = settings or Settings()
    statement = stated(theorem)
    match statement:
        case Trains():
            outcome = _program(theorem, statement, chosen)
        case Keeps():
            outcome = _conditions(theorem, statement, chosen)
        case Clauses():
            outcome = _clauses(theorem, statement, chosen)
        case _:
            outcome = _arithmetic(theorem, statement, chosen)
    checks = (*outcome.checks, _control_exists(theorem))
    checks = tuple(_opted_out(theorem, c) for c in checks)
    return replace(outcome, checks=checks, seconds=time.perf_counter() - began)


def _blank(theorem: Theorem, statement: Statement, given: tuple[str, ...]) -> Outcome:
    """What is known before anything is proved."""
    expect = theorem.expect
    return Outcome(
        id=theorem.id, path=theorem.path, line=theorem.line, level=theorem.level, says=theorem.says, statement="; ".join(statement.says),
        hypotheses=given, expected=expect.word, because=getattr(expect, "because", getattr(expect, "note", "")),
        verdict="unknown", evidence="", cite=theorem.cite, about=subject(statement),
    )  # fmt: skip


# Arithmetic.


def _arithmetic(theorem: Theorem, statement: Holds | ByInduction, settings: Settings) -> Outcome:
    blank = _blank(theorem, statement, premises(theorem, statement))
    lemmas = statement.what.lemmas
    for lemma in lemmas:
        if check_lemma(lemma.theorem) != "proved":
            failed = Check(name="verdict", standing="failed", detail=f"it rests on {lemma.theorem.id}, which is not proved")
            return replace(blank, checks=(failed,))
    verdicts = arithmetic.verdicts(theorem, statement)
    if isinstance(theorem.expect, ExpectRefuted):
        return _refuted(theorem, statement, settings, blank, verdicts)
    certified = arithmetic.certified(theorem, statement)
    word, why = _word(verdicts, certified)
    computed = arithmetic.counterexample(theorem, statement) if word == "unknown" and isinstance(statement, ByInduction) else None
    if computed is not None:
        verdicts = [computed]
        word, why = _word(verdicts, False)
    evidence = {"certificate": certified, "induction": isinstance(statement, ByInduction), "z3": True}
    kind = next(name for name, is_ in evidence.items() if is_) if word == "proved" else "" if word == "unknown" else "model"
    kind = "witness" if computed is not None else kind
    checks = [_expected(theorem, word, why), arithmetic.satisfiable(theorem, statement)]
    used: tuple[str, ...] = ()
    opinion: Any = "not asked"
    if word == "proved":
        need, used = arithmetic.needed(theorem, statement)
        checks += [need, arithmetic.not_trivial(statement)]
        checks += [arithmetic.defined(theorem, statement, verdicts), arithmetic.sampled(theorem, statement)]
    if word != "unknown":
        opinion = _second(theorem, settings, checks, lambda: arithmetic.second_opinion(theorem, statement, word, verdicts))
    if settings.seeds > 1 and word == "proved" and all(isinstance(v, Proved) for v in verdicts):
        checks.append(arithmetic.brittle(theorem, statement, settings, word))
    checks.append(arithmetic.dimensions(theorem, statement))
    witness = _witness(verdicts) if word == "refuted" else {}
    return replace(
        blank, verdict=word, evidence=kind, witness=witness, used=used, opinion=opinion, checks=tuple(checks),
        controls=_controls(theorem, arithmetic.control),
    )  # fmt: skip


def _word(verdicts: list[Verdict], certified: bool) -> tuple[Any, str]:
    refuted = [v for v in verdicts if isinstance(v, Refuted)]
    if refuted:
        return "refuted", f"it fails at {shown(dict(refuted[0].witness))}"  # type: ignore[call-overload]
    if all(isinstance(v, Proved) for v in verdicts):
        return "proved", ""
    undecided = [v.why for v in verdicts if isinstance(v, Unknown)]
    if certified and not any(isinstance(v, Unknown) and v.suspected for v in verdicts):
        return "proved", ""
    return "unknown", undecided[0]


def _refuted(theorem: Theorem, statement: Holds | ByInduction, settings: Settings, blank: Outcome, verdicts: list[Verdict]) -> Outcome:
    """What is expected to fail, replayed at its witness."""
    refutation, why = arithmetic.witness(theorem, statement)
    if refutation is not None:
        word: Any = "refuted"
    else:
        word, more = _word(verdicts, False)
        why = f"at the declared witness: {why}" + (f"; {more}" if more else "")
    checks = [_expected(theorem, word if refutation is not None else "unknown" if word == "refuted" else word, why)]
    checks.append(arithmetic.satisfiable(theorem, statement))
    replayed = "passed" if refutation is not None else "failed"
    checks.append(Check(name="exact arithmetic", standing=replayed, detail="the witness was computed in fractions" if refutation else why))  # type: ignore[arg-type]
    denied = all(isinstance(v, Proved) for v in verdicts)
    opinion: Any = "not asked"
    if denied:
        checks.append(Check(name="solver", standing="failed", detail="z3 proves it"))
    if refutation is not None:
        opinion = _second(theorem, settings, checks, lambda: arithmetic.second_opinion(theorem, statement, "refuted", verdicts))
    checks.append(arithmetic.dimensions(theorem, statement))
    witness = {n: str(v) for n, v in dict(refutation.witness).items()} if refutation is not None else {}  # type: ignore[call-overload]
    return replace(
        blank, verdict="refuted" if refutation is not None else word, evidence="witness" if refutation is not None else "", witness=witness,
        opinion=opinion, checks=tuple(checks), controls=_controls(theorem, arithmetic.control),
    )  # fmt: skip


def _witness(verdicts: list[Verdict]) -> dict[str, str]:
    refutation = next(v for v in verdicts if isinstance(v, Refuted))
    return {n: str(v) for n, v in dict(refutation.witness).items()}  # type: ignore[call-overload]


_LEMMAS: dict[tuple[str, str], str] = {}


def check_lemma(theorem: Theorem) -> str:
    """The verdict on a theorem that another one uses, found once in a process."""
    key = (theorem.path, theorem.id)
    if key not in _LEMMAS:
        statement = theorem.statement()
        assert not isinstance(statement, OF_PROGRAMS)
        lemmas = statement.what.lemmas
        resting = all(check_lemma(lemma.theorem) == "proved" for lemma in lemmas)
        proved = resting and _word(arithmetic.verdicts(theorem, statement), arithmetic.certified(theorem, statement))[0] == "proved"
        _LEMMAS[key] = "proved" if proved else "unknown"
    return _LEMMAS[key]


# Programs.


def _program(theorem: Theorem, statement: Trains, settings: Settings) -> Outcome:
    one = programs.Programs(theorem, statement)
    judged, blank = one.judged, _blank(theorem, statement, one.premises)
    checks = [_expected(theorem, judged.word, one.why)]
    expect = theorem.expect
    if isinstance(expect, ExpectRefuted) and judged.word == "refuted":
        broken = judged.about.condition if judged.about is not None else "nothing that has a name"
        checks.append(_reason(expect, broken))
    used: tuple[str, ...] = ()
    checks.append(programs.satisfiable(one))
    if judged.word == "proved":
        need, used = programs.needed(one)
        checks += [need, programs.defined(one)]
    opinion: Any = "not asked"
    if judged.word != "unknown":
        checks.append(programs.exact(one))
        opinion = _second(theorem, settings, checks, lambda: programs.second_opinion(one))
    if settings.seeds > 1:
        checks.append(programs.brittle(one, settings.seeds))
    evidence = {"proved": "obligations", "refuted": "run", "unknown": ""}[judged.word]
    return replace(
        blank, verdict=judged.word, evidence=evidence, witness=one.witness(), used=used, opinion=opinion, checks=tuple(checks),
        controls=_controls(theorem, programs.control),
    )  # fmt: skip


def _conditions(theorem: Theorem, statement: Keeps, settings: Settings) -> Outcome:
    blank, kept = _blank(theorem, statement, statement.assuming), conditions.Conditions(theorem, statement)
    checks = [_expected(theorem, kept.word, ""), conditions.satisfiable(kept)]
    if isinstance(theorem.expect, ExpectRefuted) and kept.word == "refuted":
        checks.append(_reason(theorem.expect, kept.broken))
    used: tuple[str, ...] = ()
    if kept.word == "proved":
        need, used = conditions.needed(kept)
        checks.append(need)
    opinion: Any = "not asked"
    if kept.word != "unknown":
        checks.append(conditions.exact(kept))
        opinion = _second(theorem, settings, checks, lambda: conditions.second_opinion(kept))
    if settings.seeds > 1:
        checks.append(conditions.brittle(kept, settings.seeds))
    evidence = {"proved": "obligations", "refuted": "run", "unknown": ""}[kept.word]
    return replace(
        blank, verdict=kept.word, evidence=evidence, witness=kept.witness() if kept.word == "refuted" else {}, used=used, opinion=opinion,
        checks=tuple(checks), controls=_controls(theorem, programs.control),
    )  # fmt: skip


def _reason(expect: ExpectRefuted, broken: str) -> Check:
    right = expect.breaks == broken
    return Check(
        name="reason",
        standing="passed" if right else "failed",
        detail=f"it breaks {broken}" + ("" if right else f", and {expect.breaks or 'no condition'} is expected: `breaks={broken!r}`"),
    )


# Clauses of the rule of composition.


def _clauses(theorem: Theorem, statement: Clauses, settings: Settings) -> Outcome:
    settled = clauses.verdicts(theorem, statement)
    undecided = [v.why for v in settled if isinstance(v, Unknown)]
    word: Any = "unknown" if undecided else "proved"
    checks = [_expected(theorem, word, "; ".join(undecided[:1])), clauses.satisfiable(settled), *clauses.exact()]
    if settings.seeds > 1:
        checks.append(clauses.brittle(statement, settings.seeds))
    opinion: Any = "not asked"
    if word == "proved":
        opinion = _second(theorem, settings, checks, lambda: clauses.second_opinion(theorem, statement))
    evidence = "equations" if word == "proved" else ""
    return replace(
        _blank(theorem, statement, ()), verdict=word, evidence=evidence, opinion=opinion, checks=tuple(checks),
        controls=_controls(theorem, clauses.control),
    )  # fmt: skip


# Both.


def _expected(theorem: Theorem, word: str, why: str) -> Check:
    wanted = {"open": "unknown"}.get(theorem.expect.word, theorem.expect.word)
    if word == wanted:
        return Check(name="verdict", standing="passed", detail=f"{theorem.expect.word}, as expected")
    return Check(name="verdict", standing="failed", detail=f"{word}, and {theorem.expect.word} is expected" + (f": {why}" if why else ""))


def _second(theorem: Theorem, settings: Settings, checks: list[Check], ask: Callable[[], tuple[str, Check]]) -> Any:
    """The second solver's opinion, unless nobody wants it or the theorem opts out of it; its check is added to those before."""
    if not settings.second_opinion:
        return "not asked"
    reason = theorem.skip.get("second solver")
    opinion, check = ask() if reason is None else ("not asked", Check(name="second solver", standing="skipped", detail=reason))
    checks.append(check)
    return opinion


def _controls(theorem: Theorem, run: Callable[..., Check]) -> tuple[Check, ...]:
    return tuple(_control(theorem, one, run) for one in theorem.controls)


def _control(theorem: Theorem, control: Control, run: Callable[..., Check]) -> Check:
    """What becomes of a control. One that cannot be built has failed, and the theorem is judged all the same."""
    try:
        statement = theorem.elaborate(control.make)
    except (StatementError, InputError) as error:
        return Check(name=control.label, standing="failed", detail=f"it cannot be built: {error}")
    return run(theorem, replace(control, make=statement))


def _control_exists(theorem: Theorem) -> Check:
    if (missing := uncontrolled(theorem)) is not None:
        return Check(name="controls", standing="failed", detail=missing)
    return Check(name="controls", standing="passed", detail=f"{len(theorem.controls)}")


def _opted_out(theorem: Theorem, check: Check) -> Check:
    reason = theorem.skip.get(check.name)
    return replace(check, standing="skipped", detail=reason) if reason is not None else check
