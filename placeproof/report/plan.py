"""Plans as a document: the schema ``placeproof.plan/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from placeproof.cost.model.process import process_memory
from placeproof.cost.model.time import OVERLAP
from placeproof.planning.exact import Placed, Plan
from placeproof.planning.reasons import Beside, Reason, terms
from placeproof.planning.search import Outcome
from placeproof.planning.space import AXES, SHARING, Space
from placeproof.planning.task import Task
from placeproof.report.document import Document, Lines, Notes, Section, Table, section
from placeproof.report.units import giga, percent, seconds_text

SCHEMA = "placeproof.plan/1"
#: Plans whose times differ by less are told as equally good: a model of time is no better than that.
ALIKE = Fraction(2, 100)
#: Of a plan whose proof was interrupted.
UNASKED = "not proved yet"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is told: the best plans, and what became of the other points of the grid. ``verdicts``: by the strategy of a plan, with open
    degrees. ``reasons``: why nothing fits. ``besides``: strategies that were asked about."""

    task: Task
    space: Space
    outcome: Outcome
    verdicts: Mapping[str, str]
    reasons: Sequence[Reason] = ()
    besides: Sequence[Beside] = ()


def document(found: Found) -> Document:
    """All of it."""
    task = found.task
    return Document(name=f"{task.model.name} on {task.devices} devices", sections=lambda: _sections(found), data=lambda: _data(found))


def _sections(found: Found) -> Iterator[Section]:
    task, outcome, verdicts = found.task, found.outcome, found.verdicts
    length = task.model.sizes.get("s")
    of = f"{task.batch:,} sequences" + (f" of {length:,} tokens" if length else "")
    title = f"{task.model.name} on {task.devices:,} devices of {task.cluster.name}, {of} a step"
    if not outcome.complete:
        yield section("interrupted", Notes([_so_far(outcome)]))
    if not outcome.plans and outcome.complete:
        yield section(f"{title}: nothing fits", Lines([*_least(outcome)]))
        if found.reasons:
            rows = [(reason.of, _instead(reason)) for reason in found.reasons]
            yield section("without any one of these something fits", Table(rows, ("reason", "what fits without it")))
    elif outcome.plans:
        best = outcome.plans[0]
        yield section(f"{title}: {seconds_text(best.seconds)}", Lines([*_best(task, best, verdicts)]))
        yield _table(task, outcome)
        yield section("strategies", Table([*_strategies(outcome, verdicts)], ("", "verdict", "strategy"), (0,)))
        yield _times(outcome)
    for one in found.besides:
        yield _beside(found, one)
    yield _grid(found.space, outcome)
    yield section("what is taken for granted", Notes(_granted(task), items=True))


def _so_far(outcome: Outcome) -> str:
    if outcome.plans:
        return "these are the best placements so far: they fit, and better ones may be there"
    return "no placement is worked out so far"


def _least(outcome: Outcome) -> Iterator[str]:
    if (plan := outcome.least) is None:
        yield "no point of the grid keeps all rules"
    elif plan.fits:
        yield f"what fits is not proved, {plan.expression} for example"
    else:
        yield f"the least that a device needs for tensors is {giga(plan.peak)} GB, and there are {giga(plan.room)} GB for them:"
        yield in_words(plan)


def in_words(plan: Placed) -> str:
    """All that was chosen."""
    return f"{plan.expression}, {numbers_of(plan)}"


def numbers_of(plan: Placed) -> str:
    """What was chosen besides the strategy."""
    return f"b = {plan.b}, m = {plan.m}, recompute {plan.recompute}" + (", fp8" if plan.fp8 else "")


def _instead(reason: Reason) -> str:
    plan = reason.plan
    if plan is None:
        return "nothing that was tried"
    if not plan.fits:
        return f"tensors of {giga(plan.peak)} GB, in place of {giga(plan.room)} GB: {in_words(plan)}"
    devices = f"{reason.devices:,} devices: " if reason.of.endswith(" devices") else ""
    return f"{devices}{in_words(plan)}"


def _beside(found: Found, one: Beside) -> Section:
    """Where a strategy stands that was asked about, and what it loses against the best plan, term by term."""
    plan, title = one.plan, f"why not {one.strategy}"
    if plan is None:
        return section(title, Lines(["it cannot be:"]), Notes(one.because, items=True))
    told = [f"at its best: {numbers_of(plan)}: {seconds_text(plan.seconds)}"]
    told.append(f"tensors take {giga(plan.peak)} of {giga(plan.room)} GB" + ("" if plan.fits else ": it does not fit"))
    if not found.outcome.plans:
        return section(title, Lines(told))
    best = found.outcome.plans[0]
    more = plan.seconds / best.seconds - 1
    if more >= 0:
        told.append(f"{percent(more)} longer than the best plan; the differences, term by term:")
    else:
        told.append(f"{percent(-more)} shorter than the best plan that fits; the differences, term by term:")
    own, others = terms(plan), terms(best)
    rows = [
        (name, *(f"{float(n):.4g}" for n in (own[name], others[name], own[name] - others[name])))
        for name in own
        if own[name] or others[name]
    ]
    return section(title, Lines(told), Table(rows, ("seconds of a step", "this", "best", "more"), (1, 2, 3)))


def _best(task: Task, plan: Plan, verdicts: Mapping[str, str]) -> Iterator[str]:
    point = plan.point
    yield f"{plan.expression}, b = {plan.b}, m = {plan.m}, recompute {plan.recompute}: {verdicts.get(point.structure, UNASKED)}"
    speed = f"{float(_speed(task, plan)):,.0f} tokens a second and device, " if task.model.sizes.get("s") else ""
    yield f"{speed}MFU {percent(plan.step.utilisation[0])}; tensors take {giga(plan.peak)} of {giga(plan.room)} GB"


def _speed(task: Task, plan: Placed) -> Fraction:
    return task.batch * task.model.sizes["s"] / plan.seconds / task.devices


def _table(task: Task, outcome: Outcome) -> Section:
    first = outcome.plans[0].seconds
    axes = [axis for axis in AXES if any(getattr(plan.point.mesh, axis) > 1 for plan in outcome.plans)]
    several = len({plan.fp8 for plan in outcome.plans}) > 1
    rows = []
    for number, plan in enumerate(outcome.plans, 1):
        point, option = plan.point, plan.point.option
        rows.append(
            (
                str(number),
                option.data if any(getattr(point.mesh, axis) > 1 for axis in SHARING) else "",
                *(str(getattr(point.mesh, axis)) for axis in axes),
                str(point.b),
                str(point.m),
                option.recompute,
                *([{True: "yes", False: "no"}[plan.fp8]] if several else []),
                seconds_text(plan.seconds),
                percent(plan.seconds / first - 1) if number > 1 else "",
                f"{float(100 * plan.step.utilisation[0]):.1f}",
                giga(plan.peak),
                {True: "yes", False: "no", None: "?"}[fits(plan)],
            )
        )
    head = ("", "data", *axes, "b", "m", "recompute", *(["fp8"] if several else []), "step", "more", "MFU %", "GB", "fits")
    alike = sum(plan.seconds <= first * (1 + ALIKE) for plan in outcome.plans)
    notes = [f"GB: tensors of the fullest device; there are {giga(outcome.plans[0].room)} GB for them"]
    if task.reserve is None and task.cluster.device.architecture:
        notes[0] += " beside libraries and what allocators usually reserve"
        notes.append("fits: yes, also with all that was ever seen reserved; ?: with what is usual")
    if alike > 1:
        notes.append(f"the first {alike} are within {percent(ALIKE)}: no model of time tells them apart")
    numbers = [i for i, name in enumerate(head) if name not in ("data", "recompute", "fp8", "fits")]
    return section("plans", Table(rows, head, numbers), Notes(notes))


def fits(plan: Placed) -> bool | None:
    """Whether a plan's fullest device holds it, by the ranges of what else is there; None where these cannot tell."""
    every = [process_memory(plan.step, cost).fits for cost in plan.step.d.costs]
    return False if False in every else None if None in every else True


def _strategies(outcome: Outcome, verdicts: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for number, plan in enumerate(outcome.plans, 1):
        yield str(number), verdicts.get(plan.point.structure, UNASKED), plan.expression


def _times(outcome: Outcome) -> Section:
    """What each plan's time is made of."""
    every = [shares(plan) for plan in outcome.plans]
    shown = [name for name in every[0] if any(each[name] >= Fraction(1, 2000) for each in every)]
    rows = [(str(number), *(f"{float(100 * each[name]):.1f}" for name in shown)) for number, each in enumerate(every, 1)]
    title = "what the time is, in % of a step: of its slowest stage"
    return section(title, Table(rows, ("", *shown), range(len(shown) + 1)))


def shares(plan: Placed) -> dict[str, Fraction]:
    """What a step's time is, as shares."""
    return {name: n / plan.seconds for name, n in terms(plan).items()}


def _grid(space: Space, outcome: Outcome) -> Section:
    rows = [(f"{n:,}", rule) for rule, n in sorted(outcome.cut.items(), key=lambda item: -item[1])]
    others = (outcome.bounded, "cannot be among these plans: their steps take longer at least"), (len(outcome.plans), "plans")
    rows += [(f"{n:,}", what) for n, what in others if n]
    counts = ((len(space.meshes), "mesh", "meshes"), (len(space.b), "size of a micro-batch", "sizes of a micro-batch"))
    options = ", ".join(f"{n:,} {one if n == 1 else more}" for n, one, more in counts) + f", {space.options:,} options of each"
    title = f"a grid of {space.size:,} points"
    if not outcome.complete:
        return section(title, Lines([options]))
    return section(title, Lines([options]), Table(rows, ("points", "what became of them"), (0,)))


def _granted(task: Task) -> list[str]:
    rates = task.rates
    of = f"{task.cluster.name}: {rates.format}, "
    if rates.by_kernels:
        how = "time is counted by kernels, as the cluster says what these reach"
    else:
        how = f"products of matrices run at {percent(rates.values['eta'])} of the peak, and nothing else takes time in a pass"
    said = [of + how, f"overlap {task.overlap}: {OVERLAP[task.overlap]}"]
    if task.run_by is not None:
        said.append(f"memory as {task.run_by.name} runs the blocks")
    return said


def _data(found: Found) -> dict[str, Any]:
    task, space, outcome, verdicts = found.task, found.space, found.outcome, found.verdicts
    return {
        "schema": SCHEMA,
        "model": task.model.name,
        "cluster": task.cluster.name,
        "devices": task.devices,
        "batch": task.batch,
        "grid": {
            "points": space.size,
            "meshes": len(space.meshes),
            "b": list(space.b),
            "data": list(space.data),
            "sp": list(space.sp),
            "attention": list(space.attention),
            "recompute": list(space.recompute),
            "fp8": list(space.fp8),
            "schedule": [flow.text for flow in space.flows],
        },
        "complete": outcome.complete,
        "cut": outcome.cut,
        "bounded": outcome.bounded,
        "derived": outcome.asked,
        "plans": [_plan(task, plan, verdicts) for plan in outcome.plans],
        "least": None if outcome.plans or outcome.least is None else _plan(task, outcome.least, verdicts),
        "reasons": [
            {"reason": one.of, "devices": one.devices, "plan": None if one.plan is None else _placed(task, one.plan)}
            for one in found.reasons
        ],
        "besides": [
            {"strategy": one.strategy, "because": list(one.because), "plan": None if one.plan is None else _placed(task, one.plan)}
            for one in found.besides
        ],
    }


def _plan(task: Task, plan: Plan, verdicts: Mapping[str, str]) -> dict[str, Any]:
    degrees = {axis: getattr(plan.point.mesh, axis) for axis in AXES}
    return {**_placed(task, plan), "verdict": verdicts.get(plan.point.structure), "degrees": degrees}


def _placed(task: Task, plan: Placed) -> dict[str, Any]:
    return {
        "strategy": plan.expression,
        "b": plan.b,
        "m": plan.m,
        "recompute": plan.recompute,
        "fp8": plan.fp8,
        "seconds": plan.seconds,
        "tokens": _speed(task, plan) if task.model.sizes.get("s") else None,
        "mfu": plan.step.utilisation[0],
        "peak": plan.peak,
        "room": plan.room,
        "fits": fits(plan),
        "time": shares(plan),
    }
