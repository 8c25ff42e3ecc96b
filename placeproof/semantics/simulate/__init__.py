"""An exact simulator: a step program run on a small mesh, in rational numbers, with a small real network.

It shares no code with any encoding of programs for solvers. What it says of a program is true of that run alone; a
difference from the single-device reference is a difference that anyone can recompute.
"""

from placeproof.semantics.simulate.run import Difference, Fault, Setup, simulate

__all__ = ["Difference", "Fault", "Setup", "simulate"]
