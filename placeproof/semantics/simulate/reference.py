"""What one device computes that sees the whole global batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placeproof.semantics.simulate import model, optimizer
from placeproof.semantics.simulate.layout import Element, Layout
from placeproof.semantics.simulate.problem import Number, Problem, Sample

States = tuple[dict[Element, Number], dict[Element, Any]]


@dataclass(frozen=True)
class Step:
    """The states after a step, and the gradient that its update read."""

    parameters: dict[Element, Number]
    optimizer: dict[Element, Any]
    gradient: dict[Element, Number]


@dataclass(frozen=True)
class Reference:
    """The single device."""

    problem: Problem
    samples: tuple[Sample, ...]

    @property
    def layout(self) -> Layout:
        """The model's elements."""
        return self.problem.layout

    def run(self, steps: int) -> list[Step]:
        """Each step's end."""
        theta = {e: self.problem.initial(e) for e in self.layout.elements}
        omega: dict[Element, Any] = {e: (value, 0) for e, value in theta.items()}
        history = []
        for number in range(steps):
            gradient = self._clipped(self._mean(theta, number))
            theta, omega = self._updated(theta, omega, gradient, number)
            history.append(Step(theta, omega, gradient))
        return history

    def _option(self, name: str) -> str:
        return dict(self.layout.program.reference).get(name, "")

    def _mean(self, theta: dict[Element, Number], step: int) -> dict[Element, Number]:
        """The gradient of the mean over the tokens of the global batch."""
        total: dict[Element, Number] = dict.fromkeys(theta, 0)
        count: Number = 0
        statistic = self._statistic(step)
        for sample in self.samples:
            tokens = self.problem.tokens(sample, step)
            count = count + tokens
            for element, value in self.gradient(theta, sample, step, statistic).items():
                total[element] = total[element] + tokens * value
        return {e: value / count for e, value in total.items()}

    def _statistic(self, step: int) -> Number:
        if not self.problem.coupled:
            return 1
        return sum((self.problem.statistic(s, step) for s in self.samples), 0) / len(self.samples)

    def gradient(self, theta: dict[Element, Number], sample: Sample, step: int, statistic: Number) -> dict[Element, Number]:
        """One sample's gradient."""
        if self.layout.network:
            found = _network_gradient(self.problem, theta, sample, step, self._option("dropout") == "output")
            return {e: g * statistic for e, g in found.items()}
        seen, found = sum(theta.values(), 0), {}
        for element in theta:
            shares = shares_of(self.layout, element)
            found[element] = sum((self.problem.flat_gradient(element, sample, step, s, seen, statistic) for s in shares), 0)
        return found

    def _clipped(self, gradient: dict[Element, Number]) -> dict[Element, Number]:
        if self._option("clip") != "global_norm":
            return gradient
        factor = optimizer.clip(sum((g * g for g in gradient.values()), 0))
        return {e: g * factor for e, g in gradient.items()}

    def _updated(self, theta: dict[Element, Number], omega: dict[Element, Any], gradient: dict[Element, Number], step: int) -> States:
        if self._option("skip") == "not_finite" and any(self.problem.overflows(e, step) for e in gradient):
            return theta, omega
        new = {e: update(self.layout, self.problem, e, theta, omega, gradient) for e in theta}
        return {e: value for e, (value, _) in new.items()}, {e: state for e, (_, state) in new.items()}


def shares_of(layout: Layout, element: Element) -> list[tuple[object, ...]]:
    """The shares in which devices compute an element's gradient."""
    declared = next((g for g in layout.program.groups if g.name == layout.group_of(element)), None)
    if declared is not None and declared.tied:
        return [("first",), ("last",)]
    if declared is not None and declared.partial:
        count = 1
        for factor in layout.factors((declared.partial,)):
            count *= layout.sizes.factors[factor]
        return [(i,) for i in range(count)]
    return [()]


def update(
    layout: Layout,
    problem: Problem,
    element: Element,
    theta: dict[Element, Number],
    omega: dict[Element, Any],
    gradient: dict[Element, Number],
) -> tuple[Number, Any]:
    """The step of the reference's optimizer for one element, from what is there of its tensor."""
    kind = dict(layout.program.reference).get("optimizer", "elementwise")
    if "elementwise-optimizer" in problem.without:
        kind = "matrix"
    mine = theta[element], omega[element], gradient[element]
    if kind == "elementwise":
        return optimizer.elementwise(*mine)
    group = layout.group_of(element)
    tensor = [e for e in gradient if e[0] == element[0] and layout.group_of(e) == group]
    if kind == "matrix":
        return optimizer.matrix(*mine, {e: gradient[e] for e in tensor})
    there = [e for e in tensor if e in theta and e in omega]
    return optimizer.with_norm(*mine, sum((optimizer.norm_term(theta[e], omega[e], gradient[e]) for e in there), 0))


def _network_gradient(problem: Problem, theta: dict[Element, Number], sample: Sample, step: int, dropped: bool) -> dict[Element, Number]:
    columns = range(problem.layout.width)
    x = problem.sample(sample, step, "input")
    inputs = []
    for block in problem.layout.blocks:
        inputs.append(x)
        x = model.block_forward(theta, block, x, columns)
    mask = problem.mask(sample) if dropped else 1
    x = {at: v * mask for at, v in x.items()}
    dx = model.loss_gradient(x, problem.sample(sample, step, "target"))
    dx = {at: v * mask for at, v in dx.items()}
    grads: dict[Element, Number] = {}
    for block in reversed(problem.layout.blocks):
        dx, own = model.block_backward(theta, block, inputs[block], dx, columns)
        grads |= own
    return grads
