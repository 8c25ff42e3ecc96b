"""One device that sees the whole global batch, in float64, with gradients by ``torch.autograd``.

It shares nothing with the simulator but the numbers that the run begins with: it knows a loss and an optimizer, and no formula of a
gradient.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from placeproof.semantics.meaning.layout import CHANNELS, Element
from placeproof.semantics.meaning.world import World

_KINDS = ("n", "W1", "W2")


def _tensor(values: list[Fraction]) -> Tensor:
    return torch.tensor([float(v) for v in values], dtype=torch.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The states after the last step, and the gradient that its update read, in the order of the elements."""

    elements: list[Element]
    parameters: Tensor
    momentum: Tensor
    gradient: Tensor

    def numbers(self) -> Iterator[tuple[str, Element, list[Fraction]]]:
        """By table and element, save those that are beyond the range of float64."""
        tables = {"parameters": [self.parameters], "optimizer": [self.parameters, self.momentum], "gradients": [self.gradient]}
        for name, columns in tables.items():
            for element, row in zip(self.elements, zip(*(c.tolist() for c in columns), strict=True), strict=True):
                if all(math.isfinite(n) for n in row):
                    yield name, element, [Fraction(n) for n in row]


class Reference:
    """The single device."""

    def __init__(self, world: World, batches: int) -> None:
        self.world, self.layout, self.problem = world, world.layout, world.problem
        self.said = dict(world.program.reference)
        places = itertools.product(*(range(world.sizes[f]) for f in self.layout.sample_factors))
        self.samples = [(*at, i) for at in places for i in range(batches)]
        tensors = [(e[0], self.layout.group_of(e)) for e in world.elements]
        self.tensor_of = torch.tensor([tensors.index(t) for t in tensors])

    def run(self, steps: int) -> Truth:
        """All steps."""
        theta = _tensor([self.problem.initial(e) for e in self.world.elements])
        momentum = torch.zeros_like(theta)
        for step in range(steps):
            g = self._mean(theta, step)
            if self.said.get("clip") == "global_norm":
                g = g / (1 + (g * g).sum() / float(self.world.program.clip_limit or 1) ** 2)
            if self.said.get("skip") != "not_finite" or not any(self.problem.overflows(e, step) for e in self.world.elements):
                theta, momentum = self._updated(theta, (momentum + g) / 2, g)
        return Truth(self.world.elements, theta, momentum, g)

    def _updated(self, theta: Tensor, momentum: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        kind = "matrix" if "elementwise-optimizer" in self.problem.without else self.said.get("optimizer", "elementwise")
        if kind == "elementwise":
            return theta - momentum / 4 - g * g / 64, momentum
        terms = g if kind == "matrix" else g * g + theta
        norms = torch.zeros_like(g).index_add(0, self.tensor_of, terms)[self.tensor_of] + (kind == "matrix")
        return theta - momentum * norms / 4, momentum

    def _mean(self, theta: Tensor, step: int) -> Tensor:
        """The gradient of the mean of the loss over the tokens of the global batch."""
        tokens = [float(self.problem.tokens(s, step)) for s in self.samples]
        statistic = 1.0
        if self.problem.coupled:
            statistic = math.fsum(float(self.problem.statistic(s, step)) for s in self.samples) / len(self.samples)
        loss = self._of_network if self.layout.network else self._of_flat
        grads = [self._gradient(theta, s, step, statistic, loss) * count for s, count in zip(self.samples, tokens, strict=True)]
        return torch.stack(grads).sum(0) / sum(tokens)

    def _gradient(
        self,
        theta: Tensor,
        sample: tuple[int, ...],
        step: int,
        statistic: float,
        loss: Callable[[Tensor, tuple[int, ...], int, float], Tensor],
    ) -> Tensor:
        leaf = theta.clone().requires_grad_()
        (found,) = torch.autograd.grad(loss(leaf, sample, step, statistic), leaf)
        return found

    def _of_flat(self, theta: Tensor, sample: tuple[int, ...], step: int, statistic: float) -> Tensor:
        """A line for what the sample gives alone, and half the square of the sum of all parameters."""
        own = [sum(self.problem.own_gradient(e, sample, step, s) for s in self.layout.shares(e)) for e in self.world.elements]
        return statistic * (_tensor(own) * theta).sum() + theta.sum() ** 2 / 2

    def _of_network(self, theta: Tensor, sample: tuple[int, ...], step: int, statistic: float) -> Tensor:
        """Half the squared distance to the target."""
        x = self._stream("input", sample, step)
        for block in self.layout.blocks:
            n, w1, w2 = (self._weight(theta, block, part) for part in _KINDS)
            x = x + ((x * n) @ w1) ** 2 @ w2
        return statistic * ((x * self._mask(sample) - self._stream("target", sample, step)) ** 2).sum() / 2

    def _weight(self, theta: Tensor, block: int, part: str) -> Tensor:
        numbers = {e: n for n, e in enumerate(self.world.elements)}
        wide = range(self.layout.width)
        at: dict[str, list[list[Element]]] = {
            "n": [[(block, "n", i, 0) for i in range(CHANNELS)]],
            "W1": [[(block, "W1", i, j) for j in wide] for i in range(CHANNELS)],
            "W2": [[(block, "W2", j, i) for i in range(CHANNELS)] for j in wide],
        }
        return theta[torch.tensor([[numbers[e] for e in row] for row in at[part]])]

    def _mask(self, sample: tuple[int, ...]) -> float:
        """The factor of a dropout at the output, whose key is folded with the coordinates that tell samples apart."""
        if self.said.get("dropout") != "output":
            return 1.0
        own = dict(zip(self.layout.sample_factors, sample[:-1], strict=True))
        return float(self.problem.key({f: own.get(f, 0) for f in self.world.sizes}))

    def _stream(self, what: str, sample: tuple[int, ...], step: int) -> Tensor:
        drawn = self.problem.sample(sample, step, what)
        return _tensor(list(drawn.values())).reshape(-1, CHANNELS)
