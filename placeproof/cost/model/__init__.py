"""What a model costs under a strategy: stage by stage, from the programs of its blocks."""

from placeproof.cost.model.derivation import ModelDerivation, StageCost, derive_model
from placeproof.cost.model.recomputation import RECOMPUTE, Recompute

__all__ = ["RECOMPUTE", "ModelDerivation", "Recompute", "StageCost", "derive_model"]
