"""The optimizers of a replay, on tensors with one number for each element of the model: momentum, and what shows the gradient's scale.

``elementwise`` looks at each element by itself, ``with_norm`` scales the step by a number of the whole tensor, ``matrix`` by the sum of
the tensor's gradients. The state is the master copy of the parameter and the momentum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from placeproof.measure.replay_model import Model
from placeproof.measure.replay_numbers import Numbers, zeros


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Parameters of shape (elements,) and optimizer states of shape (elements, 2)."""

    theta: Numbers
    omega: Numbers


def by_tensor(model: Model, numbers: Numbers, held: Tensor) -> Numbers:
    """The sum over the elements of each tensor that are held: of shape (tensors,)."""
    wide = numbers[None][torch.zeros(len(model.tensors), dtype=torch.int64)]
    mine = (model.tensor_of == torch.arange(len(model.tensors))[:, None]) & held
    return wide.where(mine, zeros(numbers.of, *wide.shape)).sum(1)


def elementwise(states: States, g: Numbers) -> States:
    """Momentum, and a square of the gradient."""
    momentum = (states.omega[:, 1] + g) / 2
    return _states(states.theta - momentum / 4 - g * g / 64, momentum)


def with_norm(states: States, g: Numbers, norm: Numbers) -> States:
    """A step scaled by a number for each element, that of its tensor."""
    momentum = (states.omega[:, 1] + g) / 2
    return _states(states.theta - momentum * norm / 4, momentum)


def _states(theta: Numbers, momentum: Numbers) -> States:
    return States(theta, Numbers(theta.of, torch.stack([theta.data, momentum.data], dim=1)))


def norm_terms(theta: Numbers, g: Numbers) -> Numbers:
    """What each element adds to the number of its tensor."""
    return g * g + theta


def updated(model: Model, states: States, g: Numbers, read: Tensor, whole: Tensor) -> States:
    """The step of the reference's optimizer. ``read``: the elements whose gradients are there; ``whole``: those with all three states."""
    kind = model.reference("optimizer") or "elementwise"
    if "elementwise-optimizer" in model.found.without:
        kind = "matrix"
    if kind == "elementwise":
        return elementwise(states, g)
    if kind == "matrix":
        return with_norm(states, g, 1 + by_tensor(model, g, read)[model.tensor_of])
    return with_norm(states, g, by_tensor(model, norm_terms(states.theta, g), whole)[model.tensor_of])


def clip(norm: Numbers) -> Numbers:
    """What stands in for min(1, limit / norm)."""
    return 1 / (1 + norm)
