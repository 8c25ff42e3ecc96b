"""The four training states.

Source: Mehta, "Placement Semantics for Distributed Deep Learning", arXiv 2601.02311.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A training state: its name in programs and files, its symbol, and the byte width of one of its elements."""

    name: str
    symbol: str
    width: str
    meaning: str

    def __str__(self) -> str:
        return self.name


PARAMETERS = State(name="parameters", symbol="Θ", width="b_theta", meaning="the compute copy of the weights, read by forward and backward")
OPTIMIZER = State(name="optimizer", symbol="Ω", width="b_omega", meaning="optimizer state, including the fp32 master copy of the weights")
GRADIENTS = State(name="gradients", symbol="G", width="b_g", meaning="the gradient of the loss with respect to the parameters")
ACTIVATIONS = State(name="activations", symbol="A", width="b_a", meaning="what forward keeps for backward; A counts the local batch")

STATES: dict[str, State] = {s.name: s for s in (PARAMETERS, OPTIMIZER, GRADIENTS, ACTIVATIONS)}
MODEL_STATES = (PARAMETERS, OPTIMIZER, GRADIENTS)
