"""Interpretations that speak of amounts: memory and traffic, as closed formulas."""
