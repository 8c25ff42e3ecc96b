"""Checks of theorems about the rule of composition."""

from __future__ import annotations

from placeproof.prove import Budget, Proved, Unknown, settle
from placeproof.prove.kernel import ask
from placeproof.prove.smtlib import queries
from placeproof.prove.solvers.scripts import available
from placeproof.theory.clauses import Clauses
from placeproof.theory.language import StatementError
from placeproof.theory.suite.outcome import Check
from placeproof.theory.theorem import LEVELS, SECOND_OPINION, Control, Theorem


def verdicts(theorem: Theorem, statement: Clauses) -> list[Proved | Unknown]:
    """The kernel's verdict on each equation."""
    limit = Budget(milliseconds=LEVELS[theorem.level])
    return [settle(equation, limit) for equation in statement.equations]


def satisfiable(settled: list[Proved | Unknown]) -> Check:
    """The kernel has asked it of every equation."""
    proved = [v for v in settled if isinstance(v, Proved)]
    detail = f"{len(proved)} equations, each with hypotheses that hold together"
    return Check(name="hypotheses satisfiable", standing="passed" if proved else "failed", detail=detail)


def second_opinion(theorem: Theorem, statement: Clauses) -> tuple[str, Check]:
    """What cvc5 says of every query."""
    name = "second solver"
    if "cvc5" not in available():
        return "not asked", Check(name=name, standing="not applicable", detail="cvc5 is not installed")
    limit = Budget(milliseconds=min(LEVELS[theorem.level], SECOND_OPINION))
    answers = [(q, ask(q, limit, "cvc5")) for equation in statement.equations for q in queries(equation)]
    denied = [q.name for q, answer in answers if answer not in (q.expected, "unknown")]
    if denied:
        return "disagree", Check(name=name, standing="failed", detail=f"cvc5 denies {denied[0]}")
    silent = sum(answer == "unknown" for _, answer in answers)
    detail = f"cvc5 confirms {len(answers) - silent} of {len(answers)} queries"
    return "silent" if silent else "agree", Check(name=name, standing="passed", detail=detail)


def exact() -> tuple[Check, Check]:
    """What is asked of other theorems, and has no meaning here."""
    arbitrary = "the operands are arbitrary functions; there is no hypothesis to leave out, and no point to compute at"
    return tuple(Check(name=name, standing="not applicable", detail=arbitrary) for name in ("needed", "exact arithmetic"))  # type: ignore[return-value]


def brittle(statement: Clauses, seeds: int) -> Check:
    """No answer of Z3 depends on its random seed."""
    for query in (q for equation in statement.equations for q in queries(equation)):
        answers = {ask(query, None, "z3", seed) for seed in range(seeds)}
        if answers != {query.expected}:
            return Check(name="seeds", standing="failed", detail=f"{query.name}: {', '.join(sorted(answers))}")
    return Check(name="seeds", standing="passed", detail=f"the same answers with {seeds} seeds")


def control(theorem: Theorem, control: Control) -> Check:
    """A changed clause does not hold: some equation has a model of its opposite."""
    statement = theorem.elaborate(control.make)
    if not isinstance(statement, Clauses):
        raise StatementError(f"the control `{control.label}` of {theorem.name} is not about clauses, and the theorem is")
    failed = [v for v in verdicts(theorem, statement) if isinstance(v, Unknown) and v.suspected]
    if control.proved:
        raise StatementError(f"the control `{control.label}` of {theorem.name} is about a clause that fails; it cannot be proved")
    if not failed:
        return Check(name=control.label, standing="failed", detail="every equation holds, and one should fail")
    return Check(name=control.label, standing="passed", detail=f"z3 has a model of the opposite of {len(failed)} of its equations")
