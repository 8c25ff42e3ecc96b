"""One device that sees the whole global batch, in float64, with gradients by ``torch.autograd``.

It shares nothing with the simulator but where elements are and the numbers that the run begins with: it knows a loss and an optimizer, and
no formula of a gradient.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from placeproof.semantics.meaning.layout import CHANNELS, Element
from placeproof.semantics.meaning.world import World


def _tensor(values: Iterable[Fraction]) -> Tensor:
    return torch.tensor([float(v) for v in values], dtype=torch.float64)


def _summed(terms: Tensor, of: Tensor) -> Tensor:
    """Beside each element, the sum over all that are of the same tensor, or line."""
    return torch.zeros_like(terms).index_add(0, of, terms)[of]


class Reference:
    """The single device."""

    def __init__(self, world: World, batches: int) -> None:
        self.world, self.layout, self.problem = world, world.layout, world.problem
        self.said = dict(world.program.reference)
        places = itertools.product(*(range(world.sizes[f]) for f in self.layout.sample_factors))
        self.samples = [(*at, i) for at in places for i in range(batches)]
        self.kinds = [self._kind(self.layout.group_of(e)) for e in world.elements]
        tensors = [e if kind == "elementwise" else self.layout.tensor_of(e) for e, kind in zip(world.elements, self.kinds, strict=True)]
        self.tensor_of = torch.tensor([tensors.index(t) for t in tensors])
        self.number_of = {e: n for n, e in enumerate(world.elements)}
        self.trained = [not self.layout.group(self.layout.group_of(e)).frozen for e in world.elements]

    def run(self, steps: int) -> Iterator[tuple[str, Element, list[Fraction]]]:
        """What it ends with, by table and element, save what is beyond the range of float64."""
        theta = _tensor(self.problem.initial(e) for e in self.world.elements)
        momentum, g = torch.zeros_like(theta), torch.zeros_like(theta)
        for step in range(steps):
            leaf = theta.clone().requires_grad_()
            (g,) = torch.autograd.grad(self._loss(leaf, step), leaf)
            g = g * torch.tensor(self.trained)  # without a gradient, and so a momentum, every update leaves a parameter as it is
            if self.said.get("clip") == "global_norm":
                g = g / (1 + (g * g).sum() / float(self.world.program.clip_limit or 1) ** 2)
            trained = itertools.compress(self.world.elements, self.trained)
            if self.said.get("skip") != "not_finite" or not any(self.problem.overflows(e, step) for e in trained):
                theta, momentum = self._updated(theta, (momentum + g) / 2, g)
        for name, columns in {"parameters": [theta], "optimizer": [theta, momentum], "gradients": [g]}.items():
            for element, row in zip(self.world.elements, torch.stack(columns, dim=1).tolist(), strict=True):
                if all(map(math.isfinite, row)):
                    yield name, element, list(map(Fraction, row))

    def _kind(self, group: str) -> str:
        """What the optimizer reads for an element of a group."""
        kind = self.layout.group(group).update or self.said.get("optimizer", "elementwise")
        unknown = kind == "elementwise" and "elementwise-optimizer" in self.problem.without
        return "matrix" if unknown else kind

    @cached_property
    def _lines_of(self) -> list[Tensor]:
        """The row, and the column, of each element."""
        every = zip(*map(self.layout.lines_of, self.world.elements), strict=True)
        return [torch.tensor([of.index(line) for line in of]) for of in every]

    def _updated(self, theta: Tensor, momentum: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        new = theta - momentum / 4 - g * g / 64
        for kind in {*self.kinds} - {"elementwise"}:
            terms = {"matrix": g, "preconditioned": g, "orthogonal": momentum * momentum}.get(kind, g * g + theta)
            if kind == "factored":
                lines = sum(n * _summed(g * g, of) for n, of in enumerate(self._lines_of, start=1))
                norms = _summed((terms + momentum) * (lines + 1), self.tensor_of) + lines
            else:
                norms = _summed(terms, self.tensor_of) + (kind != "tensor_norm")
            new = torch.where(torch.tensor([k == kind for k in self.kinds]), theta - momentum * norms / 4, new)
        return new, momentum

    def _loss(self, theta: Tensor, step: int) -> Tensor:
        """The mean over the tokens of the global batch."""
        tokens, statistic = [float(self.problem.tokens(s, step)) for s in self.samples], 1.0
        if self.problem.coupled:
            statistic = math.fsum(float(self.problem.statistic(s, step)) for s in self.samples) / len(self.samples)
        of_sample = self._of_network if self.layout.network else self._of_flat
        losses = [of_sample(theta, s, step, statistic) * count for s, count in zip(self.samples, tokens, strict=True)]
        return torch.stack(losses).sum() / sum(tokens)

    def _of_flat(self, theta: Tensor, sample: tuple[int, ...], step: int, statistic: float) -> Tensor:
        """A line for what the sample gives alone, and half the square of the sum of all parameters."""
        own = _tensor(sum(self.problem.own_gradient(e, sample, step, s) for s in self.layout.shares(e)) for e in self.world.elements)
        return statistic * (own * theta).sum() + theta.sum() ** 2 / 2

    def _of_network(self, theta: Tensor, sample: tuple[int, ...], step: int, statistic: float) -> Tensor:
        """Half the squared distance to the target."""
        x, target = (_tensor(self.problem.sample(sample, step, what).values()).reshape(-1, CHANNELS) for what in ("input", "target"))
        wide = range(self.layout.width)
        for block in self.layout.blocks:
            n = self._weights(theta, [[(block, "n", i, 0) for i in range(CHANNELS)]])
            first = self._weights(theta, [[(block, "W1", i, j) for j in wide] for i in range(CHANNELS)])
            x = x + ((x * n) @ first) ** 2 @ self._weights(theta, [[(block, "W2", j, i) for i in range(CHANNELS)] for j in wide])
        if self.said.get("dropout") == "output":  # the key is folded with the coordinates that tell samples apart
            own = dict(zip(self.layout.sample_factors, sample[:-1], strict=True))
            at = {f: own.get(f, 0) for f in self.world.sizes}
            x = x * float(self.problem.key(self.layout.masked_by, sample[-1], step, at))
        return statistic * ((x - target) ** 2).sum() / 2

    def _weights(self, theta: Tensor, elements: list[list[Element]]) -> Tensor:
        return theta[torch.tensor([[self.number_of[e] for e in row] for row in elements])]
