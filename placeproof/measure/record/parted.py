"""Copies of a parameter that part: a witness, from real processes, that ranks do not train what one device trains.

One device has one value of a parameter. Ranks that hold copies may keep them apart for a while, so nothing is said of values but where
all of this holds: the copies begin the step with the same bits; both ranks' losses depend on the element; the gradient with which it is
updated was exchanged between the two ranks; and the copies differ when the next forward reads them, by more than rounding, and go on to
differ in the next step, or the script ends so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from placeproof.measure.record.axes import ranks_of
from placeproof.measure.record.nodes import AGAIN, COLLECTIVES, Nodes
from placeproof.measure.record.plan import unlike_settings
from placeproof.measure.record.recording import Copy, Recording
from placeproof.measure.record.sides import Sides, apart, begin_alike, kept, passes_of, sides_of, sums_of, telling
from placeproof.measure.record.witness import Witness, shown

#: So many things that ranks are set to otherwise are named.
_REASONS = 2


def parted(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """The first parameter whose copies part in a step; None where none does, or where nothing certain can be said."""
    if not begin_alike(recordings):
        return None
    passes = {rank: passes_of(rank, recordings, step) for rank in recordings}
    sums = {rank: sums_of(kept(r).passes[: passes[rank]]) for rank, r in recordings.items()}
    for index in range(len(recordings[0].states)):
        for a, b in combinations(sorted(recordings), 2):
            pair = recordings[a], recordings[b]
            sides = sides_of(pair, (passes[a], passes[b]), index) if _shared(pair, index) else None
            if sides is None or (
                sides.ends and any(index in kept(r).early for r in pair)
            ):  # before the next forward it would be sent again
                continue
            place = _place(sides, telling(sums, (a, b), index))
            if place is not None:
                return _witness(pair, step, index, sides, place)
    return None


def _shared(pair: tuple[Recording, Recording], index: int) -> bool:
    """Whether the gradient with which a parameter is updated was exchanged between two ranks, on each of them that updates it: the first
    one, where what is updated is updated again."""
    ranks = {r.rank for r in pair}
    terms = [(r.nodes, n) for r in pair for n in r.updates.get(index, ()) if r.nodes[n].text != AGAIN]
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


def _place(sides: Sides, far: NDArray[np.float64]) -> int | None:
    """The kept element that differs most; None where nothing but rounding is seen."""
    limit = sqrt(sides.before[0].rounding)
    clear = (far > limit) & _apart(sides.before, sides.after) & _apart(sides.before, sides.last)
    gap = np.where(clear, np.abs(sides.after[0].values - sides.after[1].values), 0.0)
    return int(gap.argmax()) if gap.any() else None


def _apart(before: Sequence[Copy], after: Sequence[Copy]) -> NDArray[np.bool_]:
    """Which elements differ by more than rounding, of themselves and of what the step has changed."""
    change = np.maximum(*(np.abs(x.values - y.values) for x, y in zip(before, after, strict=True)))
    return apart(after[0], after[1], change)


def _witness(pair: tuple[Recording, Recording], step: int, index: int, sides: Sides, place: int) -> Witness:
    a, b = pair
    copy, name = sides.before[0], a.states[index].name
    lines = [kept(r).lines.get(index, 0) for r in pair]
    element = copy.element(place)
    before, *after = (float(c.values[place]) for c in (copy, *sides.after))
    texts = shown(before, *after)
    when = "when the script ends" if sides.ends else "when the next forward reads them"
    what = f"`{name}`[{', '.join(map(str, element))}]"
    return Witness.of(
        a,
        step,
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
