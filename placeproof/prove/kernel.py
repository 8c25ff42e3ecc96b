"""The kernel: the only module that constructs a verdict.

A claim is a relation between SymPy expressions (:class:`placeproof.prove.relations.Claim`), or an equation between terms with
uninterpreted functions and sums (:class:`placeproof.prove.claims.Equation`), under named hypotheses. It is decided by refuting its
negation with a solver, under a budget. A time-out is Unknown, and Unknown is never a pass. Division is not total in mathematics but
is in SMT, so that a claim holds only if every denominator is shown to differ from zero as well. A solver's model of the negation is
a suspicion: a claim is refuted only by a witness that exact arithmetic has seen fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from placeproof.prove.claims import Equation, Query
from placeproof.prove.composition import Composition, by_name, fault
from placeproof.prove.relations import Claim, Induction
from placeproof.prove.terms.limit import TOO_LARGE, WHY, limited

if TYPE_CHECKING:
    from placeproof.prove.exact import Table

_SEAL = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long one query may take, in milliseconds."""

    milliseconds: int = 5_000


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A verdict carries the kernel's seal; nothing else can make one."""

    claim: Claim | Equation | Induction | Composition
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


@limited()
def settle(claim: Equation, budget: Budget | None = None, solver: str = "z3") -> Proved | Unknown:
    """Decide an equation between terms: Proved, or Unknown with whether a solver suspects it to be false."""
    from placeproof.prove.smtlib import queries

    limit, failed = budget or Budget(), None
    try:
        asked = queries(claim)
    except TOO_LARGE:
        return Unknown(claim, _SEAL, f"{claim.name}: {WHY}")
    for query in asked:  # that the claim itself fails tells more than that a division before it may be undefined
        answer = ask(query, limit, solver)
        if answer == query.expected:
            continue
        if answer == "unknown":
            failed = failed or Unknown(claim, _SEAL, f"{query.name}: {solver} gave no answer in {limit.milliseconds} ms")
        elif query.expected == "sat":
            return Unknown(claim, _SEAL, "the hypotheses contradict each other")
        else:
            failed = Unknown(claim, _SEAL, f"{query.name}: {solver} has a model of the opposite", suspected=True)
    return failed or Proved(claim, _SEAL, solver)


def ask(query: Query, budget: Budget | None = None, solver: str = "z3", seed: int = 0) -> str:
    """What a solver says of a query within the budget: ``sat``, ``unsat`` or ``unknown``. ``seed``: of its random choices."""
    return _answer(query.script, (budget or Budget()).milliseconds, solver, seed)


@lru_cache(maxsize=4096)
def _answer(script: str, milliseconds: int, solver: str, seed: int) -> str:
    from placeproof.prove.solvers.scripts import SOLVERS

    return SOLVERS[solver](script, milliseconds, seed)


def confirm(claim: Equation, witness: object, fails: Callable[[], bool]) -> Refuted | Unknown:
    """Refuted if ``fails``, which recomputes the witness in exact arithmetic, sees the claim fail; else Unknown."""
    if fails():
        return Refuted(claim, _SEAL, witness, "exact arithmetic")
    return Unknown(claim, _SEAL, "a witness was proposed that exact arithmetic does not confirm", suspected=True)


def decide(claim: Claim, budget: Budget | None = None, solver: str = "z3", seed: int = 0) -> Verdict:
    """Decide a claim of arithmetic with a solver. A model of the opposite refutes it only if exact arithmetic confirms the model.

    Raises ValueError for expressions outside arithmetic.
    """
    from placeproof.prove.arithmetic import queries

    limit = budget or Budget()
    for query in queries(claim):
        answer = ask(query, limit, solver, seed)
        if answer == query.expected:
            continue
        if answer == "unknown":
            return Unknown(claim, _SEAL, f"{query.name}: {solver} gave no answer in {limit.milliseconds} ms")
        if query.expected == "sat":
            return Unknown(claim, _SEAL, "the hypotheses contradict each other")
        if query.name.endswith("every division is defined"):
            return Unknown(claim, _SEAL, "a denominator may be zero under the hypotheses", suspected=True)
        return _by_model(claim, query, limit, solver)
    return Proved(claim, _SEAL, solver)


def _by_model(claim: Claim, query: Query, limit: Budget, solver: str) -> Verdict:
    """A solver's model is a suspicion until exact arithmetic has seen the claim fail at it."""
    from placeproof.prove.solvers.scripts import model

    found = model(query.script, limit.milliseconds)
    if found is not None:
        names = {name for relation in claim.relations() for name in relation.names()}
        verdict = refute(claim, {name: found.get(name, Fraction(0)) for name in sorted(names)})
        if isinstance(verdict, Refuted):
            return verdict
    why = f"{query.name}: {solver} has a model of the opposite that exact arithmetic does not confirm"
    return Unknown(claim, _SEAL, why, suspected=True)


def refute(claim: Claim, witness: Mapping[str, Fraction], table: Table | None = None) -> Refuted | Unknown:
    """Refuted if the hypotheses hold at a point and the claim fails there; else Unknown. ``table``: arbitrary functions there."""
    from placeproof.prove.exact import Point, UndefinedError

    point = Point(witness, claim.definitions, table)
    try:
        if all(point.holds(n.fact) for n in claim.given) and not point.holds(claim.goal):
            return Refuted(claim, _SEAL, tuple(sorted(witness.items())), "exact arithmetic")
    except (UndefinedError, KeyError) as missing:
        return Unknown(claim, _SEAL, f"nothing can be computed there: {missing}")
    return Unknown(claim, _SEAL, "the hypotheses do not hold there, or the claim does")


def induct(induction: Induction, budget: Budget | None = None, solver: str = "z3", seed: int = 0) -> Proved | Unknown:
    """Decide a claim about all integers from a start: it holds there, and at the next one wherever it holds at one."""
    for part in (induction.base(), induction.step()):
        verdict = decide(part, budget, solver, seed)
        if not isinstance(verdict, Proved):
            suspected = isinstance(verdict, Refuted) or verdict.suspected
            why = f"{part.name} fails at {dict(verdict.witness)}" if isinstance(verdict, Refuted) else verdict.why  # type: ignore[call-overload]
            return Unknown(induction, _SEAL, why, suspected)
    return Proved(induction, _SEAL, f"{solver}, by induction over {induction.on}")


def compose(claim: Composition) -> Proved | Unknown:
    """Proved if the step is proved on some of its axes, and each derivation puts one of the others on by clauses of the rule.

    That clauses keep what they say is not asked here: each is a theorem of the topic ``composition_rule``.
    """
    rule = by_name(claim.rule)
    if not claim.base or not all(isinstance(verdict, Proved) for verdict in claim.base):
        return Unknown(claim, _SEAL, "the step is not proved on the axes that it begins with")
    for derivation in claim.derivations:
        if (wrong := fault(derivation, rule)) is not None:
            return Unknown(claim, _SEAL, wrong)
    return Proved(claim, _SEAL, "rule of composition")


def certify(claim: Claim) -> Proved | Unknown:
    """Proved if a certificate shows the claim that needs no solver."""
    from placeproof.prove.certificate import checked, find

    found = find(claim)
    if found is not None and checked(claim, found):
        return Proved(claim, _SEAL, "certificate")
    return Unknown(claim, _SEAL, "no certificate was found")
