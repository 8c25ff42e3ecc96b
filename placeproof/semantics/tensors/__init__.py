"""Tensor programs: one block of a model, forward and backward, over tensors with named dimensions."""

from placeproof.semantics.tensors.encode import encode_tensors
from placeproof.semantics.tensors.setup import Difference, Found, NotComputedError, Setup
from placeproof.semantics.tensors.simulate import inputs, script, search, simulate

__all__ = ["Difference", "Found", "NotComputedError", "Setup", "encode_tensors", "inputs", "script", "search", "simulate"]
