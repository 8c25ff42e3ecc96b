"""One device that sees the whole global batch, in float64, with gradients by ``torch.autograd``.

It shares nothing with the simulator but where elements are and the numbers that the run begins with: it knows a loss and an optimizer, and
no formula of a gradient.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from placeproof.programs.ir import Term
from placeproof.programs.losses import MICRO_BATCHES, UNITS, target_of
from placeproof.semantics.meaning.layout import CHANNELS, SEQUENCES, Element
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
        """What is trained: the mean over the tokens of the global batch, unless the program says otherwise."""
        if self.world.program.loss:
            return torch.stack([float(term.factor) * self._of_term(theta, term, step) for term in self.world.program.loss]).sum()
        tokens, statistic = [float(self.problem.tokens(s, step)) for s in self.samples], 1.0
        if self.problem.coupled:
            statistic = math.fsum(float(self.problem.statistic(s, step)) for s in self.samples) / len(self.samples)
        of_sample = self._of_network if self.layout.network else self._of_flat
        losses = [of_sample(theta, s, step, statistic) * count for s, count in zip(self.samples, tokens, strict=True)]
        return torch.stack(losses).sum() / sum(tokens)

    def _of_term(self, theta: Tensor, term: Term, step: int) -> Tensor:
        """The losses of all units, divided by how many there are of what the term is a mean over."""
        batches: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for sample in self.samples:  # those that differ by where tokens lie alone are of one micro-batch
            own = (n for n, f in zip(sample, self.layout.sample_factors, strict=False) if not self.layout.axis_of(f).splits.tokens)
            batches.setdefault((*own, sample[-1]), []).append(sample)
        every = [
            (
                self._units(theta, key, own, term, step),
                self._units(theta, key, own, replace(term, of=str(term.over)), step) if term.over in UNITS else [],
            )
            for key, own in batches.items()
        ]
        sums = [torch.stack([loss * many for many, loss in units]).sum() for units, _ in every]
        if term.over == MICRO_BATCHES:
            own_means = [total / sum(many for many, _ in units) for total, (units, _) in zip(sums, every, strict=True)]
            return torch.stack(own_means).sum() / len(own_means)
        count = float(term.over) if isinstance(term.over, Fraction) else sum(many for _, units in every for many, _ in units)
        return torch.stack(sums).sum() / count

    def _units(
        self, theta: Tensor, key: tuple[int, ...], parts: list[tuple[int, ...]], term: Term, step: int
    ) -> list[tuple[float, Tensor]]:
        """The units of a micro-batch: how many each counts for, and the mean loss of its tokens."""
        factors = self.layout.sample_factors
        shared = [f for f in factors if not self.layout.axis_of(f).splits.tokens]

        def drawn(what: str, q: int | None) -> float:
            return float(self.problem.of_sequence(what, shared, key, q, step))

        def tokens(q: int) -> list[tuple[float, Tensor]]:
            counts = [float(self.problem.of_sequence("tokens", list(factors), s, q, step)) for s in parts]
            if self.layout.network:
                losses = [self._of_network(theta, s, step, 1.0, term.loss, q) for s in parts]
            else:
                losses = [self._of_flat(theta, s, step, 1.0, f"{term.loss} loss of sequence {q}, ") for s in parts]
            return list(zip(counts, losses, strict=True))

        count = int(drawn("number of sequences", None))
        if term.of == "tokens":
            return [one for q in range(count) for one in tokens(q)]
        groups: list[list[int]] = []
        for q in range(count):
            begins = {"sequences": True, "prompts": None}.get(term.of, False)
            new = begins or q == 0 or drawn(f"begins another {'prompt' if begins is None else 'sample'}", q) > 0
            groups = [*groups, [q]] if new else [*groups[:-1], [*groups[-1], q]]
        units = []
        for group in groups:
            every = [one for q in group for one in tokens(q)]
            mean = torch.stack([loss * many for many, loss in every]).sum() / sum(many for many, _ in every)
            units.append((drawn("weight of the sample", group[0]) if term.of == "weights" else 1.0, mean))
        return units

    def _of_flat(self, theta: Tensor, sample: tuple[int, ...], step: int, statistic: float, of: str = "") -> Tensor:
        """A line for what the sample gives alone, and half the square of the sum of all parameters."""
        own = _tensor(sum(self.problem.own_gradient(e, sample, step, s, of) for s in self.layout.shares(e)) for e in self.world.elements)
        return statistic * (own * theta).sum() + theta.sum() ** 2 / 2

    def _of_network(
        self, theta: Tensor, sample: tuple[int, ...], step: int, statistic: float, loss: str = Term.MAIN, sequence: int | None = None
    ) -> Tensor:
        """Half the squared distance to the target: of all tokens, or of those of one sequence."""
        whats = ("input", target_of(loss))
        x, target = (_tensor(self.problem.sample(sample, step, what).values()).reshape(-1, CHANNELS) for what in whats)
        wide = range(self.layout.width)
        for block in self.layout.blocks:
            n = self._weights(theta, [[(block, "n", i, 0) for i in range(CHANNELS)]])
            first = self._weights(theta, [[(block, "W1", i, j) for j in wide] for i in range(CHANNELS)])
            x = x + ((x * n) @ first) ** 2 @ self._weights(theta, [[(block, "W2", j, i) for i in range(CHANNELS)] for j in wide])
        if self.said.get("dropout") == "output":  # the key is folded with the coordinates that tell samples apart
            own = dict(zip(self.layout.sample_factors, sample[:-1], strict=True))
            at = {f: own.get(f, 0) for f in self.world.sizes}
            x = x * float(self.problem.key(self.layout.masked_by, sample[-1], step, at))
        square = (x - target) ** 2
        return statistic * (square if sequence is None else square[sequence::SEQUENCES]).sum() / 2

    def _weights(self, theta: Tensor, elements: list[list[Element]]) -> Tensor:
        return theta[torch.tensor([[self.number_of[e] for e in row] for row in elements])]
