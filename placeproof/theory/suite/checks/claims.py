"""From a theorem's statement to claims of the prover, with any one hypothesis left out."""

from __future__ import annotations

from fractions import Fraction

from placeproof.prove import Claim, Definition, Induction, Named, Relation
from placeproof.prove.relations import Cases, Fact
from placeproof.theory.clauses import Clauses
from placeproof.theory.domains import Domain
from placeproof.theory.language import definitions
from placeproof.theory.statements import ByInduction, Holds, Keeps, Statement, Trains
from placeproof.theory.theorem import Theorem
from placeproof.theory.units import plain

#: What a program's statement takes for granted that tells no assumptions; which they are is known once it is proved.
AS_NEEDED = ("the assumptions that it needs",)


def hypotheses(theorem: Theorem, statement: Holds | ByInduction, without: str | None = None) -> tuple[Named, ...]:
    """The hypotheses with their names: the bounds of the domains, then those that the statement gives. Lemmas are none. A bound that a
    given number implies, as ``N >= 2`` does, is none either. ``without``: the name of one to leave out."""
    given = [Named(name=str(g.relation()), fact=g.relation()) for g in statement.what.given]
    given = [h for h in given if h.name != without]
    bounds = []
    for name, domain in theorem.domains.items():
        relation = theorem.bound(name)
        if relation is not None and not any(_implies(h.fact, name, domain) for h in given):
            bounds.append(Named(name=str(domain.bound(name)), fact=relation))
    if isinstance(statement, ByInduction) and (begun := f"{statement.on} >= {statement.start}") not in {n.name for n in bounds}:
        bounds.append(Named(name=begun, fact=statement.begun()))
    return (*(h for h in bounds if h.name != without), *given)


def _implies(fact: Fact, name: str, domain: Domain) -> bool:
    """Whether a relation of a parameter and a number leaves nothing of its domain's bound to say."""
    if not isinstance(fact, Relation) or domain.least is None:
        return False
    left, right = (fact.right, fact.left) if fact.op == "==" and fact.right.is_Rational else (fact.left, fact.right)
    if str(right) != name or not left.is_Rational or fact.op == "!=":
        return False
    if fact.op == "<" and left == domain.least:
        return True
    return domain.has(Fraction(int(left.p), int(left.q))) or (left >= domain.least and fact.op != "==" and not domain.strict)


def claims(theorem: Theorem, statement: Holds | ByInduction, without: str | None = None) -> tuple[Claim, ...]:
    """One claim for each goal; of an induction, what it claims at every integer. ``without``: the name of a hypothesis to leave out."""
    given = hypotheses(theorem, statement, without)
    lemmas = tuple(Named(name=f"by {lemma.theorem.id}", fact=lemma.fact) for lemma in statement.what.lemmas)
    defined = known_definitions(statement)
    number, made = len(statement.what.goals), []
    for i, goal in enumerate(statement.what.goals, start=1):
        name, fact = theorem.id if number == 1 else f"{theorem.id} ({i})", goal.fact()
        if isinstance(fact, Cases):  # what speaks of no function is proved without lemmas
            made.append(Claim(name=name, goal=fact, given=given))
        else:
            made.append(Claim(name=name, goal=fact, given=(*given, *lemmas), definitions=defined))
    return tuple(made)


def inductions(theorem: Theorem, statement: ByInduction) -> tuple[Induction, ...]:
    """What is proved by induction."""
    instances = tuple({name: plain(value.expr) for name, value in one.items()} for one in statement.at)
    return tuple(
        Induction(claim=claim, on=statement.on, start=statement.start.expr, instances=instances) for claim in claims(theorem, statement)
    )


def known_definitions(statement: Holds | ByInduction) -> tuple[Definition, ...]:
    """The definitions of all functions that a statement speaks of."""
    return definitions(statement.what.functions())


def premises(theorem: Theorem, statement: Statement) -> tuple[str, ...]:
    """What a statement takes for granted, by name: hypotheses, or of a program, assumptions and ranges of degrees."""
    if isinstance(statement, Clauses):
        return ()
    if isinstance(statement, Keeps):
        return statement.assuming
    if isinstance(statement, Trains):
        return (*(AS_NEEDED if statement.assuming is None else statement.assuming), *statement.for_all)
    return tuple(h.name for h in hypotheses(theorem, statement))
