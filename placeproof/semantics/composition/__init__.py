"""The rule of composition: a step that trains on some axes of its mesh trains on all of them, if it is well-typed on each of the others."""

from placeproof.semantics.composition.decide import Composed, composed
from placeproof.semantics.composition.rule import RULE

__all__ = ["RULE", "Composed", "composed"]
