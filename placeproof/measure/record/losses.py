"""Backward passes of one step that are of several losses of the same samples, and no micro-batches: gradients are those of the sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from placeproof.measure.record.plan import StepPlan
from placeproof.measure.record.recording import Recording


def as_one(plan: StepPlan, recordings: Mapping[int, Recording]) -> StepPlan | None:
    """The step of which all passes are of one loss, that adds up theirs; None where they may be micro-batches."""
    turns = recordings[0].turns
    chains = [part.chain for part in plan.parts]
    if len(turns) == 1 or plan.layers or plan.experts or plan.stages or plan.gathers.axes or any(chain.rolling for chain in chains):
        return None
    if not all(map(_of_several_losses, recordings.values())):
        return None
    first = max(turns, key=lambda t: abs(t.factor))
    beside = [(t.factor / first.factor, t.count, t.rows) for t in turns if t is not first]
    inner = [(f * t.factor / first.factor, count, rows) for t in turns for f, count, rows in t.beside]
    return replace(
        plan,
        turn=replace(first, factor=first.factor / plan.constant, beside=(*beside, *inner)),
        turns=1,
        parts=[replace(part, chain=replace(part.chain, turns=1)) for part in plan.parts],
        uneven=len({tuple(t.counts for t in r.turns) for r in recordings.values()}) > 1,
        one=True,
        notes=[*plan.notes, f"Its {len(turns)} backward passes are of several losses of the same samples, which one loss adds up."],
    )


def _of_several_losses(recording: Recording) -> bool:
    """Whether each pass is of all samples that modules are given, and any two differ in more than these."""
    turns, pairs = recording.turns, combinations(range(len(recording.turns)), 2)
    whole = all(not t.summed and t.rows == recording.rows.get(i) for i, t in enumerate(turns))
    return whole and all(_differ(recording, i, j) for i, j in pairs)


def _differ(recording: Recording, i: int, j: int) -> bool:
    """Whether two passes are of other losses: of the same run of a module, of the same samples by other operations, or one of samples and
    one of what a model makes."""
    if recording.stretches[i].calls & recording.stretches[j].calls:
        return True
    if recording.samples[i] == recording.samples[j]:
        return recording.graphs[i] != recording.graphs[j]
    return (i in recording.generated) != (j in recording.generated)
