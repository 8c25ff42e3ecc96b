"""Accelerate's configurations."""
