"""Implementations of blocks: what a framework keeps in memory when it runs a model, as data."""

from placeproof.implementations.implementation import BlockImplementation, Difference, Tensor, find, names

__all__ = ["BlockImplementation", "Difference", "Tensor", "find", "names"]
