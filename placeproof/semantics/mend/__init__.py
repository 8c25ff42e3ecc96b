"""The factor that a step lacks: solved for, written into the program, and proved; or why there is none."""

from placeproof.semantics.mend.mend import Edit, Mended, NoFactor, Scales, mend

__all__ = ["Edit", "Mended", "NoFactor", "Scales", "mend"]
