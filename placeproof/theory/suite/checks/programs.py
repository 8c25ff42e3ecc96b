"""Checks of theorems about step programs: those that state that a program trains what one device trains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.prove import Budget, Proved
from placeproof.prove.kernel import ask
from placeproof.prove.smtlib import queries
from placeproof.prove.solvers.scripts import available
from placeproof.semantics import tensors
from placeproof.semantics.judge.ranges import Range, read_ranges
from placeproof.semantics.judge.search import search
from placeproof.semantics.judge.verdict import Judged, judge
from placeproof.semantics.searched import Searched, in_words
from placeproof.theory.language import StatementError
from placeproof.theory.statements import Keeps, Trains
from placeproof.theory.suite.checks import conditions
from placeproof.theory.suite.outcome import Check
from placeproof.theory.theorem import LEVELS, SECOND_OPINION, Control, Theorem

#: Seconds that a proved program is run on small meshes.
RUNS = 1.0


@dataclass(frozen=True)
class Programs:
    """A statement about a program, judged once for each set of assumptions."""

    theorem: Theorem
    statement: Trains
    verdicts: dict[frozenset[str], Judged] = field(default_factory=dict)

    @cached_property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges of degrees."""
        return read_ranges(self.statement.for_all, self.statement.program) if self.statement.for_all else ()

    @property
    def every(self) -> tuple[str, ...]:
        """All assumptions that there are of the program."""
        program = self.statement.program
        droppable = [a for a in ASSUMPTIONS.values() if a.without is not None and not program.tensors]
        return tuple(a.name for a in droppable if a.concerns(program) and a.name not in program.without)

    @property
    def most(self) -> tuple[str, ...]:
        """The assumptions that are told, or else all that there are of the program."""
        return self.every if self.statement.assuming is None else self.statement.assuming

    @cached_property
    def assuming(self) -> tuple[str, ...]:
        """The assumptions that are made: where none are told, no more than it needs."""
        return self.most if self.statement.assuming is not None else self._fewest(self.most)

    @property
    def why(self) -> str:
        """Why it is not proved. Of what is refuted: with which assumptions more it is proved, or else what is broken."""
        judged, told = self.judged, self.statement.assuming
        if judged.word != "refuted":
            return judged.why
        every = () if told is None else (*told, *(a for a in self.every if a not in told))
        if every and self.under(every).word == "proved":
            more = [a for a in self._fewest(every) if a not in self.assuming]
            return f"it is proved if {' and '.join(f'`{a}`' for a in more)} {'is' if len(more) == 1 else 'are'} assumed, too"
        about = judged.about
        return "; ".join((f"it does not hold that {about.name}", *(cause.words for cause in about.causes))) if about is not None else ""

    def _fewest(self, made: tuple[str, ...]) -> tuple[str, ...]:
        """Of assumptions with which it is proved, no more than it needs; of others all."""
        for name in reversed(made) if self.under(made).word == "proved" else ():
            fewer = tuple(a for a in made if a != name)
            made = fewer if self.under(fewer).word == "proved" else made
        return made

    @property
    def premises(self) -> tuple[str, ...]:
        """What it takes for granted, by name: assumptions, and ranges of degrees."""
        return (*self.assuming, *self.statement.for_all)

    def dropped(self) -> frozenset[str]:
        """The assumptions that are not made."""
        return _others(self.assuming)

    @property
    def judged(self) -> Judged:
        """The verdict."""
        return self.under(self.assuming)

    def under(self, assuming: Iterable[str]) -> Judged:
        """The verdict under some assumptions."""
        without = _others(assuming)
        if without not in self.verdicts:
            limit = Budget(milliseconds=LEVELS[self.theorem.level])
            self.verdicts[without] = judge(self.statement.program, without=without, ranges=self.ranges, budget=limit, shortest=False)
        return self.verdicts[without]

    def witness(self) -> dict[str, str]:
        """Where the program fails."""
        judged = self.judged
        if judged.word != "refuted" or judged.found is None:
            return {}
        shown = {f"N_{axis}": str(n) for axis, n in judged.found.setup.degrees.items()}
        if judged.about is not None:
            place = judged.about.place
            shown |= {"breaks": judged.about.condition, "line": str(place.line) if place is not None else "-"}
        return shown


def _others(assuming: Iterable[str]) -> frozenset[str]:
    """The assumptions that can be dropped, but for these."""
    return frozenset(a.name for a in ASSUMPTIONS.values() if a.without is not None) - set(assuming)


def satisfiable(programs: Programs) -> Check:
    """The kernel has asked it of every obligation; without obligations nothing was asked."""
    name = "hypotheses satisfiable"
    proved = [s for s in programs.judged.settled if isinstance(s.verdict, Proved)]
    if programs.judged.word == "proved" and not proved:
        return Check(name=name, standing="failed", detail="the program has no obligations")
    return Check(name=name, standing="passed", detail=f"{len(proved)} obligations, each with hypotheses that hold together")


def needed(programs: Programs) -> tuple[Check, tuple[str, ...]]:
    """Each assumption is needed: without it the program is refuted."""
    if programs.statement.program.tensors:
        return Check(name="needed", standing="not applicable", detail="a block makes no assumption that can be dropped"), ()
    used, reasons, idle = [], [], []
    for assumption in programs.assuming:
        judged = programs.under(a for a in programs.assuming if a != assumption)
        if judged.word == "refuted":
            used.append(assumption)
            degrees = in_words(judged.found.setup.degrees) if judged.found else ""
            reasons.append(f"without {assumption} it is refuted at {degrees}")
        else:
            idle.append(f"{assumption} ({judged.word} without it)")
    if idle:
        return Check(name="needed", standing="failed", detail=f"assumed and not needed: {', '.join(idle)}"), tuple(used)
    return Check(name="needed", standing="passed", detail="; ".join(reasons) or "it makes no assumption that can be dropped"), tuple(used)


def defined(programs: Programs) -> Check:
    """No obligation divides by zero; the kernel has asked."""
    undefined = [s for s in programs.judged.settled if "every division" in str(getattr(s.verdict, "why", ""))]
    detail = undefined[0].obligation.name if undefined else "asked of every obligation"
    return Check(name="divisions defined", standing="failed" if undefined and programs.judged.word == "proved" else "passed", detail=detail)


def second_opinion(programs: Programs) -> tuple[str, Check]:
    """What cvc5 says of every query whose answer the proof rests on."""
    name = "second solver"
    if "cvc5" not in available():
        return "not asked", Check(name=name, standing="not applicable", detail="cvc5 is not installed")
    if programs.judged.word == "refuted":
        return "agree", Check(name=name, standing="passed", detail="refuted by a run in exact arithmetic")
    limit = Budget(milliseconds=min(LEVELS[programs.theorem.level], SECOND_OPINION))
    asked = [q for s in programs.judged.settled if isinstance(s.verdict, Proved) for q in queries(s.obligation.claim)]
    answers = [(q, ask(q, limit, "cvc5")) for q in asked]
    denied = [q.name for q, answer in answers if answer not in (q.expected, "unknown")]
    silent = sum(1 for _, answer in answers if answer == "unknown")
    if denied:
        return "disagree", Check(name=name, standing="failed", detail=f"cvc5 denies {denied[0]}")
    confirmed = f"cvc5 confirms {len(answers) - silent} of {len(answers)} queries"
    return "silent" if silent else "agree", Check(name=name, standing="passed", detail=confirmed)


def exact(programs: Programs) -> Check:
    """A refuted program has failed in a run in fractions; a proved one is run on small meshes."""
    name = "exact arithmetic"
    if programs.judged.word == "refuted":
        return Check(name=name, standing="passed", detail="replayed by the simulator")
    program = programs.judged.program
    if program.tensors:
        searched: object = tensors.search(program, seconds=4 * RUNS)
    else:
        searched = search(program, without=programs.dropped(), ranges=programs.ranges, seconds=RUNS)
    if not isinstance(searched, Searched):
        return Check(name=name, standing="failed", detail="a small run differs")
    if not searched.runs:
        return Check(name=name, standing="failed", detail="no small run was possible")
    return Check(name=name, standing="passed", detail=f"no difference in small runs up to {searched.largest}")


def brittle(programs: Programs, seeds: int) -> Check:
    """No answer of Z3 depends on its random seed."""
    limit = Budget(milliseconds=LEVELS[programs.theorem.level])
    for settled in programs.judged.settled:
        if isinstance(settled.verdict, Proved):
            for query in queries(settled.obligation.claim):
                for seed in range(1, seeds):
                    if (answer := ask(query, limit, "z3", seed)) != query.expected:
                        return Check(name="seeds", standing="failed", detail=f"{query.name}: {answer} with seed {seed}")
    return Check(name="seeds", standing="passed", detail=f"the same answers with {seeds} seeds")


def control(theorem: Theorem, control: Control) -> Check:
    """A control is refuted for the condition that it names, or proved if it says so."""
    statement = theorem.elaborate(control.make)
    if not isinstance(statement, Trains | Keeps):
        raise StatementError(f"the control `{control.label}` of {theorem.name} is not about a program, and the theorem is")
    if isinstance(statement, Keeps):
        return conditions.control(theorem, control, statement)
    programs = Programs(theorem, statement)
    judged = programs.under(programs.most)
    if control.proved:
        proved = judged.word == "proved"
        return Check(name=control.label, standing="passed" if proved else "failed", detail=f"{judged.word}, and it should be proved")
    broken = judged.about.condition if judged.about is not None else "nothing that has a name"
    if judged.word != "refuted" or broken != control.breaks:
        return Check(name=control.label, standing="failed", detail=f"{judged.word}, breaking {broken}; it should break {control.breaks}")
    degrees = in_words(judged.found.setup.degrees) if judged.found is not None else ""
    return Check(name=control.label, standing="passed", detail=f"breaks {broken} at {degrees}")
