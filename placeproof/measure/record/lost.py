"""Updates that are lost: a witness, from real processes, that ranks do work of which nothing is left.

What is made of a parameter is for something to read: in a right script the next forward does, an average, a copy, a file; and what is taken
back on purpose is taken back from a rank's own copy. Here nothing but exchanges reads it, and one puts over it what another rank has. That
one has neither updated nor written the parameter, and all ranks read the value from before the step, now and a step later. Or the rank
gives nothing to any other in all of the run, and gets all that it has trained from one that has trained it with other samples, and that
the script names by its number: its own samples have trained nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from placeproof.measure.record.nodes import Node
from placeproof.measure.record.recording import Copy, Recording, Seen
from placeproof.measure.record.sides import Sides, apart, begin_alike, kept, passes_of, sides_of, sums_of, telling
from placeproof.measure.record.witness import Witness, shown

_Row: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Lost:
    """What a rank has ``made`` of a parameter, of which nothing is left, and how far each element is from what is ``after`` the step.
    ``sent``: what was put over it."""

    index: int
    own: Recording
    before: Copy
    made: Copy
    after: Copy
    sent: Node
    gap: _Row
    ends: bool


def lost(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """The first parameter whose update in a step is lost; None where none is, or where nothing certain can be said."""
    if not begin_alike(recordings):
        return None
    every = [r for _, r in sorted(recordings.items())]
    passes = [passes_of(r.rank, recordings, step) for r in every]
    sides = {i: found for i in range(len(every[0].states)) if (found := sides_of(every, passes, i)) is not None}
    sums = {r.rank: sums_of(kept(r).passes[:n]) for r, n in zip(every, passes, strict=True)}
    for index, found in sides.items():
        if (one := _nowhere(every, index, found, telling(sums, [], index))) is not None:
            return _of_update(one, every, step)
    for own, other in permutations(every, 2) if step == 1 else ():
        if (one := _for_nothing(own, other, sides, sums)) is not None:
            return _of_rank(one, other)
    return None


def _nowhere(every: Sequence[Recording], index: int, sides: Sides, far: _Row) -> _Lost | None:
    """Ranks update a parameter, and all read what it was before."""
    updating, others = ([r for r in every if (index in r.updates) is does] for does in (True, False))
    before, ranks = sides.before[0], {r.rank for r in others}
    stays = all(copy.digest == before.digest for copy in (*sides.after, *sides.last)) and not any(index in kept(r).written for r in others)
    found = [_lost(r, index, sides, ranks, far > sqrt(before.rounding)) for r in updating] if stays else []
    return found[0] if found and all(one is not None for one in found) else None


def _for_nothing(own: Recording, other: Recording, sides: Mapping[int, Sides], sums: Mapping[int, Mapping[int, _Row]]) -> _Lost | None:
    """A rank gives nothing to others, and all that it has trained is what another one has made with other samples."""
    given = [{d for turn in r.samples for d in turn} for r in (own, other)]
    ends = all(i in sides and sides[i].ends for i in own.updates)
    if not ends or kept(own).gives or not {*own.updates} <= {*other.updates} or not all(given) or given[0] & given[1]:
        return None
    found = []
    for index in own.updates:
        mine, theirs = sums[own.rank].get(index, np.zeros(1)), sums[other.rank].get(index, np.zeros(1))
        scale = np.maximum(np.abs(mine), np.abs(theirs)).max()
        found.append(_lost(own, index, sides[index], {other.rank}, np.abs(mine - theirs) > sqrt(sides[index].before[0].rounding) * scale))
    return found[0] if found and all(one is not None and _is_named(own, one.sent) for one in found) else None


def _is_named(recording: Recording, sent: Node) -> bool:
    """Whether a script says by a number which rank broadcasts: one that is worked out may be another one in another run."""
    calls = (n for n in ast.walk(ast.parse("\n".join(recording.source))) if isinstance(n, ast.Call) and n.lineno == sent.line)
    named = [call for call in calls if ast.unparse(call.func).endswith("broadcast")]
    roots = [root for call in named for root in (*call.args[1:2], *(k.value for k in call.keywords if k.arg == "src"))]
    return sent.kind == "broadcast" and bool(roots) and all(isinstance(root, ast.Constant) for root in roots)


def _lost(own: Recording, index: int, sides: Sides, others: Collection[int], clear: NDArray[np.bool_]) -> _Lost | None:
    """An update of a rank over which an exchange puts what one of ``others`` has, and of which nothing else has read anything. ``clear``:
    elements of which more than rounding is seen."""
    exchanges = [e for e in own.events if _is_late(e, index)]
    final = [own.nodes[n] for n in own.final.get(index, ())]
    made, before, after = kept(own).made.get(index), sides.before[own.rank], sides.after[own.rank]
    if made is None or len(exchanges) != 1 or len(final) != 1 or index in kept(own).read:
        return None
    sent = final[0].kind == "broadcast" and final[0].root in others
    gathered = final[0].kind == "all_gather" and exchanges[0].updated and bool(others)
    gap = np.where(apart(before, made) & apart(after, made) & clear, np.abs(made.values - after.values), 0.0)
    return _Lost(index, own, before, made, after, final[0], gap, sides.ends) if (sent or gathered) and gap.any() else None


def _is_late(event: Seen, index: int) -> bool:
    """Whether a parameter is exchanged when gradients have been made."""
    return index in event.states and event.kind not in ("pass", "use") and not event.gradient and event.phase not in ("setup", "forward")


def _of_update(one: _Lost, every: Sequence[Recording], step: int) -> Witness:
    when = "when the script ends" if one.ends else "when the next forward reads it"
    name, what, place = _named(one)
    before, made = shown(float(one.before.values[place]), float(one.made.values[place]))
    by = f"rank {one.sent.root} sends" if one.sent.kind == "broadcast" else "is taken of what ranks give"
    return Witness.of(
        one.own,
        step,
        line=_line(one),
        condition="state consistency",
        claim=f"what rank {one.own.rank} has made of `{name}` is there {when}",
        seen=(
            f"{what}: {before} before the step, {made} as rank {one.own.rank} has updated it, and {before} on all ranks {when}",
            f"nothing has read {made}, and over it is put what {by}: a rank has it that has not updated `{name}`",
        ),
        numbers={
            **_numbers(one, place),
            "made": {str(r.rank): float(kept(r).made[one.index].values[place]) for r in every if one.index in r.updates},
        },
        summary="what one device makes of a parameter, its next step reads",
        remark="A step that is taken back on purpose goes back to a rank's own copy of what was there.",
    )


def _of_rank(one: _Lost, other: Recording) -> Witness:
    _, what, place = _named(one)
    made, after = shown(float(one.made.values[place]), float(one.after.values[place]))
    return Witness.of(
        one.own,
        1,
        line=_line(one),
        condition="gradient integrity",
        claim=f"the samples of rank {one.own.rank} have trained anything",
        seen=(
            f"{what}: rank {one.own.rank} makes {made} of it with its samples, and over that puts {after}, which rank {other.rank} sends",
            f"so it is with all that rank {one.own.rank} trains, and in all of the run it gives nothing to another rank",
        ),
        numbers={**_numbers(one, place), "made": {str(one.own.rank): float(one.made.values[place])}, "sent_by": other.rank},
        summary="one device trains with all samples, and nothing is left of what these have trained",
        remark="Where ranks are to start with the same parameters, send these before the step.",
    )


def _line(one: _Lost) -> int:
    return one.sent.line or kept(one.own).lines.get(one.index, 0)


def _named(one: _Lost) -> tuple[str, str, int]:
    """A parameter, the element of it that is shown, and its place."""
    name, place = one.own.states[one.index].name, int(one.gap.argmax())
    return name, f"`{name}`[{', '.join(map(str, one.before.element(place)))}]", place


def _numbers(one: _Lost, place: int) -> dict[str, object]:
    values = {"before": float(one.before.values[place]), "after": float(one.after.values[place])}
    name = one.own.states[one.index].name
    return {"parameter": name, "element": one.before.element(place), **values, "read": "end" if one.ends else "forward"}
