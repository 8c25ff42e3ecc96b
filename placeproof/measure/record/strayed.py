"""Elements that are trained with gradients of others: a witness, from real processes, that what ranks exchange is put in wrong places.

A step of SGD moves all elements by one multiple of their gradients, of all samples. Here no multiple is right; and one is, for each
element, of the mean of what a rank makes of neighbours of another one: somebody has taken elements for ranks. Or one is of what one rank
makes of it, in as many equal blocks of all parameters in a row as there are ranks, though ranks have added up gradients. Such blocks cut
a parameter, and not into as many rows each, as tasks may have: nobody trains such parts with the samples of one rank each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from placeproof.measure.record.recording import Recording
from placeproof.measure.record.sides import Moved, along, moved_by, off
from placeproof.measure.record.witness import Witness, shown

#: How far from any multiple of the gradient the change has to be, relative to itself; and how many elements are no chance.
_OTHER, _SEVERAL = 0.1, 8


def strayed(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """Elements that a step trains with other gradients than theirs; None where there are none, or nothing certain can be said."""
    if (moved := moved_by(recordings, step)) is None or len(moved.before) < _SEVERAL:
        return None
    change = moved.after - moved.before
    if off(change, _sum(moved)) < _OTHER:
        return None
    for gradient, what in _others(recordings, moved):
        if along(change, gradient, moved.rounding):
            return _witness(recordings[0], step, moved, gradient, what)
    return None


def _sum(moved: Moved) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.sum(moved.gradients, axis=0)
    return total


def _others(recordings: Mapping[int, Recording], moved: Moved) -> Iterator[tuple[NDArray[np.float64], str]]:
    """What elements may have been trained with, in words."""
    world, count = len(moved.gradients), len(moved.before)
    size = -(-count // world)
    ends = np.cumsum([len(s.before[0].values) for s in moved.sides.values()])
    shapes = [s.before[0].shape for s in moved.sides.values()]
    cut = any(_cut_at_will(*one, size) for one in zip([0, *ends[:-1]], ends, shapes, strict=True))
    if cut and all(_adds(r, moved) for r in recordings.values()):
        own = [row[rank * size : (rank + 1) * size] for rank, row in enumerate(moved.gradients)]
        yield np.concatenate(own), "what one rank alone makes of it, each rank of a block of elements"
    each = [np.concatenate([_of_neighbours(part) for part in zip(*(np.split(row, ends[:-1]) for row in moved.gradients), strict=True)])]
    in_a_row = [_of_neighbours([np.pad(row, (0, pad)) for row in moved.gradients])[:count] for pad in {0, size * world - count}]
    for gradient in each + in_a_row:
        yield gradient, "the mean of what a rank makes of neighbours of another element"


def _cut_at_will(begin: int, end: int, shape: tuple[int, ...], size: int) -> bool:
    """Whether blocks of a size cut a parameter, which lies from ``begin`` to ``end``, and not into as many whole rows each."""
    cuts = [begin, *(at for at in range(size, end, size) if at > begin), end]
    parts = {b - a for a, b in pairwise(cuts)}
    return len(cuts) > 2 and (len(parts) > 1 or min(parts) % prod(shape[1:]) > 0)


def _of_neighbours(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The means of as many neighbours as there are ranks, of what they have in turn."""
    means: NDArray[np.float64] = np.concatenate(rows).reshape(-1, len(rows)).mean(1)
    return means


def _adds(recording: Recording, moved: Moved) -> bool:
    """Whether a rank adds up the gradients of all that is trained with those of the others."""
    every = {*range(recording.world)}
    added = [e for e in recording.events if e.gradient and e.op in ("sum", "mean") and e.kind in ("all_reduce", "reduce_scatter")]
    return {*moved.sides} <= {i for e in added if {*e.group} == every for i in e.states}


def _witness(first: Recording, step: int, moved: Moved, gradient: NDArray[np.float64], what: str) -> Witness:
    total, change = _sum(moved), moved.after - moved.before
    place = int(np.abs(gradient - total * float(gradient @ total) / float(total @ total)).argmax()) if total.any() else 0
    name = moved.names(first)[place]
    before, after = shown(float(moved.before[place]), float(moved.after[place]))
    made = [float(row[place]) for row in moved.gradients]
    return Witness.of(
        first,
        step,
        condition="gradient integrity",
        line=max((first.nodes[n].line for i in moved.sides for n in first.updates.get(i, ())), default=0),
        claim="the step trains all elements with the gradient of all samples",
        seen=(
            f"{name} is {before} before the step, {after} after it; its gradients are {', '.join(f'{n:.6g}' for n in made)}",
            f"of all elements, the change is one multiple of {what}, and no multiple of their sum",
        ),
        numbers={
            "element": name.replace("`", ""),
            "before": float(moved.before[place]),
            "after": float(moved.after[place]),
            "gradients": made,
            "factor": float(change @ gradient) / float(gradient @ gradient),
            "instead": what,
        },
        summary="one device trains each element with its own gradient, of all samples",
        remark="Put what ranks exchange together as it was taken apart: the first dimension is that of ranks.",
    )
