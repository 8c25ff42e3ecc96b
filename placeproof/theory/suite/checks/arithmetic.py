"""Checks of theorems about arithmetic: those that state relations, and those by induction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product
from typing import Any

from placeproof.prove import Budget, Claim, Induction, Proved, Refuted, Relation, Unknown, Verdict, certify, decide, induct, refute
from placeproof.prove.arithmetic import queries, rounds
from placeproof.prove.claims import Query
from placeproof.prove.exact import Point, Table, UndefinedError, drawn
from placeproof.prove.solvers.scripts import available
from placeproof.theory.language import Goal, StatementError
from placeproof.theory.statements import ByInduction, Holds
from placeproof.theory.suite.checks.claims import claims, hypotheses, inductions
from placeproof.theory.suite.checks.points import Sampler, fails, shown
from placeproof.theory.suite.outcome import Check, Settings
from placeproof.theory.theorem import LEVELS, SECOND_OPINION, Control, Theorem
from placeproof.theory.theorem import Refuted as ExpectRefuted
from placeproof.theory.units import unit

#: How far from its start a statement by induction is computed that was not proved, and with how many values of its other parameters.
NUMBERS = (*range(12), 16, 24, 32, 64, 100, 128)
DRAWN = 12
#: Points at which a proved theorem is evaluated, the fewest of one with many goals, and the most that are drawn to find one.
SAMPLES = 100
FEWEST = 20
TRIES = 20_000


def budget(theorem: Theorem) -> Budget:
    """The time of one query."""
    return Budget(milliseconds=LEVELS[theorem.level])


def verdicts(theorem: Theorem, statement: Holds | ByInduction, seed: int = 0) -> list[Verdict]:
    """Z3's verdict on each part of a statement: for all reals, which says more, or else for all integers where these are meant."""
    limit = budget(theorem)
    return [_or_of_integers(theorem, c, lambda c: _decided(c, limit, "z3", seed)) for c in _decidable(theorem, statement)]


def _decidable(theorem: Theorem, statement: Holds | ByInduction) -> tuple[Claim | Induction, ...]:
    return inductions(theorem, statement) if isinstance(statement, ByInduction) else claims(theorem, statement)


def _decided(claim: Claim | Induction, limit: Budget, solver: str, seed: int = 0) -> Verdict:
    return induct(claim, limit, solver, seed) if isinstance(claim, Induction) else decide(claim, limit, solver, seed)


def asked(theorem: Theorem, statement: Holds | ByInduction) -> Iterator[Query]:
    """What a solver is asked first of each part of a statement."""
    for claim in _decidable(theorem, statement):
        first = _of_integers(theorem, claim) if _rounds(claim) else claim
        for part in (first.base(), first.step()) if isinstance(first, Induction) else (first,):
            yield from queries(part)


def _rounds(claim: Claim | Induction) -> bool:
    """Whether a claim is more often decided for integers."""
    return rounds(claim.claim if isinstance(claim, Induction) else claim)


def _or_of_integers(theorem: Theorem, claim: Any, decided: Callable[[Any], Verdict]) -> Verdict:
    narrower = _of_integers(theorem, claim)
    if _rounds(claim):
        verdict = decided(narrower)
        if isinstance(verdict, Proved) or _lies_within(theorem, verdict):
            return verdict
        wider = decided(claim)  # what it refutes with numbers that are no integers says nothing
        return wider if isinstance(wider, Proved) or _lies_within(theorem, wider) else verdict
    verdict = decided(claim)
    return verdict if isinstance(verdict, Proved) or narrower == claim or _lies_within(theorem, verdict) else decided(narrower)


def _of_integers(theorem: Theorem, claim: Any) -> Any:
    """The claim for integers where these are meant."""
    integers = tuple(n for n, d in theorem.domains.items() if d.integer)
    if isinstance(claim, Induction):
        return replace(claim, claim=replace(claim.claim, integers=integers))
    return replace(claim, integers=integers)


def _lies_within(theorem: Theorem, verdict: Verdict) -> bool:
    """Whether a refutation's witness belongs to the domains."""
    if not isinstance(verdict, Refuted):
        return False
    values = dict(verdict.witness)  # type: ignore[call-overload]
    return all(theorem.domains[n].has(v) for n, v in values.items())


def certified(theorem: Theorem, statement: Holds | ByInduction) -> bool:
    """Whether every part has a certificate that needs no solver."""
    return isinstance(statement, Holds) and all(isinstance(certify(c), Proved) for c in claims(theorem, statement))


def refutation(theorem: Theorem, statement: Holds | ByInduction, at: dict[str, Fraction]) -> tuple[Refuted | None, str]:
    """A refutation at a point, which may leave some parameters open; or why there is none."""
    outside = [n for n, v in at.items() if not theorem.domains[n].has(v)]
    if outside:
        return None, f"{outside[0]} = {at[outside[0]]} is outside its domain {theorem.domains[outside[0]].name}"
    parts = claims(theorem, statement)
    if set(at) == set(theorem.domains):
        arbitrary = 20 if Sampler(theorem, statement).statement_functions() else 1
        refutations = [refute(c, at, drawn(seed)) for seed in range(arbitrary) for c in parts]
        good = [v for v in refutations if isinstance(v, Refuted)]
        return (good[0], "") if good else (None, "; ".join(dict.fromkeys(v.why for v in refutations if isinstance(v, Unknown))))
    for values, table in Sampler(theorem, statement).points(1, 2_000):
        for claim in parts:
            verdict = refute(claim, {**values, **at}, table)
            if isinstance(verdict, Refuted):
                return verdict, ""
    return None, "at no point drawn with these values does it fail"


def counterexample(theorem: Theorem, statement: ByInduction) -> Refuted | None:
    """Where a statement fails that was not proved by induction: the first of some numbers, computed in exact arithmetic at values drawn and
    at those that a solver suggests, or else where a solver has a model of the opposite. None if nothing is found."""
    on, parts = statement.on, claims(theorem, statement)
    points = [*islice(Sampler(theorem, statement).points(5, TRIES), DRAWN), *_suggested(theorem, statement)]
    for step in NUMBERS:
        for values, table in points:
            try:
                at = Point(values, (), table).value(statement.start.expr) + step
            except UndefinedError:
                continue
            refutations = (refute(claim, {**values, on: at}, table) for claim in parts if theorem.domains[on].has(at))
            if failed := next((v for v in refutations if isinstance(v, Refuted)), None):
                return failed
    models = (_or_of_integers(theorem, claim, lambda c: decide(c, budget(theorem))) for claim in parts)
    return next((v for v in models if isinstance(v, Refuted) and _lies_within(theorem, v)), None)


def _suggested(theorem: Theorem, statement: ByInduction) -> Iterator[tuple[dict[str, Fraction], Table]]:
    """Values at which a solver sees the base or the step fail, whatever the number is there."""
    parts = [claim for induction in inductions(theorem, statement) for claim in (induction.base(), induction.step())]
    for claim in parts:
        verdict = decide(_of_integers(theorem, claim), budget(theorem))
        if isinstance(verdict, Refuted):
            values = {**dict.fromkeys(theorem.domains, Fraction(0)), **dict(verdict.witness)}  # type: ignore[call-overload]
            if all(d.has(values[n]) for n, d in theorem.domains.items() if n != statement.on):
                yield values, drawn(0)


def satisfiable(theorem: Theorem, statement: Holds | ByInduction) -> Check:
    """A point that satisfies all hypotheses."""
    for values, _ in Sampler(theorem, statement).points(0, TRIES):
        return Check(name="hypotheses satisfiable", standing="passed", detail=shown(values) or "there are none")
    return Check(name="hypotheses satisfiable", standing="failed", detail="no point was found that satisfies them")


def needed(theorem: Theorem, statement: Holds | ByInduction) -> tuple[Check, tuple[str, ...]]:
    """Each hypothesis is needed: without it something fails at an exact point. Gives the hypotheses that are."""
    used, reasons, idle = [], [], []
    for one in hypotheses(theorem, statement):
        if isinstance(statement, ByInduction) and one.fact == statement.begun():
            used.append(one.name)  # it is where the induction begins
            continue
        parts = claims(theorem, statement, without=one.name)
        why = _fails_without(theorem, statement, one.name, parts)
        if why is None:
            idle.append(one.name)
        else:
            used.append(one.name)
            reasons.append(f"without {one.name}: {why}")
    if idle:
        detail = f"nothing fails without {', '.join(idle)}: leave it out, or widen the domain"
        return Check(name="needed", standing="failed", detail=detail), tuple(used)
    return Check(name="needed", standing="passed", detail="; ".join(reasons) or "there are no hypotheses"), tuple(used)


def _fails_without(theorem: Theorem, statement: Holds | ByInduction, name: str, parts: tuple[Claim, ...]) -> str | None:
    for values, table in islice(Sampler(theorem, statement, without=name).points(2, TRIES), SAMPLES * 10):
        what = fails(parts, values, table)
        if what is not None:
            return f"{what} at {shown(values)}"
    if isinstance(statement, ByInduction):
        return None
    for claim in parts:
        verdict = _or_of_integers(theorem, claim, lambda c: decide(c, budget(theorem)))
        if isinstance(verdict, Refuted):
            values = dict(verdict.witness)  # type: ignore[call-overload]
            if all(d.has(values[n], bounded=False) for n, d in theorem.domains.items() if n in values):
                return f"{claim.goal} is false at {shown(values)}"
    return None


def not_trivial(statement: Holds | ByInduction) -> Check:
    """No goal is true before anything is proved."""
    idle = [g for g in statement.what.goals if g.trivial()]
    if idle:
        why = " (they are derived from one program, whatever it is called)" if any(g.where() for g in idle) else ""
        return Check(name="not trivial", standing="failed", detail=f"both sides are the same: {'; '.join(map(str, idle))}{why}")
    same = [g for g in statement.what.goals if g.left.expr == g.right.expr]
    return Check(name="not trivial", standing="passed", detail="the two sides were derived from different programs" if same else "")


def defined(theorem: Theorem, statement: Holds | ByInduction, found: list[Verdict]) -> Check:
    """Nothing is divided by zero."""
    undefined = [v.why for v in found if isinstance(v, Unknown) and "denominator" in v.why]
    if undefined:
        return Check(name="divisions defined", standing="failed", detail=undefined[0])
    divisors = {str(d) for c in claims(theorem, statement) if isinstance(c.goal, Relation) for d in c.goal.all_divisors()}
    return Check(name="divisions defined", standing="passed", detail=f"by {', '.join(sorted(divisors))}" if divisors else "there are none")


def second_opinion(theorem: Theorem, statement: Holds | ByInduction, word: str, by_z3: list[Verdict]) -> tuple[str, Check]:
    """What cvc5 says of the claims that Z3 decided, of which ``by_z3`` are the verdicts; of a refuted statement, of its parts up to the
    first that cvc5 refutes."""
    if "cvc5" not in available():
        return "not asked", Check(name="second solver", standing="not applicable", detail="cvc5 is not installed")
    words = list[str]()
    parts = claims(theorem, statement) if word == "refuted" else _decidable(theorem, statement)  # no induction refutes
    for part, verdict in zip(parts, by_z3, strict=False):
        words.append(_other_word(theorem, word, part, verdict))
        if word == words[-1] == "refuted":
            break
    if word == "proved":
        opinion = "agree" if all(w == "proved" for w in words) else "disagree" if "refuted" in words else "silent"
    else:
        opinion = "agree" if "refuted" in words else "disagree" if all(w == "proved" for w in words) else "silent"
    standing = "failed" if opinion == "disagree" else "passed"
    return opinion, Check(name="second solver", standing=standing, detail=f"cvc5: {', '.join(words)}")  # type: ignore[arg-type]


def _other_word(theorem: Theorem, word: str, part: Claim | Induction, verdict: Verdict) -> str:
    """What cvc5 says of a part of a statement: of one that Z3 proved, for reals or for integers, the same; of others for integers first,
    because what is refuted for these is refuted, and cvc5 does so sooner."""
    limit = Budget(milliseconds=min(LEVELS[theorem.level], SECOND_OPINION))

    def decided(claim: Any) -> Verdict:
        return _decided(claim, limit, "cvc5")

    if word == "proved" and isinstance(verdict, Proved):
        return _word(decided(verdict.claim))
    narrower = _of_integers(theorem, part)
    said = _word(decided(narrower))
    if said != "silent" or narrower == part:
        return said
    wider = decided(part)
    return _word(wider) if isinstance(wider, Proved) or _lies_within(theorem, wider) else said


def _word(verdict: Verdict) -> str:
    if isinstance(verdict, Proved):
        return "proved"
    return "refuted" if isinstance(verdict, Refuted) or verdict.suspected else "silent"


def sampled(theorem: Theorem, statement: Holds | ByInduction, wanted: int = SAMPLES) -> Check:
    """A proved statement holds at random exact points, at which as many goals are evaluated as are ``wanted``, each at some."""
    name, tried = "exact arithmetic", 0
    parts = claims(theorem, statement)
    wanted = max(FEWEST, wanted // len(parts)) if theorem.domains else 1
    for values, table in Sampler(theorem, statement).points(3, TRIES):
        what = fails(parts, values, table)
        if what is not None:
            return Check(name=name, standing="failed", detail=f"{what} at {shown(values)}")
        tried += 1
        if tried == wanted:
            return Check(name=name, standing="passed", detail=f"holds at {tried} random points")
    return Check(name=name, standing="failed", detail=f"only {tried} of {wanted} points were found that satisfy the hypotheses")


def brittle(theorem: Theorem, statement: Holds | ByInduction, settings: Settings, word: str) -> Check:
    """The verdict does not depend on a solver's random seed."""
    for seed in range(1, settings.seeds):
        words = {_word(v) for v in verdicts(theorem, statement, seed=seed)}
        if ("refuted" if "refuted" in words else "proved" if words == {"proved"} else "silent") != word:
            return Check(name="seeds", standing="failed", detail=f"z3 with seed {seed}: {', '.join(sorted(words))}")
    return Check(name="seeds", standing="passed", detail=f"the same verdict with {settings.seeds} seeds")


def control(theorem: Theorem, control: Control) -> Check:
    """A control is refuted where it says, or proved if it says so."""
    statement = theorem.elaborate(control.make)
    if not isinstance(statement, Holds | ByInduction):
        raise StatementError(f"the control `{control.label}` of {theorem.name} is about a program, and the theorem is not")
    if control.proved:
        if certified(theorem, statement) or all(isinstance(v, Proved) for v in verdicts(theorem, statement)):
            return Check(name=control.label, standing="passed", detail="proved, as it should be")
        return Check(name=control.label, standing="failed", detail="it should be proved, and was not")
    assert control.refuted_at is not None
    counterexample, why = refutation(theorem, statement, _point(control.refuted_at))
    if counterexample is None:
        return Check(name=control.label, standing="failed", detail=f"it should fail at {dict(control.refuted_at)}: {why}")
    return Check(name=control.label, standing="passed", detail=f"fails at {shown(dict(counterexample.witness))}")  # type: ignore[call-overload]


def dimensions(theorem: Theorem, statement: Holds | ByInduction) -> Check:
    """Both sides of every goal have one dimension: they scale alike if all symbols of a unit are scaled."""
    name, goals = "dimensions", statement.what.goals
    units = sorted({u for d in theorem.domains.values() for u in d.units()}.union(*(g.units() for g in goals)))
    if not units or statement.what.functions():
        return Check(name=name, standing="not applicable", detail="arbitrary functions" if units else "pure numbers")
    for values, _ in Sampler(theorem, statement).points(4, TRIES):
        for scaled, goal in product(units, goals):
            powers = {_power(theorem, goal, values, scaled, side) for side in ("left", "right")} - {None}
            if len(powers) > 1 or "none" in powers:
                return Check(name=name, standing="failed", detail=f"the sides of {goal} do not scale alike with {scaled}")
        return Check(name=name, standing="passed", detail=f"in {', '.join(units)}")
    return Check(name=name, standing="failed", detail="no point was found to compare them at")


def _power(theorem: Theorem, goal: Goal, values: dict[str, Fraction], scaled: str, side: str) -> int | str | None:
    """The power of a unit in one side; None for zero, which has every dimension; ``none`` if the side has no dimension."""
    factor = Fraction(3)
    ones = {unit(name).name: Fraction(1) for name in goal.units()}
    larger = {n: v * factor ** theorem.domains[n].units().get(scaled, 0) for n, v in values.items()}
    larger |= ones | ({unit(scaled).name: factor} if unit(scaled).name in ones else {})
    expr = getattr(goal.measured(), side)
    try:
        before, after = Point(values | ones).value(expr), Point(larger).value(expr)
    except UndefinedError:
        return None
    if before == 0 or after == 0:
        return None if before == after else "none"
    return next((k for k in range(-8, 9) if after / before == factor**k), "none")


def witness(theorem: Theorem, statement: Holds | ByInduction) -> tuple[Refuted | None, str]:
    """The refutation at the witness that is declared."""
    assert isinstance(theorem.expect, ExpectRefuted)
    return refutation(theorem, statement, _point(theorem.expect.witness))


def _point(given: Mapping[str, int | str | Fraction]) -> dict[str, Fraction]:
    """Values by parameter as they are computed with; :mod:`placeproof.theory.suite.faults` has looked at them."""
    return {name: Fraction(value) for name, value in given.items()}
