"""The optimizers of the simulator: one that looks at each element by itself, one with tensor norms, one that reads whole matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placeproof.semantics.simulate.layout import Element

Number = Any
#: (master copy of the parameter, momentum)
State = tuple[Number, Number]


def elementwise(theta: Number, omega: State, g: Number) -> tuple[Number, State]:
    """Momentum, and a square that makes the gradient's scale show."""
    momentum = (omega[1] + g) / 2
    new = theta - momentum / 4 - g * g / 64
    return new, (new, momentum)


def norm_term(theta: Number, omega: State, g: Number) -> Number:
    """What an element adds to its tensor's statistic."""
    return g * g + theta


def with_norm(theta: Number, omega: State, g: Number, norm: Number) -> tuple[Number, State]:
    """A step scaled by the tensor's statistic."""
    momentum = (omega[1] + g) / 2
    new = theta - momentum * norm / 4
    return new, (new, momentum)


def matrix(theta: Number, omega: State, g: Number, tensor: Mapping[Element, Number]) -> tuple[Number, State]:
    """A step that mixes the gradients of a whole tensor."""
    mixed = sum(tensor.values(), 0)
    return with_norm(theta, omega, g, 1 + mixed)


def clip(norm: Number) -> Number:
    """A stand-in for min(1, limit / norm): any function shows a wrong norm."""
    return 1 / (1 + norm)
