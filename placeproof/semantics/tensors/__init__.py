"""Tensor programs: one block of a model, forward and backward, over tensors with named dimensions."""

from placeproof.semantics.tensors.encode import EncodedBlock, Result, encode_block, encode_tensors
from placeproof.semantics.tensors.setup import Difference, NotComputedError, RefutingBlockRun, Setup
from placeproof.semantics.tensors.simulate import inputs, script, search, simulate

__all__ = [
    "Difference",
    "EncodedBlock",
    "NotComputedError",
    "RefutingBlockRun",
    "Result",
    "Setup",
    "encode_block",
    "encode_tensors",
    "inputs",
    "script",
    "search",
    "simulate",
]
