"""Lowering: from a strategy to the step program that every device runs."""

from placeproof.semantics.lower.program import lower

__all__ = ["lower"]
