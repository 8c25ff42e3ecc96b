"""What a stage of a pipeline has received is overwritten before backward reads it: a witness, from real processes, of no derivative.

A gradient of parameters is made of what forward has read of the same samples; autograd refuses to differentiate what was written since,
where it sees that. Here a message has brought another micro-batch of the step to where backward reads the one before: what it makes then
is of the activations of some samples and of the losses of others, whatever these are multiplied by. A tensor that is written on purpose,
such as weights that are swapped, is brought by no message, and is none of the step's micro-batches. The script is run again with a copy
of what was received: all passes of which nothing is overwritten are the same, and of one whose gradients an update reads they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.recording import Copy, Recording
from placeproof.measure.record.sides import kept, off, read_by_updates, stretches_of
from placeproof.measure.record.witness import Witness, shown

#: How far a gradient is from any multiple of the one that it should be, relative to itself.
_OTHER = 0.1
Recordings = Mapping[int, Recording]


@dataclass(frozen=True, slots=True)
class _Overwritten:
    """A pass of a rank, and by which of its passes' micro-batch what it should read is overwritten."""

    own: Recording
    turn: int
    by: int


def overwritten(recordings: Recordings, step: int, again: Callable[[], Recordings]) -> Witness | None:
    """The first pass whose micro-batch another one has overwritten; None where there is none, or nothing certain can be said. ``again``:
    what ranks do where backward reads copies of what they have received. It may raise InputError."""
    found = [one for r in recordings.values() for one in _of(r, recordings)]
    if not found:
        return None
    try:
        others = again()
    except InputError:
        return None
    if not all(_same(r, others[rank]) for rank, r in recordings.items()):
        return None
    return next((one for o in found for one in _differs(o, others[o.own.rank], step)), None)


def _of(own: Recording, recordings: Recordings) -> Iterator[_Overwritten]:
    """The passes of a rank that updates read, and that end in a tensor with what another rank has sent of another micro-batch."""
    stretches = stretches_of(own)
    sent = {value for r in recordings.values() for value, to in r.sent if to == own.rank}
    ends = [tensor for s in stretches for tensor, _ in s.ends]
    if own.relabelled or len({*ends}) < len(ends):
        return
    at = {tensor: n for n, s in enumerate(stretches) for tensor, _ in s.ends if tensor in sent}
    for turn in sorted(read_by_updates(own)):
        for was, there in stretches[turn].there.items() if turn < len(stretches) else ():
            if at.get(was) == turn != at.get(there, turn):
                yield _Overwritten(own, turn, at[there])


def _same(own: Recording, other: Recording) -> bool:
    """Whether a rank has read the same in two runs, and made the same gradients in passes of which nothing is overwritten."""
    passes = [*zip(kept(own).passes, kept(other).passes, strict=False)][: kept(own).step]
    clear = [not s.overwritten and s.begins == t.begins for s, t in zip(stretches_of(own), stretches_of(other), strict=False)]
    return len(passes) == len(clear) == kept(own).step == kept(other).step and all(
        a.keys() == b.keys() and all(a[i].digest == b[i].digest and (not alike or _near(a[i], b[i])) for i in a)
        for (a, b), alike in zip(passes, clear, strict=True)
    )


def _near(a: Copy, b: Copy) -> bool:
    return a.gradient is not None and b.gradient is not None and bool(np.array_equal(a.gradient, b.gradient))


def _differs(found: _Overwritten, other: Recording, step: int) -> Iterator[Witness]:
    """That a pass makes gradients which no factor makes those that it makes of what forward has read."""
    for index, copy in kept(found.own).passes[found.turn].items():
        right = kept(other).passes[found.turn][index].gradient
        if copy.gradient is not None and right is not None and np.ptp(right) > 0 and off(copy.gradient, right) > _OTHER:
            yield _witness(found, index, copy, copy.gradient, right, step)


def _witness(found: _Overwritten, index: int, copy: Copy, made: NDArray[np.float64], right: NDArray[np.float64], step: int) -> Witness:
    own, turn = found.own, found.turn
    ratio = float(made @ right) / float(right @ right)
    place = int(np.abs(made - ratio * right).argmax())
    name, element = own.states[index].name, copy.element(place)
    texts = shown(float(right[place]), float(made[place]))
    return Witness.of(
        own,
        step,
        condition="gradient integrity",
        line=own.turns[turn].line,
        claim=f"backward pass {turn + 1} of rank {own.rank} reads what forward has read of its micro-batch",
        seen=(
            f"`{name}`[{', '.join(map(str, element))}]: this pass makes the gradient {texts[1]}",
            f"run again with a copy of what was received, it makes {texts[0]}, and no factor makes the two gradients alike",
        ),
        numbers={
            "rank": own.rank,
            "pass": turn + 1,
            "overwritten_by": found.by + 1,
            "parameter": name,
            "element": element,
            "made": float(made[place]),
            "derivative": float(right[place]),
        },
        reasons=(f"where the micro-batch of pass {turn + 1} was received, that of pass {found.by + 1} has come before backward",),
        summary="a stage differentiates each micro-batch as forward has read it",
        remark="Receive each micro-batch in a tensor of its own, until backward has read it.",
    )
