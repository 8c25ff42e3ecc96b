"""Checks of theorems about conditions: those that state that a step program, or each of several, keeps some of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from placeproof.programs import Program
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.prove import Budget
from placeproof.prove.claims import Query
from placeproof.prove.kernel import ask
from placeproof.prove.smtlib import queries
from placeproof.prove.solvers.scripts import available
from placeproof.semantics.encode import INVARIANT
from placeproof.semantics.judge.conditions import Answered, NoMeaningError, answered
from placeproof.semantics.judge.verdict import Judged, Word, judge
from placeproof.semantics.searched import in_words
from placeproof.theory.statements import Keeps
from placeproof.theory.suite.outcome import Check
from placeproof.theory.theorem import LEVELS, SECOND_OPINION, Control, Theorem


@dataclass(frozen=True)
class Step:
    """A step program with the answers to its obligations, under some assumptions."""

    name: str
    program: Program
    without: frozenset[str]
    budget: Budget

    @cached_property
    def answers(self) -> tuple[Answered, ...]:
        """The answer to each obligation; none where a proof cannot speak of the step."""
        try:
            return answered(self.program, without=self.without, budget=self.budget)
        except NoMeaningError:
            return ()

    @cached_property
    def judged(self) -> Judged:
        """The verdict on the whole step: of what no number of a first step shows, a run to the end may."""
        return judge(self.program, without=self.without, budget=self.budget, shortest=False)

    def asked(self, conditions: Iterable[str]) -> list[Answered]:
        """The answers to what conditions ask."""
        return [a for a in self.answers if a.obligation.condition in conditions]

    def word(self, conditions: tuple[str, ...]) -> Word:
        """Whether all that conditions ask is proved, or some of it is refuted."""
        words = {a.word for a in self.asked(conditions)}
        if "refuted" in words:
            return "refuted"
        if self.answers and "unknown" not in words:
            return "proved"
        return "refuted" if any(c in conditions for c in self.denied) else "unknown"

    @cached_property
    def denied(self) -> list[str]:
        """The conditions that a run to the end denies: the one that is suspected, and that the step is right."""
        if self.judged.word != "refuted":
            return []
        return [*([self.judged.about.condition] if self.judged.about is not None else []), INVARIANT]

    def broken(self, conditions: tuple[str, ...]) -> tuple[str, str]:
        """A condition that is broken, and where."""
        for answer in self.asked(conditions):
            if answer.word == "refuted":
                return answer.obligation.condition, answer.where
        found = self.judged.found
        return next(c for c in self.denied if c in conditions), in_words(found.setup.degrees) if found is not None else ""


@lru_cache(maxsize=256)
def _step(name: str, program: Program, without: frozenset[str], milliseconds: int) -> Step:
    """A step is answered once, however many statements are about it."""
    return Step(name, program, without, Budget(milliseconds=milliseconds))


@dataclass(frozen=True)
class Conditions:
    """A statement about conditions, answered program by program."""

    theorem: Theorem
    statement: Keeps

    def steps(self, also: str | None = None) -> list[Step]:
        """The programs. ``also``: an assumption that is dropped besides."""
        made = {a for a in self.statement.assuming if a != also}
        without = frozenset(a.name for a in ASSUMPTIONS.values() if a.without is not None) - made
        return [_step(name, program, without, LEVELS[self.theorem.level]) for name, program in self.statement.programs]

    def keeping(self, given: tuple[str, ...]) -> list[Step]:
        """The programs that keep some conditions."""
        return [s for s in self.steps() if s.word(given) == "proved"]

    @cached_property
    def word(self) -> Word:
        """The verdict."""
        return self.under()

    def under(self, also: str | None = None) -> Word:
        """The verdict. ``also``: an assumption that is dropped besides."""
        words = {self._follows(step) for step in self.steps(also)}
        return next((w for w in _REFUTED_FIRST if w in words), "proved")

    def _follows(self, step: Step) -> Word:
        """Whether a program that keeps what is given keeps the rest."""
        before = step.word(self.statement.given)
        if before == "refuted":
            return "proved"
        after = step.word(self.statement.conditions)
        return after if before == "proved" or after == "proved" else "unknown"

    def queries(self) -> list[Query]:
        """The queries on which the verdict rests, each once."""
        proved = [a for s in self.keeping(self.statement.given) for a in s.answers if a.word == "proved"]
        return list({q.script: q for a in proved for q in queries(a.obligation.claim)}.values())

    @cached_property
    def against(self) -> list[tuple[str, str, str]]:
        """The programs that refute the statement, by name, each with a condition that it breaks, and where."""
        steps = [s for s in self.keeping(self.statement.given) if s.word(self.statement.conditions) == "refuted"]
        return [(s.name, *s.broken(self.statement.conditions)) for s in steps]

    @property
    def broken(self) -> str:
        """The conditions that they break."""
        return " and ".join(dict.fromkeys(condition for _, condition, _ in self.against)) or "nothing"

    def witness(self) -> dict[str, str]:
        """Which programs refute the statement."""
        return {f"program {n}" if len(self.against) > 1 else "program": name for n, (name, _, _) in enumerate(self.against, start=1)}


#: Of the verdicts on several programs, the one that counts.
_REFUTED_FIRST: tuple[Word, ...] = ("refuted", "unknown")


def satisfiable(conditions: Conditions) -> Check:
    """Some program keeps what is given; and something is asked of it."""
    name, keeping = "hypotheses satisfiable", conditions.keeping(conditions.statement.given)
    asked = sum(len(s.asked(conditions.statement.conditions)) for s in keeping)
    detail = f"{len(keeping)} of {len(conditions.statement.programs)} programs keep what is given, of which {asked} obligations are asked"
    return Check(name=name, standing="passed" if asked else "failed", detail=detail)


def needed(conditions: Conditions) -> tuple[Check, tuple[str, ...]]:
    """Without any one of the given conditions a program fails; without given ones, each assumption is needed."""
    given, then = conditions.statement.given, conditions.statement.conditions
    fails: dict[str, bool] = {}
    for condition in given:
        rest = conditions.keeping(tuple(g for g in given if g != condition))
        fails[condition] = any(s.word(then) == "refuted" for s in rest)
    if not given:
        fails = {a: conditions.under(a) == "refuted" for a in conditions.statement.assuming}
    idle = [name for name, failing in fails.items() if not failing]
    used = tuple(name for name, failing in fails.items() if failing)
    detail = f"not needed: {', '.join(idle)}" if idle else f"without any one of {', '.join(used)} a program fails"
    return Check(name="needed", standing="failed" if idle else "passed", detail=detail), used


def exact(conditions: Conditions) -> Check:
    """In runs the two sides of what is proved are the same numbers, and of what is refuted they are not."""
    name = "exact arithmetic"
    if conditions.against:
        return Check(name=name, standing="passed", detail="; ".join(f"{who}: {where}" for who, _, where in conditions.against))
    numbers = sum(a.numbers for s in conditions.steps() for a in s.answers if a.word == "proved")
    return Check(name=name, standing="passed" if numbers else "failed", detail=f"{numbers} numbers of runs are as proved")


def second_opinion(conditions: Conditions) -> tuple[str, Check]:
    """What cvc5 says of each query on which the verdict rests, each asked once."""
    name = "second solver"
    if "cvc5" not in available():
        return "not asked", Check(name=name, standing="not applicable", detail="cvc5 is not installed")
    limit = Budget(milliseconds=min(LEVELS[conditions.theorem.level], SECOND_OPINION))
    answers = [(q, ask(q, limit, "cvc5")) for q in conditions.queries()]
    denied = [q.name for q, answer in answers if answer not in (q.expected, "unknown")]
    if denied:
        return "disagree", Check(name=name, standing="failed", detail=f"cvc5 denies {denied[0]}")
    silent = sum(1 for _, answer in answers if answer == "unknown")
    confirmed = f"cvc5 confirms {len(answers) - silent} of {len(answers)} queries"
    return "silent" if silent else "agree", Check(name=name, standing="passed", detail=confirmed)


def brittle(conditions: Conditions, seeds: int) -> Check:
    """No answer of Z3 depends on its random seed."""
    limit = Budget(milliseconds=LEVELS[conditions.theorem.level])
    for query in conditions.queries():
        for seed in range(1, seeds):
            if (answer := ask(query, limit, "z3", seed)) != query.expected:
                return Check(name="seeds", standing="failed", detail=f"{query.name}: {answer} with seed {seed}")
    return Check(name="seeds", standing="passed", detail=f"the same answers with {seeds} seeds")


def control(theorem: Theorem, control: Control, statement: Keeps) -> Check:
    """A control is refuted for the condition that it names, or proved if it says so."""
    conditions = Conditions(theorem, statement)
    if control.proved:
        right = conditions.word == "proved"
        return Check(name=control.label, standing="passed" if right else "failed", detail=f"{conditions.word}, and it should be proved")
    right = conditions.word == "refuted" and conditions.broken == control.breaks
    wanted = "" if right else f"; it should break {control.breaks}"
    return Check(
        name=control.label, standing="passed" if right else "failed", detail=f"{conditions.word}, breaking {conditions.broken}{wanted}"
    )
