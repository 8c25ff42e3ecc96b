"""The meaning of a step program as arrays over the mesh: a value is an array ``[coordinates of the device..., what it holds]``."""

from placeproof.semantics.meaning.setup import Difference, Fault, Setup

__all__ = ["Difference", "Fault", "Setup"]
