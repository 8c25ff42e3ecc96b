"""The kernel: the only module that constructs a verdict.

A claim is an equation or an order under named hypotheses: between SymPy expressions (:class:`Claim`) or between terms with
uninterpreted functions and sums (:class:`placeproof.prove.claims.Equation`). It is decided by refuting its negation with a
solver, under a budget. A time-out is Unknown, and Unknown is never a pass. Division is not total in mathematics but is in SMT,
so that a claim holds only if every denominator is shown to differ from zero as well. A solver's model of the negation is a
suspicion: a claim is refuted only by a witness that exact arithmetic has seen fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from placeproof.prove.claims import Equation, Query
from placeproof.prove.solvers.answer import Answer, Sat, Unsat

if TYPE_CHECKING:
    import sympy

_SEAL = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long one query may take, in milliseconds."""

    milliseconds: int = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A named assumption of a claim: a SymPy relation such as ``N >= 1``."""

    name: str
    relation: sympy.Basic


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """``left <relation> right`` for all real values that satisfy the hypotheses; ``relation`` is ``==``, ``<=`` or ``<``."""

    name: str
    left: sympy.Expr
    right: sympy.Expr
    relation: str = "=="
    hypotheses: tuple[Hypothesis, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A verdict carries the kernel's seal; nothing else can make one."""

    claim: Claim | Equation
    seal: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.seal is not _SEAL:
            raise TypeError("only the kernel constructs a verdict; call placeproof.prove.decide")


@dataclass(frozen=True, slots=True)
class Proved(_Sealed):
    """The negation of the claim has no model, and every division is defined."""

    solver: str


@dataclass(frozen=True, slots=True)
class Refuted(_Sealed):
    """What satisfies the hypotheses and violates the claim, checked in exact arithmetic: values of symbols, or whatever the
    caller's check of an equation has seen fail."""

    witness: object
    solver: str


@dataclass(frozen=True, slots=True)
class Unknown(_Sealed):
    """Neither was shown; ``why`` says what was tried. ``suspected``: a solver has a model of the negation."""

    why: str
    suspected: bool = False


Verdict: TypeAlias = Proved | Refuted | Unknown


def settle(claim: Equation, budget: Budget | None = None, solver: str = "z3") -> Proved | Unknown:
    """Decide an equation between terms: Proved, or Unknown with whether a solver suspects it to be false."""
    from placeproof.prove.smtlib import queries

    limit = budget or Budget()
    for query in queries(claim):
        answer = ask(query, limit, solver)
        if answer == query.expected:
            continue
        if answer == "unknown":
            return Unknown(claim, _SEAL, f"{query.name}: {solver} gave no answer in {limit.milliseconds} ms")
        if query.expected == "sat":
            return Unknown(claim, _SEAL, "the hypotheses contradict each other")
        return Unknown(claim, _SEAL, f"{query.name}: {solver} has a model of the opposite", suspected=True)
    return Proved(claim, _SEAL, solver)


def ask(query: Query, budget: Budget | None = None, solver: str = "z3") -> str:
    """What a solver says of a query within the budget: ``sat``, ``unsat`` or ``unknown``."""
    return _answer(query.script, (budget or Budget()).milliseconds, solver)


@lru_cache(maxsize=4096)
def _answer(script: str, milliseconds: int, solver: str) -> str:
    from placeproof.prove.solvers.scripts import SOLVERS

    return SOLVERS[solver](script, milliseconds)


def confirm(claim: Equation, witness: object, fails: Callable[[], bool]) -> Refuted | Unknown:
    """Refuted if ``fails``, which recomputes the witness in exact arithmetic, sees the claim fail; else Unknown."""
    if fails():
        return Refuted(claim, _SEAL, witness, "exact arithmetic")
    return Unknown(claim, _SEAL, "a witness was proposed that exact arithmetic does not confirm", suspected=True)


def decide(claim: Claim, budget: Budget | None = None) -> Verdict:
    """Decide a claim with Z3. Raises ValueError for expressions outside arithmetic."""
    from placeproof.prove.solvers import z3 as solver

    limit = budget or Budget()
    if not isinstance(solver.ask(claim, None, limit.milliseconds), Sat):
        return Unknown(claim, _SEAL, "no values were found that satisfy the hypotheses: they may contradict each other")
    for part, negation in solver.obligations(claim):
        answer = solver.ask(claim, negation, limit.milliseconds)
        if isinstance(answer, Sat):
            return _refutation(claim, answer, solver.NAME, part)
        if not isinstance(answer, Unsat):
            return Unknown(claim, _SEAL, f"{part}: {solver.NAME} gave no answer in {limit.milliseconds} ms")
    return Proved(claim, _SEAL, solver.NAME)


def _refutation(claim: Claim, answer: Answer, solver: str, part: str) -> Verdict:
    """A solver's model is a suspicion until exact arithmetic has seen the claim fail at it."""
    assert isinstance(answer, Sat)
    if part == "definedness":
        return Unknown(claim, _SEAL, "a denominator may be zero under the hypotheses")
    import sympy

    values = {sympy.Symbol(name): sympy.Rational(v.numerator, v.denominator) for name, v in answer.model}
    assumed = all(bool(h.relation.xreplace(values)) for h in claim.hypotheses)
    left, right = claim.left.xreplace(values), claim.right.xreplace(values)
    if assumed and left.is_Rational and right.is_Rational and not _holds(left, right, claim.relation):
        return Refuted(claim, _SEAL, answer.model, solver)
    return Unknown(claim, _SEAL, f"{solver} gave a model that exact arithmetic does not confirm")


def _holds(left: sympy.Expr, right: sympy.Expr, relation: str) -> bool:
    if relation == "==":
        return bool(left == right)
    return bool(left < right) or (relation == "<=" and bool(left == right))
