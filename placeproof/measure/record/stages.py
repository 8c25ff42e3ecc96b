"""The step of a pipeline: that of each of its stages, which have to be one but for the parameters that they are about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from placeproof.measure.record.axes import Grid
from placeproof.measure.record.chain import ChainStep, refuse_lines
from placeproof.measure.record.pipeline import by_stages
from placeproof.measure.record.plan import StepPlan, read_plan, settings_alike
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.treatment import ParameterSet


def read_stages(recordings: Mapping[int, Recording], grid: Grid, given: Mapping[str, str]) -> StepPlan:
    """The step that ranks were seen to do, with stages or without. Raises InputError for whatever cannot be said."""
    if not grid.stages:
        return read_plan(recordings, grid, given)
    stages = by_stages(recordings, grid)
    plans = [read_plan(stage, grid, given) for stage in stages]
    first, plan = recordings[0], plans[0]
    settings_alike(first, recordings)
    wrong = [text for p in plans for text in _beyond(p)]
    for p in plans:
        p.parts = [_tied(part, grid) for part in p.parts]
        wrong += [text for part in p.parts for text in _over_stages(part, grid)]
    for n, p in enumerate(plans):
        theirs = [part for part in plan.parts if n in (0, len(plans) - 1) or not part.tied]
        if _treatments(p.parts) != _treatments(theirs):
            wrong.append(f"stage {n} treats its parameters otherwise than stage 0")
    wrong += list(_equal(stages, plans))
    refuse_lines(first.script, first.source, [(text, plan.turn.line) for text in wrong[:8]])
    unequal = any(p.unequal and not p.sent for p in plans)
    sent = None if unequal else next((p.sent for p in plans if p.sent), None)
    parts = sorted(plan.parts, key=lambda part: part.tied)
    return replace(plan, parts=parts, stages=grid.stages, unequal=unequal or bool(sent), sent=sent)


def _tied(part: ParameterSet, grid: Grid) -> ParameterSet:
    """A part, of which gradients that are added up over the first stage and the last are those of copies of one parameter."""
    ends = (grid.stages,) if grid.sizes[grid.stages] == 2 else (grid.ends,)

    def tied(steps: tuple[ChainStep, ...]) -> tuple[ChainStep, ...]:
        return tuple(
            replace(s, kind="tied_reduce", axes=(grid.stages,)) if (s.kind, s.op, s.axes) == ("all_reduce", "sum", ends) else s
            for s in steps
        )

    chain = replace(part.chain, inner=tied(part.chain.inner), outer=tied(part.chain.outer))
    return replace(part, chain=chain, tied=bool(chain.axes("tied_reduce")))


def _over_stages(part: ParameterSet, grid: Grid) -> list[str]:
    """What is wrong with gradients that are reduced over stages in any other way."""
    axes = {axis for kind in ("all_reduce", "reduce_scatter") for axis in part.chain.axes(kind)}
    return ["gradients are reduced over stages, which have other parameters"] if axes & {grid.stages, grid.ends} else []


def _equal(stages: Sequence[Mapping[int, Recording]], plans: Sequence[StepPlan]) -> Iterator[str]:
    """What is wrong with parameters of two stages: copies of one are tied, and no others are."""
    held = [[(stage[0].states[i], part.tied) for part in p.parts for i in part.states] for stage, p in zip(stages, plans, strict=True)]
    for one, other in combinations(range(len(stages)), 2):
        ends = (one, other) == (0, len(stages) - 1)
        for a, tied in held[one]:
            same = [b for b, _ in held[other] if b.used == a.used and not a.constant]
            if same and not (ends and tied):
                yield (
                    f"`{a.name}` of stage {one} and `{same[0].name}` of stage {other} begin with the same values: if they are one"
                    " parameter, their gradients have to be added up; if they are not, let them begin with others"
                )
    for first, last in ((stages[0][k], stages[-1][k]) for k in stages[0]):
        if _added(first, last.rank) != _added(last, first.rank):
            yield "gradients of the first stage and of the last are added up, of parameters that do not begin with the same values"


def _added(recording: Recording, other: int) -> list[list[str]]:
    """What the parameters begin with of which gradients are reduced together with another rank."""
    events = [e for e in recording.events if e.kind == "all_reduce" and e.states and e.phase != "setup" and other in e.group]
    return [sorted(recording.states[i].used for i in e.states) for e in events]


def _beyond(plan: StepPlan) -> list[str]:
    """What a stage does that is not said of a pipeline."""
    found = {
        "parameters that are gathered": plan.gathers.axes,
        "layers that are split": plan.layers,
        "experts": plan.experts,
        "statistics of a batch": plan.statistics,
    }
    return [f"{what} in stages of a pipeline cannot be said" for what, there in found.items() if there]


def _treatments(parts: Sequence[ParameterSet]) -> list[object]:
    return sorted((_treatment(part) for part in parts), key=str)


def _treatment(part: ParameterSet) -> tuple[object, ...]:
    """What is done to a part's gradients and parameters, whichever these are."""
    return replace(part.chain, clip=None), part.norm, part.chain.clip is None, part.split, part.final
