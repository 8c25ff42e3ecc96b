"""Encoding: from a step program to claims that hold if and only if the step is right for every degree.

Distributed values are functions of device coordinates and an element. Nothing fixes how many devices, parameters, parts or
micro-batches there are.
"""

from placeproof.semantics.encode.context import CONSISTENCY, GRADIENT, INVARIANT, NoMeaningError, Obligation
from placeproof.semantics.encode.program import Encoding, Line, encode
from placeproof.semantics.encode.world import Options

__all__ = ["CONSISTENCY", "GRADIENT", "INVARIANT", "Encoding", "Line", "NoMeaningError", "Obligation", "Options", "encode"]
