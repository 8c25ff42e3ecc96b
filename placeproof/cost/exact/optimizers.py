"""What PyTorch's optimizers keep: numbers for each element of a parameter, and for each parameter (torch==2.13.0:torch/optim)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """One optimizer. ``kind``: its class in torch.optim; ``given``: what it is made with besides.

    ``elements``: numbers for each element, of the parameter's type; ``scalars``: single-precision numbers for each parameter. ``factored``:
    of a parameter with several dimensions it keeps means over its last two instead. ``eager``: what it keeps is there from the beginning,
    of every parameter that it is given; otherwise of those that get a gradient.
    """

    kind: str
    elements: int
    scalars: int = 1
    factored: bool = False
    eager: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)

    def numbers(self, shape: tuple[int, ...]) -> int:
        """Numbers of the parameter's type that are kept for a parameter of this shape."""
        if self.factored and len(shape) > 1:
            return prod(shape[:-1]) + prod(shape[:-2]) * shape[-1]
        return self.elements * prod(shape)


OPTIMIZERS: Mapping[str, Optimizer] = {
    "adamw": Optimizer(kind="AdamW", elements=2),
    "sgd": Optimizer(kind="SGD", elements=0, scalars=0),
    "sgd-momentum": Optimizer(kind="SGD", elements=1, scalars=0, given={"momentum": 0.5}),
    "adam": Optimizer(kind="Adam", elements=2),
    "adamw-amsgrad": Optimizer(kind="AdamW", elements=3, given={"amsgrad": True}),
    "adafactor": Optimizer(kind="Adafactor", elements=1, factored=True),
    "rmsprop": Optimizer(kind="RMSprop", elements=1),
    "rmsprop-momentum": Optimizer(kind="RMSprop", elements=2, given={"momentum": 0.5}),
    "adagrad": Optimizer(kind="Adagrad", elements=1, eager=True),
    "adadelta": Optimizer(kind="Adadelta", elements=2),
    "adamax": Optimizer(kind="Adamax", elements=2),
    "nadam": Optimizer(kind="NAdam", elements=2, scalars=2),
    "radam": Optimizer(kind="RAdam", elements=2),
}
#: Those of which systems other than PyTorch were measured.
PLAIN = ("adamw", "sgd")
