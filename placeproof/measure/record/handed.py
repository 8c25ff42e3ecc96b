"""A stage of a pipeline that goes back with a gradient that none made: a witness, from real processes, that losses have another one.

What a stage computes of a micro-batch is read by another one, which makes a gradient of it and sends that. Whatever losses are meant, and
by which constants they are multiplied, backward goes on with this gradient, or with a multiple of it. Here it begins with the sum of those
of several micro-batches, or with one number in all places, and that is no multiple of what was made. A gradient that is rounded, clipped,
compressed or noisy is none of these, and nothing but zeros freezes a stage on purpose. A pass whose gradients no update reads may
be one that warms up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placeproof.measure.record.recording import Recording
from placeproof.measure.record.sides import off, read_by_updates, stretches_of
from placeproof.measure.record.witness import Witness, shown

#: How far a gradient is from any multiple of the one that it should be, relative to itself; and how near a sum of others has to be.
_OTHER, _NEAR = 0.1, 1e-4
#: Of so many elements it is no chance that all are alike: signs alone may be.
_SEVERAL = 8


@dataclass(frozen=True, slots=True)
class _Made:
    """A gradient that a rank has made of a tensor, in which of its passes that end in tensors."""

    rank: int
    tensor: str
    gradient: str
    values: NDArray[np.float64]


def handed(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """The first pass that goes on with another gradient than it was sent; None where none does, or nothing certain can be said."""
    every = [r for _, r in sorted(recordings.items())]
    if any(s.overwritten or s.losses for r in every for s in stretches_of(r)):
        return None
    made = [_Made(r.rank, tensor, gradient, s.gradients[gradient]) for r in every for s in stretches_of(r) for tensor, gradient in s.ends]
    if len({one.tensor for one in made}) < len(made):
        return None
    counted = ((r, turn) for r in every for turn in range(len(stretches_of(r))) if turn in read_by_updates(r))
    found = (one for r, turn in counted for one in _of(r, turn, recordings, made, step))
    return next(found, None)


def _of(recording: Recording, turn: int, recordings: Mapping[int, Recording], made: Sequence[_Made], step: int) -> Iterator[Witness]:
    stretch = stretches_of(recording)[turn]
    for tensor, gradient in stretch.begins:
        own, begun = next((one for one in made if one.tensor == tensor), None), stretch.gradients[gradient]
        if own is None or own.gradient == gradient or own.values.shape != begun.shape:
            continue
        sent = {value for value, to in recordings[own.rank].sent if to == recording.rank} & {own.gradient, gradient}
        what = _instead(begun, own, made)
        if what and sent and off(begun, own.values) > _OTHER:
            yield _witness(recording, turn, own, begun, what, step)


def _instead(begun: NDArray[np.float64], own: _Made, made: Sequence[_Made]) -> str:
    """What a pass begins with, in words; nothing for what is not known."""
    alike = [one for one in made if one.rank == own.rank and one.values.shape == begun.shape]
    if np.ptp(begun) == 0 < np.ptp(own.values) and begun[0] and begun.size >= _SEVERAL:
        return "one number in all places"
    before = alike[: alike.index(own)]
    total, scale = own.values, np.abs(own.values)
    for one in reversed(before):
        total, scale = total + one.values, scale + np.abs(one.values)
        if np.all(np.abs(begun - total) <= _NEAR * scale.max()):
            return "the sum of those of several micro-batches"
    return ""


def _witness(recording: Recording, turn: int, own: _Made, begun: NDArray[np.float64], what: str, step: int) -> Witness:
    ratio = float(begun @ own.values) / float(own.values @ own.values)
    place = int(np.abs(begun - ratio * own.values).argmax())
    wanted, got = float(own.values[place]), float(begun[place])
    texts = shown(wanted, got)
    return Witness.of(
        recording,
        step,
        condition="gradient integrity",
        line=recording.turns[turn].line,
        claim=f"backward of rank {recording.rank} goes on with the gradient that rank {own.rank} has made of the same micro-batch",
        seen=(
            f"of an element of what rank {recording.rank} has sent, rank {own.rank} makes the gradient {texts[0]}",
            f"backward of rank {recording.rank} begins with {texts[1]} there, and no factor makes the two gradients alike",
        ),
        numbers={"pass": turn + 1, "ranks": [recording.rank, own.rank], "made": wanted, "begun": got, "instead": what},
        reasons=(f"what it begins with is {what}",),
        summary="a stage goes back with another gradient than losses have",
        remark="Begin each pass with the gradient that was made of its micro-batch alone.",
    )
