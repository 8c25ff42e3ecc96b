"""Tensor programs: one block of a model, forward and backward, over tensors with named dimensions."""

from placeproof.semantics.tensors.encode import encode_tensors
from placeproof.semantics.tensors.judge import judge_tensors
from placeproof.semantics.tensors.simulate import Difference, Found, Searched, Setup, search, simulate

__all__ = ["Difference", "Found", "Searched", "Setup", "encode_tensors", "judge_tensors", "search", "simulate"]
