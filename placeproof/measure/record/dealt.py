"""Micro-batches that count otherwise on another rank: a witness, from real processes, that losses are divided by what one rank has.

One device does not see which rank is dealt which micro-batch: whatever is added up over all of them, each counts as much wherever it is.
First two ranks exchange all that they have; each then makes the very gradients that the other one made, so that nothing but samples tells
them apart: no number of Python, no state, no draw. Then they exchange one micro-batch alone. Each pass makes a multiple of the gradient
that it has made of the same samples before, but not the same multiple, and what optimizers are given is another gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.recording import Copy, Instead, Maker, Recording, Rows, Source, indices
from placeproof.measure.record.sides import kept, off, stretches_of
from placeproof.measure.record.witness import Witness, shown

Recordings = Mapping[int, Recording]
#: Where a tensor is made, and which one it is of several.
Place = tuple[Maker, int]
#: What all ranks do with other samples, by ranks. It may raise InputError.
Dealing = Callable[[Mapping[int, Instead]], Recordings]
#: What is made in two runs is the same up to this part of it, and another thing from this part on.
_SAME, _OTHER = 1e-4, 1e-2


class _UnclearError(Exception):
    """It is not known where samples come from, or what passes make."""


def dealt(recordings: Recordings, step: int, dealing: Dealing) -> Witness | None:
    """The first micro-batch that counts otherwise on another rank; None where none does, or where nothing certain can be said."""
    turns = {len(stretches_of(r)) for r in recordings.values()}
    if len(turns) > 1 or max(turns) < 2 or not all(kept(r).fed for r in recordings.values()):
        return None
    every = range(max(turns))
    for pair in combinations(sorted(recordings), 2):
        try:
            whole = _exchanged(recordings, pair, every)
            if not whole:
                continue
            if any(abs(one - 1) > _SAME for one in _multiples(recordings, dealing(whole), pair, every).values()):
                return None
            for turn in every:
                found = dealing(_exchanged(recordings, pair, (turn,)))
                multiples = _multiples(recordings, found, pair, (turn,))
                place = _place(recordings[pair[0]], found[pair[0]])
                if place is not None and max(multiples.values()) - min(multiples.values()) > _OTHER:
                    return _witness(recordings, found, step, pair, turn, multiples, place)
        except (_UnclearError, InputError):
            return None
        return None
    return None


# Who has which samples.


def _sources(recording: Recording, turn: int) -> list[Source]:
    """Where that was made which a backward pass is of, in order, but for numbers."""
    calls = stretches_of(recording)[turn].calls
    sources = {source for call in recording.calls if call.number in calls for source in call.sources}
    return sorted(source for source in sources if source[0][3])  # a number is made of samples


def _exchanged(recordings: Recordings, pair: tuple[int, int], turns: Iterable[int]) -> dict[int, Instead]:
    """What ranks are to have so that two of them exchange these micro-batches: nothing where they have the same ones."""
    found: dict[int, dict[Place, list[tuple[Rows, bytes]]]] = {rank: {} for rank in recordings}
    a, b = (recordings[rank] for rank in pair)
    for one, other in (both for turn in turns for both in _pairs(a, b, turn)):
        values = _values(a, one), _values(b, other)
        for rank, own in recordings.items() if values[0] != values[1] else ():
            for (maker, number, rows), whole, (mine, theirs) in ((one, a, values), (other, b, values[::-1])):
                if kept(own).contents.get((maker, number)) == _whole(whole, (maker, number)):
                    for place, at in _copies(own, whole, (maker, number), rows, mine):
                        found[rank].setdefault(place, []).append((at, theirs))
    return {rank: instead for rank, instead in found.items() if instead}


def _pairs(a: Recording, b: Recording, turn: int) -> Iterator[tuple[Source, Source]]:
    """What two ranks read in a pass, side by side. Raises _UnclearError where that is not of the same kind."""
    mine, theirs = _sources(a, turn), _sources(b, turn)
    if [(maker, rows[1:]) for maker, _, rows in mine] != [(maker, rows[1:]) for maker, _, rows in theirs]:
        raise _UnclearError
    return zip(mine, theirs, strict=True)


def _copies(own: Recording, other: Recording, of: Place, rows: Rows, values: bytes) -> Iterator[tuple[Place, Rows]]:
    """Where a rank has made these samples: also what they are copies of. ``other``: a rank that makes the same."""
    yield of, rows
    for place, held in kept(own).contents.items():
        total = (place[0][3] or (1,))[0]
        width = len(held) // total if total else 0
        if place != of and width and len(values) == width * rows[2] and place[0][2] == of[0][2]:
            at = held.find(values)
            if at >= 0 and at % width == 0 and kept(other).contents.get(place) == held:
                yield place, (at // width, 1, rows[2], total)


def _whole(recording: Recording, place: Place) -> bytes:
    held = kept(recording).contents.get(place)
    if held is None:
        raise _UnclearError
    return held


def _values(recording: Recording, source: Source) -> bytes:
    """The bytes of some rows."""
    held, rows = _whole(recording, source[:2]), source[2]
    width = len(held) // rows[3]
    if not rows[2]:
        raise _UnclearError
    return b"".join(held[i * width : (i + 1) * width] for i in indices(rows))


# What comes of it.


def _multiples(before: Recordings, after: Recordings, pair: tuple[int, int], turns: Iterable[int]) -> dict[tuple[int, int], float]:
    """By rank and backward pass: how many times the gradient that was made of the same samples before is made now."""
    to, exchanged = {pair[0]: pair[1], pair[1]: pair[0]}, set(turns)
    found = {}
    for rank, recording in before.items():
        for turn in range(len(stretches_of(recording))):
            there = after[to.get(rank, rank) if turn in exchanged else rank]
            if len(stretches_of(there)) != len(stretches_of(recording)):
                raise _UnclearError
            own, now = _gradient(kept(recording).passes[turn]), _gradient(kept(there).passes[turn])
            if own.shape != now.shape or not own.any() or off(now, own) > _SAME:
                raise _UnclearError
            found[rank, turn] = float(now @ own) / float(own @ own)
    return found


def _gradient(copies: Mapping[int, Copy]) -> NDArray[np.float64]:
    made = [copies[index].gradient for index in sorted(copies)]
    return np.concatenate([g for g in made if g is not None] or [np.zeros(0)])


def _place(before: Recording, after: Recording) -> tuple[int, int] | None:
    """The parameter, and which of its kept elements, whose gradient is most another one when it is updated; None where all are the same."""
    fed = {index: (copy.gradient, kept(after).fed[index].gradient) for index, copy in kept(before).fed.items() if index in kept(after).fed}
    gaps = {index: np.abs(one - other) for index, (one, other) in fed.items() if one is not None and other is not None}
    largest = max((float(np.abs(one).max()) for one, _ in fed.values() if one is not None), default=0.0)
    index = max(gaps, key=lambda i: float(gaps[i].max()), default=None)
    return (index, int(gaps[index].argmax())) if index is not None and gaps[index].max() > _OTHER * largest else None


def _witness(
    before: Recordings,
    after: Recordings,
    step: int,
    pair: tuple[int, int],
    turn: int,
    multiples: Mapping[tuple[int, int], float],
    place: tuple[int, int],
) -> Witness:
    a, b = pair
    own, (index, at) = before[a], place
    copy, name = kept(own).fed[index], own.states[index].name
    element = copy.element(at)
    values = [float(g[at]) for r in (own, after[a]) if (g := kept(r).fed[index].gradient) is not None]
    texts = shown(*values)
    return Witness.of(
        own,
        step,
        condition="gradient integrity",
        line=own.turns[turn].line,
        claim="the gradient is the same whichever rank gets which micro-batch",
        seen=(
            f"ranks {a} and {b} exchange the samples of backward pass {turn + 1}, and nothing else",
            f"`{name}`[{', '.join(map(str, element))}] is updated with the gradient {texts[1]}, and with {texts[0]} before",
        ),
        numbers={
            "parameter": name,
            "element": element,
            "ranks": [a, b],
            "pass": turn + 1,
            "gradient": values[0],
            "exchanged": values[1],
            "multiples": {str(rank): [multiples[rank, n] for n in range(len(stretches_of(own)))] for rank in sorted(before)},
        },
        reasons=tuple(_reasons(multiples, pair)),
        summary="micro-batches count more or less with others on the same rank, and one device does not see which these are",
        remark="Divide by what all ranks have in the step: all-reduce its tokens or samples before the loss.",
    )


def _reasons(multiples: Mapping[tuple[int, int], float], pair: tuple[int, int]) -> Iterator[str]:
    rank, turn = max((one for one in multiples if one[0] in pair), key=lambda one: abs(multiples[one] - 1))
    times = f"{multiples[rank, turn]:.6g}"
    yield f"what rank {rank} had in pass {turn + 1} counts {times} times as much as before, and the same samples are trained"
