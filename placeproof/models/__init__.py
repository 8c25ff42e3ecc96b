"""Models as data: families (a stack of blocks whose dimensions are expressions of symbols) and presets (a family with its sizes).

Each block is a one-device program over tensors in ``blocks``, forward and backward. What a model has is counted from the headers of
these programs; no file here holds a count.
"""

from placeproof.models.expressions import Amount
from placeproof.models.family import Family, families
from placeproof.models.model import Block, Count, Model, Segment, holders, shared_by_segments, turns
from placeproof.models.presets import load, presets
from placeproof.models.substitution import substituted

__all__ = [
    "Amount",
    "Block",
    "Count",
    "Family",
    "Model",
    "Segment",
    "families",
    "holders",
    "load",
    "presets",
    "shared_by_segments",
    "substituted",
    "turns",
]
