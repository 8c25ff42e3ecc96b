"""Copies of a parameter that part: a witness, from real processes, that ranks do not train what one device trains.

One device has one value of a parameter. Ranks that hold copies may keep them apart for a while, so nothing is said of values but where
all of this holds: the copies begin the step with the same bits; both ranks' losses depend on the element; the gradient with which it is
updated was exchanged between the two ranks; and the copies differ when the next forward reads them, by more than rounding, and go on to
differ in the next step, or the script ends so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from placeproof.measure.record.axes import ranks_of
from placeproof.measure.record.nodes import COLLECTIVES, Nodes
from placeproof.measure.record.plan import unlike_settings
from placeproof.measure.record.recording import Copy, Kept, Recording, Seen
from placeproof.measure.record.witness import Witness, shown

#: A difference has to be so many times the rounding of the values themselves.
_ROUNDINGS = 16
#: So many things that ranks are set to otherwise are named.
_REASONS = 2


@dataclass(frozen=True, slots=True)
class _Sides:
    """A parameter on two ranks: before the step, as the next forward reads it, and a step later. ``ends``: no forward comes after it."""

    before: tuple[Copy, Copy]
    after: tuple[Copy, Copy]
    last: tuple[Copy, Copy]
    ends: bool


def parted(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """The first parameter whose copies part in a step; None where none does, or where nothing certain can be said."""
    if not _begin_alike(recordings):
        return None
    passes = {rank: _passes(rank, recordings, step) for rank in recordings}
    sums = {rank: _sums(_kept(r).passes[: passes[rank]]) for rank, r in recordings.items()}
    for index in range(len(recordings[0].states)):
        for a, b in combinations(sorted(recordings), 2):
            pair = recordings[a], recordings[b]
            sides = _sides(pair, (passes[a], passes[b]), index) if _shared(pair, index) else None
            place = None if sides is None else _place(sides, _telling(sums, (a, b), index))
            if sides is not None and place is not None:
                return _witness(pair, step, index, sides, place)
    return None


def _kept(recording: Recording) -> Kept:
    assert recording.kept is not None
    return recording.kept


def _begin_alike(recordings: Mapping[int, Recording]) -> bool:
    """Whether all ranks have the same parameters with the same bits, which are not all constant, and none of which is a part."""
    begin = {rank: {i: copy for one in reversed(_kept(r).passes) for i, copy in one.items()} for rank, r in recordings.items()}
    trained = set[int]().union(*begin.values())
    names = {tuple((s.name, s.numel) for s in r.states) for r in recordings.values()}
    alike = all(len({own[i].digest for own in begin.values() if i in own}) == 1 for i in trained)
    told = any(np.ptp(copy.values) > 0 for copy in begin[0].values())
    used = [s for r in recordings.values() for s in r.states if s.used]
    whole = all(s.split is None and not s.gathered and s.part == s.numel for s in used)
    return alike and told and whole and len(names) == 1


def _passes(rank: int, recordings: Mapping[int, Recording], step: int) -> int:
    """How many backward passes of a rank belong to the step: those before its update; where it updates nothing, those before the last
    exchange with one that does, in the step of that one. 0 where that cannot be said."""
    own = recordings[rank]
    if own.updates:
        return _kept(own).step
    met = next((count for r in recordings.values() if r.updates and (count := len(_exchanges(r, rank)))), 0)
    with_it = next((_exchanges(own, r.rank) for r in recordings.values() if r.updates and _exchanges(r, rank)), [])
    return with_it[met - 1].turn if 0 < met <= len(with_it) and step == 1 else 0


def _exchanges(recording: Recording, other: int) -> list[Seen]:
    return [e for e in recording.events if other in e.group and e.phase != "setup" and e.kind not in ("send", "recv")]


def _sums(passes: Sequence[Mapping[int, Copy]]) -> dict[int, NDArray[np.float64]]:
    """By parameter, the gradients that a rank makes in the step by itself, added up."""
    sums: dict[int, NDArray[np.float64]] = {}
    for index, copy in (item for one in passes for item in one.items()):
        if copy.gradient is not None:
            sums[index] = sums[index] + copy.gradient if index in sums else copy.gradient
    return sums


def _shared(pair: tuple[Recording, Recording], index: int) -> bool:
    """Whether the gradient with which a parameter is updated was exchanged between two ranks, on each of them that updates it."""
    ranks = {r.rank for r in pair}
    terms = [(r.nodes, n) for r in pair for n in r.updates.get(index, ())]
    return bool(terms) and all(_exchanged(nodes, n, ranks) for nodes, n in terms)


def _exchanged(nodes: Nodes, number: int, ranks: set[int]) -> bool:
    """Whether a gradient has something that these ranks have exchanged. A norm that clips it may have been exchanged alone."""
    node = nodes[number]
    if node.kind in COLLECTIVES:
        return any(ranks <= {*ranks_of(axis)} for axis in node.axes) or any(_exchanged(nodes, n, ranks) for n in node.of)
    if node.kind in ("clipped", "elementwise"):
        return _exchanged(nodes, node.of[0], ranks)
    if node.kind == "unknown":
        gradients = [n for n in node.of if nodes.is_gradient(n) or nodes[n].kind == "unknown"]
        return bool(gradients) and all(_exchanged(nodes, n, ranks) for n in gradients)
    return node.kind in ("scale", "add") and any(_exchanged(nodes, n, ranks) for n in node.of)


def _sides(pair: tuple[Recording, Recording], passes: tuple[int, int], index: int) -> _Sides | None:
    """A parameter before and after the step; None where one of the ranks does not read it, or it may still be sent."""
    kept = [_kept(r) for r in pair]
    if not all(passes):
        return None

    def first(number: int, begin: int) -> Copy | None:
        return next((one[index] for one in kept[number].passes[begin:] if index in one), None)

    def both(one: Copy | None, other: Copy | None) -> tuple[Copy, Copy] | None:
        return None if one is None or other is None else (one, other)

    before = both(*(first(i, 0) for i in range(2)))
    after = both(*(first(i, n) for i, n in enumerate(passes)))
    last = both(*(first(i, 2 * n) for i, n in enumerate(passes)))
    end = both(*(k.end.get(index) for k in kept))
    ends = not any(first(i, n) for i, n in enumerate(passes))
    if ends and any(index in k.early for k in kept):  # before the next forward it would be sent again
        return None
    after, last = (end, end) if ends else (after, last or end)
    return None if before is None or after is None or last is None else _Sides(before, after, last, ends)


def _telling(sums: Mapping[int, Mapping[int, NDArray[np.float64]]], pair: tuple[int, int], index: int) -> NDArray[np.float64]:
    """How far the gradient of each element is from what rounding leaves of it: 0 where one of two ranks makes none."""
    total: dict[int, NDArray[np.float64]] = {}
    for i, gradient in (item for of_rank in sums.values() for item in of_rank.items()):
        total[i] = total[i] + gradient if i in total else gradient
    most = max((float(np.abs(g).max()) for g in total.values()), default=0.0)
    if not all(index in sums[rank] for rank in pair):
        return np.zeros(1)
    own = [sums[rank][index] for rank in pair]
    scale = np.maximum(sum(np.abs(s[index]) for s in sums.values() if index in s), most)
    both = (own[0] != 0) & (own[1] != 0)
    return np.where(both & (scale > 0), np.abs(total[index]) / np.where(scale > 0, scale, 1.0), 0.0)


def _place(sides: _Sides, telling: NDArray[np.float64]) -> int | None:
    """The kept element that differs most; None where nothing but rounding is seen."""
    limit = sqrt(sides.before[0].rounding)
    clear = (telling > limit) & _apart(sides.before, sides.after) & _apart(sides.before, sides.last)
    gap = np.where(clear, np.abs(sides.after[0].values - sides.after[1].values), 0.0)
    return int(gap.argmax()) if gap.any() else None


def _apart(before: tuple[Copy, Copy], after: tuple[Copy, Copy]) -> NDArray[np.bool_]:
    """Which elements differ by more than rounding, of themselves and of what the step has changed."""
    a, b = (copy.values for copy in after)
    rounding, change = before[0].rounding, np.maximum(*(np.abs(x.values - y.values) for x, y in zip(before, after, strict=True)))
    finite = np.isfinite(a) & np.isfinite(b)
    limit = np.maximum(_ROUNDINGS * rounding * np.maximum(np.abs(a), np.abs(b)), sqrt(rounding) * change)
    apart: NDArray[np.bool_] = finite & (np.abs(a - b) > limit)
    return apart


def _witness(pair: tuple[Recording, Recording], step: int, index: int, sides: _Sides, place: int) -> Witness:
    a, b = pair
    copy, name = sides.before[0], a.states[index].name
    lines = [_kept(r).lines.get(index, 0) for r in pair]
    element = [int(n) for n in np.unravel_index(int(copy.places[place]), copy.shape)]
    before, *after = (float(c.values[place]) for c in (copy, *sides.after))
    texts = shown(before, *after)
    when = "when the script ends" if sides.ends else "when the next forward reads them"
    what = f"`{name}`[{', '.join(map(str, element))}]"
    return Witness(
        script=a.script,
        source=a.source,
        world=a.world,
        step=step,
        condition="state consistency",
        line=max(lines),
        claim=f"ranks {a.rank} and {b.rank} have the same `{name}` {when}",
        seen=(
            f"{what}: {texts[0]} before the step on both, then {texts[1]} on rank {a.rank} and {texts[2]} on rank {b.rank}",
            "the losses of both ranks depend on it, and they exchange its gradient",
        ),
        numbers={
            "parameter": name,
            "element": element,
            "before": before,
            "after": {str(r.rank): value for r, value in zip(pair, after, strict=True)},
            "read": "end" if sides.ends else "forward",
            "updated": {str(r.rank): line or None for r, line in zip(pair, lines, strict=True)},
        },
        reasons=tuple(_reasons(pair, index)),
        summary="one device has one value of each parameter, and these ranks have two",
        remark="Ranks that train apart on purpose, and average parameters now and then, do not train what one device trains either.",
    )


def _reasons(pair: tuple[Recording, Recording], index: int) -> Iterator[str]:
    """What two ranks do otherwise with a parameter, as far as it is seen."""
    updated = [index in r.updates for r in pair]
    if not all(updated):
        one, other = (pair[updated.index(does)].rank for does in (False, True))
        yield f"rank {one} does not update it, and is not sent what rank {other} made of it"
    yield from islice(unlike_settings(*pair), _REASONS)
