"""Parameters before a step, as the next forward reads them, and a step later: what real processes had of them, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.pipeline import joined
from placeproof.measure.record.recording import Copy, Kept, Recording, Seen, Stretch

#: A difference has to be so many times the rounding of the values themselves.
_ROUNDINGS = 16
#: How far a change may be from a multiple of a gradient, relative to the largest change.
_ALONG = 1e-3
Copies = tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """A parameter on some ranks: before the step, as the next forward reads it, and a step later. ``ends``: no forward comes after it."""

    before: Copies
    after: Copies
    last: Copies
    ends: bool


def kept(recording: Recording) -> Kept:
    """What a rank has kept, which was followed beyond its step."""
    assert recording.kept is not None
    return recording.kept


def begin_alike(recordings: Mapping[int, Recording]) -> bool:
    """Whether all ranks have the same parameters with the same bits, which are not all constant, and none of which is a part."""
    begin = {rank: {i: copy for one in reversed(kept(r).passes) for i, copy in one.items()} for rank, r in recordings.items()}
    trained = set[int]().union(*begin.values())
    names = {tuple((s.name, s.numel) for s in r.states) for r in recordings.values()}
    alike = all(len({own[i].digest for own in begin.values() if i in own}) == 1 for i in trained)
    told = any(np.ptp(copy.values) > 0 for copy in next(iter(begin.values())).values())
    used = [s for r in recordings.values() for s in r.states if s.used]
    whole = all(s.split is None and not s.gathered and s.part == s.numel for s in used)
    return alike and told and whole and len(names) == 1


def passes_of(rank: int, recordings: Mapping[int, Recording], step: int) -> int:
    """How many backward passes of a rank belong to the step: those before its update; where it updates nothing, those before the last
    exchange with one that does, in the step of that one. 0 where that cannot be said."""
    own = recordings[rank]
    if own.updates:
        return kept(own).step
    met = next((count for r in recordings.values() if r.updates and (count := len(_exchanges(r, rank)))), 0)
    with_it = next((_exchanges(own, r.rank) for r in recordings.values() if r.updates and _exchanges(r, rank)), [])
    return with_it[met - 1].turn if 0 < met <= len(with_it) and step == 1 else 0


def _exchanges(recording: Recording, other: int) -> list[Seen]:
    return [e for e in recording.events if other in e.group and e.phase != "setup" and e.kind not in ("send", "recv")]


def sides_of(recordings: Sequence[Recording], passes: Sequence[int], index: int) -> Sides | None:
    """A parameter before and after the step; None where one of the ranks does not read it in it."""
    own = [kept(r) for r in recordings]
    if not all(passes):
        return None

    def first(number: int, begin: int) -> Copy | None:
        return next((one[index] for one in own[number].passes[begin:] if index in one), None)

    def every(copies: Iterable[Copy | None]) -> Copies | None:
        there = [*copies]
        found = tuple(c for c in there if c is not None)
        return found if len(found) == len(there) else None

    before = every(first(i, 0) for i in range(len(own)))
    after = every(first(i, n) for i, n in enumerate(passes))
    last = every(first(i, 2 * n) for i, n in enumerate(passes))
    end = every(k.end.get(index) for k in own)
    ends = not any(first(i, n) for i, n in enumerate(passes))
    after, last = (end, end) if ends else (after, last or end)
    return None if before is None or after is None or last is None else Sides(before, after, last, ends)


def sums_of(passes: Sequence[Mapping[int, Copy]]) -> dict[int, NDArray[np.float64]]:
    """By parameter, the gradients that a rank makes in some passes by itself, added up."""
    sums: dict[int, NDArray[np.float64]] = {}
    for index, copy in (item for one in passes for item in one.items()):
        if copy.gradient is not None:
            sums[index] = sums[index] + copy.gradient if index in sums else copy.gradient
    return sums


def telling(sums: Mapping[int, Mapping[int, NDArray[np.float64]]], ranks: Sequence[int], index: int) -> NDArray[np.float64]:
    """How far the gradient of each element is from what rounding leaves of it: 0 where one of these ranks makes none."""
    total: dict[int, NDArray[np.float64]] = {}
    for i, gradient in (item for of_rank in sums.values() for item in of_rank.items()):
        total[i] = total[i] + gradient if i in total else gradient
    most = max((float(np.abs(g).max()) for g in total.values()), default=0.0)
    if index not in total or not all(index in sums[rank] for rank in ranks):
        return np.zeros(1)
    scale = np.maximum(sum(np.abs(s[index]) for s in sums.values() if index in s), most)
    there = np.logical_and.reduce([sums[rank][index] != 0 for rank in ranks])
    return np.where(there & (scale > 0), np.abs(total[index]) / np.where(scale > 0, scale, 1.0), 0.0)


def apart(a: Copy, b: Copy, change: NDArray[np.float64] | float = 0.0) -> NDArray[np.bool_]:
    """Which elements differ by more than rounding, of themselves and of a ``change``."""
    finite = np.isfinite(a.values) & np.isfinite(b.values)
    limit = np.maximum(_ROUNDINGS * a.rounding * np.maximum(np.abs(a.values), np.abs(b.values)), sqrt(a.rounding) * change)
    differ: NDArray[np.bool_] = finite & (np.abs(a.values - b.values) > limit)
    return differ


def stages_of(recordings: Mapping[int, Recording]) -> list[Mapping[int, Recording]]:
    """Ranks that are to have the same parameters: all, or those of each stage of pipelines, whose n-th passes are of one micro-batch, and
    of which all stages read the samples. None at all where passes fit together in no such way."""
    try:
        made, lines = joined(recordings)
    except InputError:
        return []
    if not lines:
        return [recordings]
    pairs = [(made[a].stretches, made[b].stretches) for line in lines for a, b in pairwise(line)]
    in_order = all([{*dict(s.begins)} for s in a] == [{*dict(s.ends)} for s in b] for a, b in pairs)
    alike = len({*map(len, lines)}) == 1 and in_order
    return [{rank: made[rank] for rank in stage} for stage in zip(*lines, strict=True)] if alike else []


def stretches_of(recording: Recording) -> list[Stretch]:
    """The backward passes of the step."""
    return recording.stretches[: kept(recording).step]


def read_by_updates(recording: Recording) -> frozenset[int]:
    """The backward passes, by their numbers, of whose gradients updates read something. What is made before the first one is of none."""
    turns = frozenset[int]().union(*(recording.nodes.turns(n) for terms in recording.updates.values() for n in terms))
    return turns - {-1}


def off(change: NDArray[np.float64], gradient: NDArray[np.float64]) -> float:
    """How far a change is from the multiple of a gradient that is next to it, relative to its largest element; 1 without a change."""
    square, size = float(gradient @ gradient), float(np.abs(change).max())
    multiple = float(change @ gradient) / square if square else 0.0
    return float(np.abs(change - gradient * multiple).max()) / size if size else 1.0


def along(change: NDArray[np.float64], gradient: NDArray[np.float64], rounding: float) -> bool:
    """Whether a change is a multiple of a gradient, and larger than ``rounding`` of the values that change."""
    return _ROUNDINGS * rounding < _ALONG * float(np.abs(change).max()) and off(change, gradient) < _ALONG


@dataclass(frozen=True, slots=True)
class Moved:
    """All that a step trains, in a row, on ranks that begin and end with the same: its values ``before`` and ``after``, the ``gradients``
    that each rank makes by itself, and by parameter the ``sides``. ``rounding``: of the values."""

    before: NDArray[np.float64]
    after: NDArray[np.float64]
    gradients: tuple[NDArray[np.float64], ...]
    sides: Mapping[int, Sides]
    rounding: float

    def names(self, recording: Recording) -> list[str]:
        """Of all elements."""
        shapes = ((recording.states[i].name, s.before[0].shape) for i, s in self.sides.items())
        return [f"`{name}`[{', '.join(map(str, place))}]" for name, shape in shapes for place in np.ndindex(shape)]


def moved_by(recordings: Mapping[int, Recording], step: int) -> Moved | None:
    """What a step makes of all that it trains; None where some elements are not kept, or ranks do not begin and end with the same."""
    if not begin_alike(recordings):
        return None
    every = [r for _, r in sorted(recordings.items())]
    passes = [passes_of(r.rank, recordings, step) for r in every]
    sums = [sums_of(kept(r).passes[:n]) for r, n in zip(every, passes, strict=True)]
    trained = sorted(set[int]().union(*sums))
    sides = {i: found for i in trained if (found := sides_of(every, passes, i)) is not None}
    whole = [len(s.before[0].values) == int(np.prod(s.before[0].shape)) and len({c.digest for c in s.after}) == 1 for s in sides.values()]
    if not trained or len(sides) < len(trained) or not all(whole):
        return None
    before, after = (np.concatenate([getattr(sides[i], when)[0].values for i in trained]) for when in ("before", "after"))
    rows = tuple(np.concatenate([own.get(i, np.zeros(len(sides[i].before[0].values))) for i in trained]) for own in sums)
    return Moved(before, after, rows, sides, max(s.before[0].rounding for s in sides.values()) * float(np.abs(before).max()))
