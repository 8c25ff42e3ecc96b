"""The domain-free prover: terms and claims in, verdicts out."""

from placeproof.prove.claims import Equal, Equation, Given, Order, Query
from placeproof.prove.kernel import Budget, Claim, Hypothesis, Proved, Refuted, Unknown, Verdict, confirm, decide, settle

__all__ = [
    "Budget",
    "Claim",
    "Equal",
    "Equation",
    "Given",
    "Hypothesis",
    "Order",
    "Proved",
    "Query",
    "Refuted",
    "Unknown",
    "Verdict",
    "confirm",
    "decide",
    "settle",
]
