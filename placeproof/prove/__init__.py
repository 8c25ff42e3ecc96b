"""The domain-free prover: terms and claims in, verdicts out."""

from placeproof.prove.claims import Equal, Equation, Given, Order
from placeproof.prove.kernel import Budget, Proved, Refuted, Unknown, Verdict, certify, compose, confirm, decide, induct, refute, settle
from placeproof.prove.relations import Claim, Definition, Implication, Induction, Named, Relation

__all__ = [
    "Budget",
    "Claim",
    "Definition",
    "Equal",
    "Equation",
    "Given",
    "Implication",
    "Induction",
    "Named",
    "Order",
    "Proved",
    "Refuted",
    "Relation",
    "Unknown",
    "Verdict",
    "certify",
    "compose",
    "confirm",
    "decide",
    "induct",
    "refute",
    "settle",
]
