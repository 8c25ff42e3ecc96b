"""The network that programs train in a run, on arrays whose leading dimensions are devices, or samples.

A block is a norm (a scale per channel), two matrices with a square between them, and a residual: ``x + W2 square(W1 (n * x))``. The square
makes gradients depend on all parameters, so that a stale or missing one shows. Streams are ``[..., token, channel]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placeproof.semantics.meaning.numbers import Array, Field


@dataclass(frozen=True, eq=False)
class Weights:
    """A block's weights as devices read them: ``norm[..., channel]``, ``first[..., channel, column]``, ``second[..., column, channel]``;
    ``columns[..., column]``: with which of the inner columns a device computes."""

    field: Field
    norm: Array
    first: Array
    second: Array
    columns: Array

    def _inner(self, y: Array) -> Array:
        inside = self.field.dot(y[..., :, :, None], self.first[..., None, :, :], -2)
        return self._own(inside)

    def _own(self, inner: Array) -> Array:
        return inner if self.columns.all() else np.where(self.columns[..., None, :], inner, self.field.of(0))

    def forward(self, kind: str, x: Array) -> Array:
        """Of a block, or of a part of it: the norm or the matrices."""
        return {"norm": self.normed, "matrix": self.matrix}.get(kind, self.block)(x)

    def backward(self, kind: str, x: Array, dx: Array) -> tuple[Array, Gradients]:
        """Gradients with respect to the input and to the weights."""
        return {"norm": self.normed_back, "matrix": self.matrix_back}.get(kind, self.block_back)(x, dx)

    def normed(self, x: Array) -> Array:
        """``n * x``, channel by channel."""
        return self.field.mul(x, self.norm[..., None, :])

    def matrix(self, y: Array) -> Array:
        """``W2 square(W1 y)`` over the device's columns: a partial sum unless they are all."""
        a = self._inner(y)
        return self.field.dot(self.field.mul(a, a)[..., :, :, None], self.second[..., None, :, :], -2)

    def block(self, x: Array) -> Array:
        """A whole block with its residual."""
        return self.field.add(x, self.matrix(self.normed(x)))

    def normed_back(self, x: Array, dy: Array) -> tuple[Array, Gradients]:
        """Gradients with respect to ``x`` and to the norm."""
        f = self.field
        return f.mul(dy, self.norm[..., None, :]), Gradients(norm=f.dot(x, dy, -2))

    def matrix_back(self, y: Array, dz: Array) -> tuple[Array, Gradients]:
        """Gradients with respect to ``y`` (partial over the columns) and to the matrices."""
        f, a = self.field, self._inner(y)
        through = f.dot(dz[..., None, :], self.second[..., None, :, :], -1)
        da = self._own(f.mul(f.add(a, a), through))
        dy = f.dot(da[..., None, :], self.first[..., None, :, :], -1)
        second = f.dot(f.mul(a, a)[..., :, :, None], dz[..., :, None, :], -3)
        first = f.dot(y[..., :, :, None], da[..., :, None, :], -3)
        return dy, Gradients(first=first, second=second)

    def block_back(self, x: Array, dx: Array) -> tuple[Array, Gradients]:
        """Gradients of a whole block with its residual."""
        dy, matrices = self.matrix_back(self.normed(x), dx)
        through, norm = self.normed_back(x, dy)
        return self.field.add(dx, through), Gradients(norm=norm.norm, first=matrices.first, second=matrices.second)


class Gradients(NamedTuple):
    """Gradients of a block's weights, in their shapes; None where they are not computed."""

    norm: Array | None = None
    first: Array | None = None
    second: Array | None = None
