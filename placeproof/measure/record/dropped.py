"""Backward passes whose gradients are dropped: a witness, from real processes, that an update is of some samples of a step alone.

Ranks differentiate one loss in n passes, over other samples each, from the same lines of the script, and multiply each by 1/n: so the step
is of the mean over all. Who leaves out a pass on purpose looks at a number, or at its gradients; who warms up does not count these passes
in n. Here no number is read in the step, and of some passes' gradients nothing is computed but sums that are overwritten. Numbers show it,
too: optimizers are given, or each parameter moves along, the gradient of the other passes, and not that of all. Stages of a pipeline do
so together, each for itself: of each all ranks have the same parameters, and one drops what the others drop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from placeproof.measure.record.recording import Copy, Recording
from placeproof.measure.record.sides import Sides, along, begin_alike, kept, off, passes_of, read_by_updates, sides_of, stages_of, sums_of
from placeproof.measure.record.witness import Witness

#: So many passes at least: half of a square is a loss that is common with two.
_PASSES = 3
#: How far a change has to be from any multiple of a gradient along which it is not, relative to the largest change.
_ASIDE = 1e-1


def dropped(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """The backward passes of a step of which no update reads anything; None where there are none, or nothing certain can be said."""
    stages = stages_of(recordings)
    every = [r for stage in stages for r in stage.values()]
    counts = {len(r.turns) for r in every} | {passes_of(r.rank, stage, step) for stage in stages for r in stage.values()}
    read = frozenset[int]().union(*map(read_by_updates, every))
    count = min(counts, default=0)
    left = [n for n in range(count) if n not in read]
    if len(counts) > 1 or count < _PASSES or not left or not read or not all(map(begin_alike, stages)):
        return None
    if not all(_of_one_mean(r, count) and not kept(r).looked and not kept(r).heard & {*left} for r in every):
        return None
    found = [_of_stage([*stage.values()], step, sorted(read), left, count) for stage in stages]
    return found[0] if all(found) else None


def _of_stage(every: Sequence[Recording], step: int, read: Sequence[int], left: Sequence[int], count: int) -> Witness | None:
    """That ranks which have the same parameters train with some passes alone; None where numbers do not show it."""
    sides = {i: found for i in range(len(every[0].states)) if (found := sides_of(every, [count] * len(every), i)) is not None}
    if not sides or not all(_along(every, i, found, read, count) for i, found in sides.items()):
        return None
    return _witness(every, step, sides, left, count)


def _of_one_mean(recording: Recording, count: int) -> bool:
    """Whether the passes of a rank are of one loss, with other samples each, of which they make a mean."""
    own = kept(recording)
    alike = len({*own.stacks[:count]}) == len({*recording.graphs[:count]}) == len({t.rows for t in recording.turns}) == 1
    means = all(t.factor == Fraction(1, count) and not (t.summed or t.text or t.beside) for t in recording.turns)
    given = [{*one} for one in recording.samples]
    return alike and means and all(given) and not any(a & b for a, b in combinations(given, 2))


def _along(every: Sequence[Recording], index: int, sides: Sides, read: Sequence[int], count: int) -> bool:
    """Whether an optimizer is given the gradient of the passes that are read, and not that of all; or, by hand, a parameter moves so."""
    before, after = sides.before[0], sides.after[0]
    fed = next((copy.gradient for r in every if (copy := kept(r).fed.get(index)) is not None), None)
    change, values = (after.values - before.values, before.values) if fed is None else (fed, fed)
    some, all_ = (_gradient(every, index, turns) for turns in (read, range(count)))
    if some is None or all_ is None or len({copy.digest for copy in sides.after}) > 1 or after.digest == before.digest:
        return False
    return along(change, some, before.rounding * float(np.abs(values).max())) and off(change, all_) > _ASIDE


def _gradient(every: Sequence[Recording], index: int, turns: Sequence[int]) -> NDArray[np.float64] | None:
    """Of some passes of all ranks, added up."""
    made = [sums_of([kept(r).passes[n] for n in turns]).get(index) for r in every]
    found = [one for one in made if one is not None]
    return sum(found[1:], found[0]) if len(found) == len(made) else None


def _witness(every: Sequence[Recording], step: int, sides: Mapping[int, Sides], left: Sequence[int], count: int) -> Witness:
    first = every[0]
    index = min(sides)
    copy: Copy = sides[index].before[0]
    own = [kept(first).passes[n][index] for n in range(count)]
    gradients = [one.gradient for one in own if one.gradient is not None]
    place = int(np.abs(gradients[left[0]]).argmax())
    name, element = first.states[index].name, copy.element(place)
    values = [float(g[place]) for g in gradients]
    what, lost = f"`{name}`[{', '.join(map(str, element))}]", ", ".join(str(n + 1) for n in left)
    return Witness.of(
        first,
        step,
        condition="gradient integrity",
        line=first.turns[left[0]].line,
        claim=f"the update reads the gradients of all {count} backward passes",
        seen=(
            f"{what}: its gradients on rank {first.rank} are {', '.join(f'{v:.6g}' for v in values)}, pass by pass,"
            f" each of a loss divided by {count}",
            f"nothing reads those of pass {lost}: all parameters are updated with the gradients of the others, and not with those of all",
        ),
        numbers={
            "parameter": name,
            "element": element,
            "gradients": values,
            "dropped": [n + 1 for n in left],
            "read": "end" if sides[index].ends else "forward",
        },
        summary=f"a step of {count} micro-batches trains with all of them",
        remark="Make gradients zero once for all of them, and add up what is made of each.",
    )
