"""Elements that get the values of others: a witness, from real processes, that parts of parameters are put in the wrong places.

All parameters, one after the other, are as many equal blocks as there are ranks, as ZeRO cuts them. After a step of SGD an element is what
it was, less a multiple of its gradient. Here no multiple is right, and with the blocks in another order one is, for all elements of all
parameters: each is what another one was, less that multiple of a gradient. Where blocks are whole parameters of one shape, somebody may
swap them on purpose; these cut through parameters, and nobody trains so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from placeproof.measure.record.recording import Recording
from placeproof.measure.record.sides import Moved, Sides, along, moved_by
from placeproof.measure.record.witness import Witness, shown

_Row: TypeAlias = NDArray[np.float64]
#: Up to how many blocks all orders are tried.
_BLOCKS = 4


def misplaced(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """Parts of parameters that a step leaves where others were; None where there are none, or nothing certain can be said."""
    if len(recordings) > _BLOCKS or (moved := moved_by(recordings, step)) is None:
        return None
    before, after, gradient = moved.before, moved.after, sum(moved.gradients)
    if along(after - before, gradient, moved.rounding):
        return None
    for source, of in _orders(len(before), len(recordings)):
        if along(after - _taken(before, source), _taken(gradient, of), moved.rounding) and _cuts(source, [*moved.sides.values()]):
            return _witness(recordings[0], step, moved, source)
    return None


def _orders(count: int, blocks: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Where each element's old value, and its gradient, may come from, with blocks in another order; what is filled up is -1."""
    places = np.arange(-(-count // blocks) * blocks).reshape(blocks, -1)
    places = np.where(places < count, places, -1)
    for order in [*permutations(range(blocks))][1:]:
        for of in (order, range(blocks)):
            yield places[[*order]].reshape(-1)[:count], places[[*of]].reshape(-1)[:count]


def _taken(values: _Row, places: NDArray[np.int64]) -> _Row:
    return np.where(places < 0, 0.0, values[places])


def _cuts(source: NDArray[np.int64], every: Sequence[Sides]) -> bool:
    """Whether a parameter gets something else than another one of its shape, or itself, as a whole."""
    sizes = [len(s.before[0].values) for s in every]
    begins = [0, *np.cumsum(sizes)]
    whole = {int(begin): s.before[0].shape for begin, s in zip(begins, every, strict=False)}
    parts = [source[begin : begin + size] for begin, size in zip(begins, sizes, strict=False)]
    return any((np.diff(part) != 1).any() or whole.get(int(part[0])) != s.before[0].shape for part, s in zip(parts, every, strict=True))


def _witness(first: Recording, step: int, moved: Moved, source: NDArray[np.int64]) -> Witness:
    sides, before, after, names = moved.sides, moved.before, moved.after, moved.names(first)
    place = int(np.where(source < 0, 0.0, np.abs(after - before)).argmax())
    own, taken = names[place], names[int(source[place])]
    values = float(before[place]), float(before[source[place]]), float(after[place])
    texts = shown(*values)
    return Witness.of(
        first,
        step,
        condition="state consistency",
        line=max((first.nodes[n].line for i in sides for n in first.final.get(i, ())), default=0),
        claim=f"{own} is after the step what the step has made of {own}",
        seen=(
            f"before the step {own} is {texts[0]}, and {taken} is {texts[1]}; after it {own} is {texts[2]}, on all ranks",
            "each element is what another one was, less one multiple of a gradient for all; of its own value no multiple makes it",
        ),
        numbers={
            "element": own.replace("`", ""),
            "taken": taken.replace("`", ""),
            "before": values[0],
            "before_taken": values[1],
            "after": values[2],
            "read": "end" if next(iter(sides.values())).ends else "forward",
        },
        summary="one device trains each element where it is",
        remark="Put the parts of ranks together in the order in which they were cut.",
    )
