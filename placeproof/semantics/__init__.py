"""Interpretations that speak of meaning: lowering a strategy to a step program, and the layouts of its values."""
