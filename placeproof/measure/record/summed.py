"""Gradients of one sum that differ: a witness, from real processes, that ranks that split layers do not train one loss.

Where ranks add up what each has computed with its part of a layer, the derivative of any loss by what a rank gives is that by the sum: the
same for all. Here ranks go back with others, of which none is a multiple of the other, and nothing exchanges them before the parts are
trained with them. Ranks have other parts, so they are no copies of one model; and each is not trained by its own loss alone on purpose:
backward adds up what ranks make of one activation, or a distributed tensor says that all have the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, takewhile
from math import sqrt

import numpy as np

from placeproof.measure.record.axes import ranks_of
from placeproof.measure.record.norms import exchanges
from placeproof.measure.record.recording import Added, Recording, State
from placeproof.measure.record.sides import kept, off
from placeproof.measure.record.witness import Witness, shown

_Recordings = Mapping[int, Recording]
#: How far one gradient is from any multiple of the other, relative to itself: rounding at random to four bits comes to less.
_OTHER = 0.5


def summed(recordings: _Recordings, step: int) -> Witness | None:
    """The first sum of which ranks have other gradients; None where there is none, or where nothing certain can be said."""
    for a, b in combinations(sorted(recordings), 2):
        pair = recordings[a], recordings[b]
        for own in zip(*(_sums(r, (a, b)) for r in pair), strict=False):
            sums = [_sum(recordings, one, rank) for one, rank in zip(own, (a, b), strict=True)]
            states = _trained(pair, own) if all(sums) and _differ(*own) else None
            if states is not None:
                return _witness(pair, own, states, step)
    return None


def _sums(recording: Recording, ranks: tuple[int, int]) -> list[Added]:
    """What a rank adds up with these ranks and others, in turn."""
    return [one for one in kept(recording).added if {*ranks} <= {*one.group}]


def _sum(recordings: _Recordings, one: Added, rank: int) -> bool:
    """Whether what came of it is the sum of what ranks gave, on all of them, and nobody has another loss on purpose."""
    place = [added for added in kept(recordings[rank]).added if added.group == one.group].index(one)
    every = [[added for added in kept(recordings[r]).added if added.group == one.group] for r in one.group if r in recordings]
    if len(every) < len(one.group) or any(len(own) <= place for own in every):
        return False
    met = [own[place] for own in every]
    alike = all(a.made.shape == one.made.shape and (a.turn, a.shape) == (one.turn, one.shape) for a in met)
    limit = sqrt(one.rounding) * max(float(np.abs(a.given).max(initial=0.0)) for a in met)
    total = alike and all(np.abs(a.made - sum(b.given for b in met)).max(initial=0.0) <= limit for a in met)
    return bool(total) and (one.declared or one.group in kept(recordings[rank]).added_back)


def _differ(a: Added, b: Added) -> bool:
    """Whether ranks go back with gradients of which none is a multiple of the other."""
    if a.handed is None or b.handed is None or a.handed.shape != b.handed.shape or not np.isfinite([a.handed, b.handed]).all():
        return False
    return bool(a.handed.any() and b.handed.any()) and min(off(a.handed, b.handed), off(b.handed, a.handed)) > _OTHER


def _trained(pair: tuple[Recording, Recording], own: tuple[Added, Added]) -> list[int] | None:
    """The first parameter, by its number on each rank, that gets its gradient from what is handed back, that ranks have other parts of, and
    that is updated with that, without an exchange over these ranks."""
    made = [[*takewhile(lambda e: e.kind == "pass", r.events[one.next :])] for r, one in zip(pair, own, strict=True)]
    for events in zip(*made, strict=False):
        numbers = [min(e.states) for e in events if len(e.states) == 1]
        if len(numbers) == 2 and _parts(*(r.states[i] for r, i in zip(pair, numbers, strict=True))):
            return numbers if all(_by_itself(*one) for one in zip(pair, own, numbers, strict=True)) else None
    return None


def _by_itself(recording: Recording, one: Added, index: int) -> bool:
    """Whether a parameter is updated with a gradient of this pass that was not exchanged over these ranks."""
    terms, nodes = recording.updates.get(index, ()), recording.nodes
    groups = [{*ranks_of(key)} for n in terms for made in exchanges(recording, n) for key in made.axes]
    known = all(one.turn in nodes.turns(n) and not nodes.holds(n, "unknown") for n in terms)
    return bool(terms) and known and all(len(group & {*one.group}) < 2 for group in groups)


def _parts(a: State, b: State) -> bool:
    """Whether these are other parts of a parameter, and not copies."""
    return a.name == b.name and a.part == b.part and bool(a.used and b.used) and a.used != b.used


def _witness(pair: tuple[Recording, Recording], own: tuple[Added, Added], states: Sequence[int], step: int) -> Witness:
    a, b = own
    assert a.handed is not None
    assert b.handed is not None
    first, second = pair
    place = int(np.abs(a.handed - b.handed).argmax())
    name, size = first.states[states[0]].name, int(np.prod(a.shape))
    element = [int(n) for n in np.unravel_index(place * size // a.handed.size, a.shape)]
    gradients, given = shown(float(a.handed[place]), float(b.handed[place])), shown(float(a.given[place]), float(b.given[place]))
    each = f"rank {first.rank} gives {given[0]}, rank {second.rank} gives {given[1]}, and all get what they give together"
    back = f"rank {first.rank} goes back with the gradient {gradients[0]}, and rank {second.rank} with {gradients[1]}"
    return Witness.of(
        first,
        step,
        condition="gradient integrity",
        line=a.line,
        claim=f"ranks {first.rank} and {second.rank} have the same gradient of what they add up here",
        seen=(f"element [{', '.join(map(str, element))}] of the sum: {each}", f"{back}: each trains its part of `{name}` so"),
        numbers={
            "parameter": name,
            "element": element,
            "given": {str(r.rank): float(one.given[place]) for r, one in zip(pair, own, strict=True)},
            "gradient": {str(r.rank): float(one.handed[place]) for r, one in zip(pair, own, strict=True) if one.handed is not None},
        },
        reasons=tuple(_reasons(pair)),
        summary="one device has one gradient of each tensor, and trains all of a layer with it",
        remark="Give ranks that split layers the same samples, and the same random numbers between these layers.",
    )


def _reasons(pair: tuple[Recording, Recording]) -> Iterator[str]:
    """What makes it so, as far as it is seen."""
    first, second = pair
    if all(first.samples) and all(second.samples) and first.samples != second.samples:
        yield f"ranks {first.rank} and {second.rank} are given different samples"
