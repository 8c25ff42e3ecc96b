"""The network that programs train in the simulator.

A block is a norm (a scale per channel), two matrices with a square between them, and a residual:
``x + W2 square(W1 (n * x))``. Everything is exact; the square makes gradients depend on all parameters, so that a stale
or missing one shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from placeproof.semantics.simulate.layout import CHANNELS, Element

#: A fraction or a residue; a run uses one kind throughout.
Number: TypeAlias = Any
#: (token, channel) -> value.
Stream = dict[tuple[int, int], Number]
Weights = Mapping[Element, Number]


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
