"""One device that sees the whole global batch, in torch: what every device of the mesh should end with.

In float64 the network's gradient is taken by ``torch.autograd``, which knows nothing of the formulas that the program's backward uses.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from placeproof.measure import replay_network as network
from placeproof.measure import replay_optimizer as optimizer
from placeproof.measure.replay_flat import gives
from placeproof.measure.replay_model import CHANNELS, Model
from placeproof.measure.replay_numbers import Arithmetic, Float64, Numbers, zeros
from placeproof.measure.replay_optimizer import States
from placeproof.measure.replay_values import Stream


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The states after the last step, and the gradient that its update read."""

    states: States
    gradient: Numbers


class Reference:
    """The single device."""

    def __init__(self, model: Model, of: Arithmetic) -> None:
        self.model, self.of = model, of
        places = itertools.product(*(range(model.sizes[f]) for f in model.sample_factors))
        self.samples = [(*at, i) for at in places for i in range(model.found.microbatches)]

    def run(self, steps: int) -> Truth:
        """All steps."""
        model, count = self.model, len(self.model.elements)
        theta = Numbers.make(self.of, [model.initial(e) for e in model.elements], count)
        states = States(theta, Numbers(self.of, torch.stack([theta.data, torch.zeros_like(theta.data)], dim=1)))
        everywhere = torch.ones(count, dtype=torch.bool)
        for step in range(steps):
            g = self._clipped(self._mean(states.theta, step))
            skipped = model.reference("skip") == "not_finite" and any(model.overflows(e, step) for e in model.elements)
            states = states if skipped else optimizer.updated(model, states, g, everywhere, everywhere)
        return Truth(states, g)

    def _mean(self, theta: Numbers, step: int) -> Numbers:
        """The gradient of the mean over the tokens of the global batch."""
        total = zeros(self.of, *theta.shape)
        tokens = [self.model.tokens(s, step) for s in self.samples]
        statistic = self._statistic(step)
        for count, sample in zip(tokens, self.samples, strict=True):
            total = total + self._of_sample(theta, sample, step, statistic) * count
        return total / sum(tokens)

    def _statistic(self, step: int) -> Numbers:
        if not self.model.coupled:
            return Numbers.make(self.of, [1])[0]
        found = [self.model.statistic(s, step) for s in self.samples]
        return Numbers.make(self.of, found).sum() / len(found)

    def _of_sample(self, theta: Numbers, sample: tuple[int, ...], step: int, statistic: Numbers) -> Numbers:
        if self.model.network:
            return self._of_network(theta, sample, step) * statistic
        own, seen = gives(self.model, [True] * len(self.model.elements), sample, step, None)
        return theta.like(own, len(own)) * statistic + theta.like(seen, len(seen)) * theta.sum()

    def _of_network(self, theta: Numbers, sample: tuple[int, ...], step: int) -> Numbers:
        if isinstance(self.of, Float64):
            return self._by_autograd(theta, sample, step)
        weights = network.Weights.whole(self.model, theta)
        out, saved = network.forward(weights, self.model.blocks, None, self._stream("input", sample, step))
        mask = self._mask(sample)
        dx = (out.numbers * mask - self._stream("target", sample, step).numbers) * mask
        grads, _ = network.backward(weights, self.model.blocks, None, saved, Stream(there=out.there, numbers=dx), None)
        return grads.numbers

    def _by_autograd(self, theta: Numbers, sample: tuple[int, ...], step: int) -> Numbers:
        """Half the squared distance to the target, differentiated."""
        leaf = Numbers(self.of, theta.data.detach().clone().requires_grad_())
        weights = network.Weights.whole(self.model, leaf)
        out, _ = network.forward(weights, self.model.blocks, None, self._stream("input", sample, step))
        apart = out.numbers * self._mask(sample) - self._stream("target", sample, step).numbers
        loss = (apart * apart).sum(0).sum(0) / 2
        (found,) = torch.autograd.grad(loss.data, leaf.data)
        return Numbers(self.of, found)

    def _mask(self, sample: tuple[int, ...]) -> Numbers:
        """The factor of a dropout at the output, whose key is folded with the coordinates that tell samples apart."""
        if self.model.reference("dropout") != "output":
            return Numbers.make(self.of, [1])[0]
        own = dict(zip(self.model.sample_factors, sample[:-1], strict=True))
        return Numbers.make(self.of, [self.model.key({f: own.get(f, 0) for f in self.model.sizes})])[0]

    def _stream(self, what: str, sample: tuple[int, ...], step: int) -> Stream:
        return stream(self.model, self.of, what, sample, step)

    def _clipped(self, g: Numbers) -> Numbers:
        return g * optimizer.clip((g * g).sum()) if self.model.reference("clip") == "global_norm" else g


def stream(model: Model, of: Arithmetic, what: str, sample: tuple[int, ...], step: int) -> Stream:
    """A sample's input or target: all of its tokens."""
    tokens, words = model.tokens_of_a_sample, model.words(sample, step)
    found = [model.number(f"{what}[{t}, {i}] of {words}") for t in range(tokens) for i in range(CHANNELS)]
    return Stream(there=torch.ones(tokens, dtype=torch.bool), numbers=Numbers.make(of, found, tokens, CHANNELS))
