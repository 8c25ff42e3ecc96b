"""The network that a replay trains, in torch operations: blocks ``x + W2 square(W1 (n * x))``, and half the squared distance as its loss.

Shapes: a stream is (tokens, channels), ``n`` (channels,), ``W1`` (channels, columns), ``W2`` (columns, channels). The columns are those
that the device computes with, so that outputs and input gradients may be partial sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from placeproof.measure.replay_model import CHANNELS, Model
from placeproof.measure.replay_numbers import Numbers, zeros
from placeproof.measure.replay_values import Here, NothingThereError, Part, Saved, Stream


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Parameters as a computation reads them: complete, with what is found in memory where nothing is held."""

    model: Model
    numbers: Numbers
    columns: tuple[int, ...]

    @staticmethod
    def of(here: Here, w: Part) -> Weights:
        """A part's, on a device."""
        model = here.model
        read = w.numbers if bool(w.held.all()) else w.numbers.where(w.held, here.nothing_at(here.at))
        columns = {e.column for e, there in zip(model.elements, w.extent.tolist(), strict=True) if there and e.part == "W1"}
        return Weights(model, read, tuple(sorted(columns)))

    @staticmethod
    def whole(model: Model, numbers: Numbers) -> Weights:
        """All of the model's."""
        return Weights(model, numbers, tuple(sorted({e.column for e in model.elements if e.part == "W1"})))

    def index(self, block: int, part: str) -> Tensor:
        """Where the numbers of ``n``, ``W1`` or ``W2`` of a block are, in its shape."""
        at = self.model.number_of
        channels = range(CHANNELS)
        if part == "n":
            return torch.tensor([at[(block, "n", i, 0)] for i in channels])
        if part == "W1":
            return torch.tensor([[at[(block, "W1", i, j)] for j in self.columns] for i in channels], dtype=torch.int64)
        return torch.tensor([[at[(block, "W2", j, i)] for i in channels] for j in self.columns], dtype=torch.int64).reshape(-1, CHANNELS)

    def __call__(self, block: int, part: str) -> Numbers:
        """One of a block's tensors."""
        return self.numbers[self.index(block, part)]


def forward(w: Weights, blocks: Sequence[int], group: str | None, x: Stream) -> tuple[Stream, Saved]:
    """Through some blocks: of the group ``norm`` or ``matrix`` its part of each, of another one the whole."""
    inputs, outputs = {}, {}
    for block in blocks:
        inputs[block] = x
        x = Stream(there=x.there, numbers=block_forward(w, block, group, x.numbers))
        outputs[block] = x
    return x, Saved(inputs=inputs, outputs=outputs)


def block_forward(w: Weights, block: int, group: str | None, x: Numbers) -> Numbers:
    """One block."""
    if group == "norm":
        return x * w(block, "n")
    y = x if group == "matrix" else x * w(block, "n")
    a = y @ w(block, "W1")
    z = (a * a) @ w(block, "W2")
    return z if group == "matrix" else x + z


def backward(
    w: Weights, blocks: Sequence[int], group: str | None, saved: Saved, dx: Stream, whole_input: Stream | None
) -> tuple[Part, Stream]:
    """The gradients of these blocks' parameters, and of their input. ``whole_input``: read instead of what forward kept."""
    count = len(w.model.elements)
    grads = Part(extent=w.model.mask([True] * count), held=w.model.mask([False] * count), numbers=w.numbers.like([0] * count, count))
    for block in reversed(blocks):
        if whole_input is None and block not in saved.inputs:
            raise NothingThereError(f"backward through block {block}, of which forward kept nothing on this device")
        x = whole_input if whole_input is not None else saved.inputs[block]
        dx.needs(x.there, "the gradient of a block")
        if group is None or group not in ("norm", "matrix"):
            x.needs(dx.there, "the gradient of a block's input")
        there = x.there if group != "norm" else dx.there
        through, own = _block_backward(w, block, group, only_there(x, x.there), only_there(dx, x.there))
        dx = Stream(there=there, numbers=through if group != "norm" else dx.numbers * w(block, "n"))
        for part, value in own.items():
            index = w.index(block, part)
            grads = grads.with_numbers(grads.numbers.put(index, value), grads.held.index_fill(0, index.flatten(), True))
    return grads, dx


def only_there(x: Stream, tokens: Tensor) -> Numbers:
    """The numbers of some tokens, and zero for the others, so that sums over tokens leave them out."""
    return x.numbers.where(tokens, zeros(x.numbers.of, *x.numbers.shape))


def _block_backward(w: Weights, block: int, group: str | None, x: Numbers, dx: Numbers) -> tuple[Numbers, dict[str, Numbers]]:
    """Gradients by one block's input and by its parameters."""
    if group == "norm":
        return dx * w(block, "n"), {"n": (x * dx).sum(0)}
    y = x if group == "matrix" else x * w(block, "n")
    a = y @ w(block, "W1")
    da = (dx @ w(block, "W2").transposed) * a * 2
    dy = da @ w(block, "W1").transposed
    own = {"W1": y.transposed @ da, "W2": (a * a).transposed @ dx}
    if group == "matrix":
        return dy, own
    return dx + dy * w(block, "n"), {**own, "n": (x * dy).sum(0)}
