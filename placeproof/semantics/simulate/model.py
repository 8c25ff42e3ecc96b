"""The network that programs train in the simulator, and its single-device reference.

A block is a norm (a scale per channel), two matrices with a square between them, and a residual:
``x + W2 square(W1 (n * x))``. Everything is exact; the square makes gradients depend on all parameters, so that a stale
or missing one shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from placeproof.semantics.simulate.numbers import Residue, residue

#: A fraction or a residue; a run uses one kind throughout.
Number: TypeAlias = Any
#: (block, matrix, row, column): an element of the parameters. The matrix is "n", "W1" or "W2".
Element = tuple[int, str, int, int]
#: (token, channel) -> value.
Stream = dict[tuple[int, int], Number]
Weights = Mapping[Element, Number]

CHANNELS = 2


@dataclass(frozen=True)
class Shape:
    """Sizes: blocks in all, tokens of a sample, inner width (split by the hidden axis)."""

    blocks: int
    tokens: int
    inner: int

    def elements(self, block: int, group: str | None, columns: Iterable[int] | None = None) -> list[Element]:
        """The elements of a block: of its norm, of its matrices (some columns), or of both."""
        norm: list[Element] = [(block, "n", i, 0) for i in range(CHANNELS)]
        matrix: list[Element] = []
        for j in columns if columns is not None else range(self.inner):
            matrix += [(block, "W1", i, j) for i in range(CHANNELS)]
            matrix += [(block, "W2", j, i) for i in range(CHANNELS)]
        return {"norm": norm, "matrix": matrix}.get(group or "", norm + matrix)


def column(element: Element) -> int:
    """The inner column that an element of a matrix belongs to."""
    _, matrix, row, col = element
    return col if matrix == "W1" else row


@dataclass
class Kept:
    """What a forward keeps of one block, or of several."""

    inputs: dict[int, Stream] = field(default_factory=dict)
    outputs: dict[int, Stream] = field(default_factory=dict)


def norm_forward(w: Weights, block: int, x: Stream) -> Stream:
    """``n * x``, channel by channel."""
    return {(t, i): value * w[(block, "n", i, 0)] for (t, i), value in x.items()}


def _inner(w: Weights, block: int, y: Stream, columns: Iterable[int]) -> dict[tuple[int, int], Number]:
    tokens = sorted({t for t, _ in y})
    return {(t, j): sum((y[(t, i)] * w[(block, "W1", i, j)] for i in range(CHANNELS)), 0) for t in tokens for j in columns}


def matrix_forward(w: Weights, block: int, y: Stream, columns: Iterable[int]) -> Stream:
    """``W2 square(W1 y)`` over some inner columns: a partial sum unless they are all."""
    columns = list(columns)
    a = _inner(w, block, y, columns)
    return {(t, i): sum((a[(t, j)] ** 2 * w[(block, "W2", j, i)] for j in columns), 0) for t, i in y}


def matrix_backward(w: Weights, block: int, y: Stream, dz: Stream, columns: Iterable[int]) -> tuple[Stream, dict[Element, Number]]:
    """Gradients with respect to ``y`` (partial over the columns) and to the matrices' elements of these columns."""
    columns = list(columns)
    a = _inner(w, block, y, columns)
    tokens = sorted({t for t, _ in y})
    da = {(t, j): 2 * a[(t, j)] * sum((dz[(t, i)] * w[(block, "W2", j, i)] for i in range(CHANNELS)), 0) for t in tokens for j in columns}
    dy = {(t, i): sum((da[(t, j)] * w[(block, "W1", i, j)] for j in columns), 0) for t, i in y}
    grads: dict[Element, Number] = {}
    for j in columns:
        for i in range(CHANNELS):
            grads[(block, "W2", j, i)] = sum((a[(t, j)] ** 2 * dz[(t, i)] for t in tokens), 0)
            grads[(block, "W1", i, j)] = sum((y[(t, i)] * da[(t, j)] for t in tokens), 0)
    return dy, grads


def norm_backward(w: Weights, block: int, x: Stream, dy: Stream) -> tuple[Stream, dict[Element, Number]]:
    """Gradients with respect to ``x`` and to the norm's scale."""
    dx = {(t, i): value * w[(block, "n", i, 0)] for (t, i), value in dy.items()}
    tokens = sorted({t for t, _ in x})
    grads: dict[Element, Number] = {(block, "n", i, 0): sum((x[(t, i)] * dy[(t, i)] for t in tokens), 0) for i in range(CHANNELS)}
    return dx, grads


def add(a: Stream, b: Stream) -> Stream:
    """Element-wise sum of two streams over the same tokens."""
    return {key: a[key] + b[key] for key in a}


def block_forward(w: Weights, block: int, x: Stream, columns: Iterable[int]) -> Stream:
    """A whole block with its residual."""
    return add(x, matrix_forward(w, block, norm_forward(w, block, x), columns))


def block_backward(w: Weights, block: int, x: Stream, dx: Stream, columns: Iterable[int]) -> tuple[Stream, dict[Element, Number]]:
    """Gradients of a whole block with its residual."""
    y = norm_forward(w, block, x)
    dy, grads = matrix_backward(w, block, y, dx, columns)
    through, norms = norm_backward(w, block, x, dy)
    return add(dx, through), {**grads, **norms}


def loss_gradient(x: Stream, target: Stream) -> Stream:
    """Gradient of half the squared distance to a target, of one sample."""
    return {key: value - target[key] for key, value in x.items()}


def step(theta: Number, omega: tuple[Number, Number], g: Number) -> tuple[Number, tuple[Number, Number]]:
    """An element-wise optimizer that forgets nothing: momentum, and a square that makes the gradient's scale show.

    ``omega`` is the master copy and the momentum.
    """
    momentum = (omega[1] + g) / 2
    new = theta - momentum / 4 - g * g / 64
    return new, (new, momentum)


@dataclass(frozen=True)
class Problem:
    """Initial parameters and data, drawn once; every device and the reference read the same."""

    shape: Shape
    seed: int
    exact: bool = True

    def _number(self, *key: object) -> Number:
        drawn = Fraction(random.Random(f"{self.seed}:{key}").choice([-2, -1, 1, 2, 3]), 2)
        return drawn if self.exact else Residue(residue(drawn))

    def initial(self, element: Element) -> Number:
        """A parameter before the first step."""
        return self._number("theta", element)

    def sample(self, number: tuple[int, ...], step_number: int, what: str) -> Stream:
        """A sample or its target, by the place of its device on the axes that split the batch and its micro-batch."""
        tokens = range(self.shape.tokens)
        return {(t, i): self._number(what, number, step_number, t, i) for t in tokens for i in range(CHANNELS)}


def reference(
    problem: Problem, samples: list[tuple[int, ...]], steps: int
) -> list[tuple[dict[Element, Number], dict[Element, tuple[Number, Number]]]]:
    """Parameters and optimizer state after each step of one device that sees the whole global batch."""
    shape = problem.shape
    every = range(shape.inner)
    theta = {e: problem.initial(e) for k in range(shape.blocks) for e in shape.elements(k, None)}
    omega = {e: (value, 0) for e, value in theta.items()}
    history = []
    for number in range(steps):
        total = dict.fromkeys(theta, 0)
        for sample in samples:
            for element, value in _sample_gradient(problem, theta, sample, number, every).items():
                total[element] += value
        updated = {e: step(theta[e], omega[e], total[e] / len(samples)) for e in theta}
        theta = {e: new for e, (new, _) in updated.items()}
        omega = {e: state for e, (_, state) in updated.items()}
        history.append((theta, omega))
    return history


def _sample_gradient(problem: Problem, theta: Weights, sample: tuple[int, ...], number: int, columns: range) -> dict[Element, Number]:
    x = problem.sample(sample, number, "input")
    inputs = []
    for block in range(problem.shape.blocks):
        inputs.append(x)
        x = block_forward(theta, block, x, columns)
    dx = loss_gradient(x, problem.sample(sample, number, "target"))
    grads: dict[Element, Number] = {}
    for block in reversed(range(problem.shape.blocks)):
        dx, own = block_backward(theta, block, inputs[block], dx, columns)
        grads |= own
    return grads
