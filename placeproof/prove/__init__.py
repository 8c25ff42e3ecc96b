"""The domain-free prover: claims with named hypotheses, and verdicts that only the kernel constructs."""

from placeproof.prove.kernel import Budget, Claim, Hypothesis, Proved, Refuted, Unknown, Verdict, decide

__all__ = ["Budget", "Claim", "Hypothesis", "Proved", "Refuted", "Unknown", "Verdict", "decide"]
