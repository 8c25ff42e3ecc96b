"""The meaning of a step program as arrays over the mesh: a value is an array ``[coordinates of the device..., what it holds]``."""

from placeproof.semantics.meaning.collectives import NoMeaningError
from placeproof.semantics.meaning.run import run

__all__ = ["NoMeaningError", "run"]
