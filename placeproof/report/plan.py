"""Plans as a document: the schema ``placeproof.plan/1``, and its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log
from typing import Any

from placeproof.core.precision import OPEN, PRECISIONS
from placeproof.cost.model.time import OVERLAP
from placeproof.planning.bounding import NEAREST, SAME
from placeproof.planning.exact import Placed, Plan
from placeproof.planning.frontier import Frontier
from placeproof.planning.objective import OBJECTIVES, Objective
from placeproof.planning.reasons import Beside, Near, Reason
from placeproof.planning.search import Outcome
from placeproof.planning.space import AXES, SHARING, Space
from placeproof.planning.task import Task
from placeproof.planning.uneven import Uneven
from placeproof.report import stages
from placeproof.report.document import Code, Document, Lines, Notes, Section, Table, section
from placeproof.report.models.fit import fullest, in_all
from placeproof.report.placed import FITS, fits, in_words, order_of, placed_data, plan_data, shares, speed
from placeproof.report.units import figure, giga, percent, seconds_text
from placeproof.runs import KnownTimes, RunSet, timed_on

SCHEMA = "placeproof.plan/1"
#: Plans whose times differ by less are told as equally good: a model of time is no better than that.
ALIKE = Fraction(2, 100)
#: Of a plan whose proof was interrupted.
UNASKED = "not proved yet"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is told: the best plans, and what became of the other points of the grid. ``verdicts``: by the strategy of a plan, with open
    degrees. ``reasons``: why nothing fits. ``besides``: strategies that were asked about. ``frontier``: plans that nothing beats, if
    they are asked for. ``uneven``: the best layers of stages. ``near``: where no point keeps all rules, with how many sequences or devices
    some do."""

    task: Task
    space: Space
    outcome: Outcome
    verdicts: Mapping[str, str]
    reasons: Sequence[Reason] = ()
    besides: Sequence[Beside] = ()
    frontier: Frontier | None = None
    uneven: Sequence[Uneven] = ()
    near: Near | None = None

    @property
    def plans(self) -> Sequence[Plan]:
        """The best ones."""
        return self.outcome.plans


def document(found: Found) -> Document:
    """All of it."""
    task = found.task
    return Document(name=f"{task.model.name} on {task.devices_text}", sections=lambda: _sections(found), data=lambda: _data(found))


def _sections(found: Found) -> Iterator[Section]:
    task, outcome, verdicts = found.task, found.outcome, found.verdicts
    length = task.model.sizes.get("s")
    of = f"{task.batch:,} sequences" + (f" of {length:,} tokens" if length else "")
    title = f"{task.model.name} on {task.devices_text} of {task.cluster.name}, {of} a step"
    if not outcome.complete:
        yield section("interrupted", Notes([_so_far(outcome)]))
    better = min((one.best for one in found.uneven if one.best is not None), key=lambda best: best.seconds, default=None)
    if not outcome.plans and outcome.complete:
        fitting = "nothing fits" + (
            "" if better is None else f" with as many layers in each stage, otherwise {seconds_text(better.seconds)}"
        )
        yield section(f"{title}: {fitting}", Lines([*_least(found), *_near(found)]), detail="answer")
        if found.reasons:
            rows = [(reason.of, _instead(reason)) for reason in found.reasons]
            yield section("without any one of these something fits", Table(rows, ("reason", "what fits without it")))
    elif outcome.plans:
        best = outcome.plans[0]
        reached = f"{giga(best.most)} GB of tensors" if outcome.objective.memory else seconds_text(best.seconds)
        more = f", {seconds_text(better.seconds)} with other layers of stages" if better and better.seconds < best.seconds else ""
        reached += "" if fits(best) else ", may not fit"
        placed, *rest = *_best(task, best, verdicts), *_surely(outcome.plans)
        yield section(f"{title}: {reached}{more}", Lines([placed, *rest]), detail="answer", brief=f"{title}: {reached}{more} by {placed}")
        yield _table("plans", task, outcome.plans, outcome.objective)
        yield _strategies(outcome.plans, verdicts)
        yield _times(outcome)
    if found.frontier is not None and found.frontier.plans:
        plans = found.frontier.plans
        yield _table(f"nothing beats these {len(plans)} in both time and memory", task, plans, OBJECTIVES["time"])
        yield section("their steps in seconds, and the tensors of their fullest devices in GB", Code([*plot(plans)]))
        yield _strategies(plans, verdicts)
    yield from stages.sections(found)
    for one in found.besides:
        yield _beside(found, one)
    yield _grid(found.space, outcome)
    yield _goodness(task)
    yield section("what is taken for granted", Notes(_granted(found), items=True))


def _so_far(outcome: Outcome) -> str:
    if outcome.plans:
        return "these are the best placements so far: they fit, and better ones may be there"
    return "no placement is worked out so far"


def _least(found: Found) -> Iterator[str]:
    outcome = found.outcome
    if (plan := outcome.least) is None:
        none = f"none of the {NEAREST} points that are nearest to fitting can be derived"
        yield "no point of the grid keeps all rules" if outcome.least_of_all else none
    elif plan.fits:
        yield f"what fits is not proved, {plan.expression} for example"
    else:
        of = "" if outcome.least_of_all else f", of the {NEAREST} points that are nearest to fitting by their bounds,"
        yield f"the least that a device needs for tensors{of} is {giga(plan.peak)} GB, and there are {giga(plan.room)} GB for them:"
        yield in_words(plan)
        yield _widths(found.task)


def _near(found: Found) -> Iterator[str]:
    """Which rule cuts most, and what keeps all of them."""
    broken = {rule: n for rule, n in found.outcome.cut.items() if rule != SAME}
    if found.near is None or not broken:
        return
    rule, most = max(broken.items(), key=lambda item: item[1])
    yield f"`{rule}` leaves out most: {most:,} of {found.space.size:,}"
    said = [(found.near.sequences, "with {} sequences a step"), (found.near.devices, "on {} devices")]
    if texts := [text.format(" or ".join(f"{n:,}" for n in numbers)) for numbers, text in said if numbers]:
        yield f"some point keeps all rules {', or '.join(texts)}"


def _instead(reason: Reason) -> str:
    plan = reason.plan
    if plan is None:
        return "nothing that was tried"
    if not plan.fits:
        return f"tensors of {giga(plan.peak)} GB, in place of {giga(plan.room)} GB: {in_words(plan)}"
    devices = f"{reason.devices:,} devices: " if reason.of.endswith((" device", " devices")) else ""
    return f"{devices}{in_words(plan)}"


def _beside(found: Found, one: Beside) -> Section:
    """Where a strategy stands that was asked about, and what it loses against the best plan, term by term."""
    plan, title = one.plan, f"why not {one.strategy}"
    if plan is None:
        return section(title, Lines(["it cannot be:"]), Notes(one.because, items=True))
    told = [f"at its best: {in_words(plan)}: {seconds_text(plan.seconds)}"]
    told.append(f"tensors take {giga(plan.peak)} of {giga(plan.room)} GB" + ("" if plan.fits else ": it does not fit"))
    if not found.outcome.plans:
        return section(title, Lines(told))
    best = found.outcome.plans[0]
    more = plan.seconds / best.seconds - 1
    if more >= 0:
        told.append(f"{percent(more)} longer than the best plan; the differences, term by term:")
    else:
        told.append(f"{percent(-more)} shorter than the best plan that fits; the differences, term by term:")
    own, others = plan.step.terms, best.step.terms
    rows = [
        (name, *(f"{float(n):.4g}" for n in (own[name], others[name], own[name] - others[name])))
        for name in own
        if own[name] or others[name]
    ]
    return section(title, Lines(told), Table(rows, ("seconds of a step", "this", "best", "more"), (1, 2, 3)))


def _best(task: Task, plan: Plan, verdicts: Mapping[str, str]) -> Iterator[str]:
    point = plan.point
    placed = f"{plan.expression}, b = {plan.b}, m = {plan.m}, recompute {plan.recompute}{order_of(plan)}"
    yield f"{placed}: {verdicts.get(point.structure, UNASKED)}"
    tokens = f"{float(speed(task, plan)):,.0f} tokens a second and device, " if task.model.sizes.get("s") else ""
    yield f"{tokens}MFU {percent(plan.step.utilisation[0])}; tensors take {giga(plan.peak)} of {giga(plan.room)} GB"
    yield _widths(task)


def _widths(task: Task) -> str:
    """How many bytes states have: they decide what fits, and so which plan is the best."""
    values = task.values
    set_ = [name for name, width in PRECISIONS[task.precision].values().items() if values[name] != width] if task.precision != OPEN else []
    whose = ("widths" if task.precision == OPEN else task.precision) + (f" but for {' and '.join(set_)}" if set_ else "")
    widths = " + ".join(figure(values[name]) for name in ("b_theta", "b_g", "b_omega"))
    return f"{whose}: {widths} bytes for weight, gradient and optimizer state of each parameter; `--precision` changes them"


def _surely(plans: Sequence[Plan]) -> Iterator[str]:
    """How many of the plans surely fit, and the first that does."""
    sure = [number for number, plan in enumerate(plans, 1) if fits(plan)]
    these, many = (f"these {len(plans)}", "") if len(plans) > 1 else ("this one", "s")
    if len(sure) == len(plans):
        yield f"{these} surely fit{many}"
    elif not sure:
        none = f"{these} may not fit" if many else f"none of {these} surely fits"
        yield f"{none} (`?`); `--surely-fit` lists only what does"
    else:
        yield f"{len(sure)} of {these} surely fit{'s' if len(sure) == 1 else ''}, {len(plans) - len(sure)} may not (`?`)"
        if sure[0] > 1:
            first = plans[sure[0] - 1]
            yield f"the first that surely fits is number {sure[0]}, {seconds_text(first.seconds)}: {in_words(first)}"


#: What is chosen besides degrees and sizes -> what a plan has of it, empty where that is nothing. What all have alike is not shown.
_CHOICES: Mapping[str, Callable[[Plan], str]] = {
    "data": lambda plan: plan.point.option.data if any(getattr(plan.point.mesh, axis) > 1 for axis in SHARING) else "",
    "recompute": lambda plan: plan.recompute,
    "fp8": lambda plan: "yes" if plan.fp8 else "no",
    "schedule": lambda plan: plan.point.option.flow.text if plan.point.mesh.pp > 1 else "",
    "attention": lambda plan: plan.point.option.attention if plan.point.mesh.cp > 1 else "",
    "order": lambda plan: ",".join(plan.point.order or ()) or ("usual" if plan.point.mesh.pp > 1 else ""),
    "sp": lambda plan: ("yes" if plan.point.option.sp else "no") if plan.point.mesh.tp > 1 else "",
}


def _table(title: str, task: Task, plans: Sequence[Plan], objective: Objective) -> Section:
    """Plans in the order of an objective."""
    axes = [axis for axis in AXES if any(getattr(plan.point.mesh, axis) > 1 for plan in plans)]
    alike = _alike(plans, objective)
    choices = {name: told for name, of in _CHOICES.items() if len({*(told := [of(plan) for plan in plans])} - {""}) > 1}
    rows = []
    for number, plan in enumerate(plans, 1):
        rows.append(
            (
                str(number),
                *([str(plan.devices)] if task.fewer else []),
                *(str(getattr(plan.point.mesh, axis)) for axis in axes),
                str(plan.b),
                str(plan.m),
                *(told[number - 1] for told in choices.values()),
                seconds_text(plan.seconds),
                "" if number == 1 else "equal" if alike[number - 1] else percent(objective.value(plan) / objective.value(plans[0]) - 1),
                f"{float(100 * plan.step.utilisation[0]):.1f}",
                giga(plan.most),
                in_all(fullest(plan.step)),
                FITS[fits(plan)],
            )
        )
    head = ("", *(["devices"] if task.fewer else []), *axes, "b", "m", *choices, "step", "more", "MFU %", "GB", "in all", "fits")
    notes = [f"GB: tensors of the fullest device; there are {_rooms(plans)} GB for them"]
    if task.reserve is None and task.cluster.device.architecture:
        notes[0] += f" beside libraries and {'all that allocators were seen to' if task.surely else 'what allocators usually'} reserve"
        notes += [] if task.surely else ["fits: yes, also with all that was ever seen reserved; ?: with what is usual"]
    notes.append(f"in all: the least and the most GB with all else, of {giga(task.cluster.device.capacity)} of a device")
    if sum(alike) > 1:
        notes.append(f"equal: within {percent(ALIKE)} of the first one, which no model of time tells apart")
    numbers = [i for i, name in enumerate(head) if name not in (*_CHOICES, "fits")]
    return section(title, Table(rows, head, numbers), Notes(notes))


def _rooms(plans: Sequence[Plan]) -> str:
    """The room for tensors: another one where devices have more groups to exchange with."""
    return " to ".join(dict.fromkeys(giga(of(plan.room for plan in plans)) for of in (min, max)))


def _alike(plans: Sequence[Plan], objective: Objective) -> list[bool]:
    """Which plans a model of time does not tell from the first one, where it is what decides."""
    return [not objective.memory and objective.value(plan) <= objective.value(plans[0]) * (1 + ALIKE) for plan in plans]


#: Of a plot: columns and lines.
WIDTH, HEIGHT = 60, 16


def plot(plans: Sequence[Placed]) -> Iterator[str]:
    """A star for each plan: further up the longer its step, by its logarithm, and further to the right the more bytes its fullest device
    holds."""
    times, sizes = [log(plan.seconds) for plan in plans], [float(plan.most) for plan in plans]
    lines = [[" "] * (WIDTH + 1) for _ in range(HEIGHT + 1)]
    for time, size in zip(times, sizes, strict=True):
        lines[_place(time, times, HEIGHT)][_place(size, sizes, WIDTH)] = "*"
    ends = {n: seconds_text(plan.seconds) for n, plan in ((HEIGHT, max(plans, key=_seconds)), (0, min(plans, key=_seconds)))}
    margin = max(map(len, ends.values()))
    for number in reversed(range(HEIGHT + 1)):
        yield f"{ends.get(number, ''):>{margin}} |{''.join(lines[number])}".rstrip()
    least, most = (f"{giga(of(plan.most for plan in plans))} GB" for of in (min, max))
    yield f"{'':{margin}} +{'-' * (WIDTH + 1)}"
    yield f"{'':{margin}}  {least}{most:>{WIDTH + 1 - len(least)}}"


def _seconds(plan: Placed) -> Fraction:
    return plan.seconds


def _place(value: float, values: Sequence[float], cells: int) -> int:
    """The cell of a value between the least one, in cell 0, and the greatest one."""
    least, most = min(values), max(values)
    return round((value - least) / (most - least) * cells) if most > least else 0


def _strategies(plans: Sequence[Plan], verdicts: Mapping[str, str]) -> Section:
    rows = [(str(number), verdicts.get(plan.point.structure, UNASKED), plan.expression) for number, plan in enumerate(plans, 1)]
    return section("strategies", Table(rows, ("", "verdict", "strategy"), (0,)))


def _times(outcome: Outcome) -> Section:
    """What each plan's time is made of."""
    every = [shares(plan) for plan in outcome.plans]
    shown = [name for name in every[0] if any(each[name] >= Fraction(1, 2000) for each in every)]
    rows = [(str(number), *(f"{float(100 * each[name]):.1f}" for name in shown)) for number, each in enumerate(every, 1)]
    title = "what the time is, in % of a step: of its slowest stage"
    return section(title, Table(rows, ("", *shown), range(len(shown) + 1)))


def _grid(space: Space, outcome: Outcome) -> Section:
    rows = [(f"{n:,}", rule) for rule, n in sorted(outcome.cut.items(), key=lambda item: -item[1])]
    others = (outcome.bounded, f"cannot be among these plans: {outcome.objective.worse}"), (len(outcome.plans), "plans")
    rows += [(f"{n:,}", what) for n, what in others if n]
    counts = ((len(space.meshes), "mesh", "meshes"), (len(space.b), "size of a micro-batch", "sizes of a micro-batch"))
    options = ", ".join(f"{n:,} {one if n == 1 else more}" for n, one, more in counts) + f", {space.options:,} options of each"
    title = f"a grid of {space.size:,} points"
    if not outcome.complete:
        return section(title, Lines([options]))
    return section(title, Lines([options]), Table(rows, ("points", "what became of them"), (0,)))


def _known_times(task: Task) -> tuple[tuple[RunSet, KnownTimes], ...]:
    """Measured steps on the same devices, where the question is timed as they are."""
    return timed_on(task.cluster.device) if task.rates.by_kernels else ()


def _goodness(task: Task) -> Section:
    title = "how good times are, on measured steps of the same devices"
    rows = []
    for of, known in _known_times(task):
        ranked = (f"{float(known.rank_correlation):.3g}", percent(known.regret)) if known.rank_correlation else ("", "")
        rows.append((of.name, known.cluster, f"{known.steps:,}", percent(known.error), *ranked))
    if not rows:
        return section(title, Notes([f"nobody knows: no step was measured on {task.cluster.device.name} that is timed so"]))
    head = ("runs", "cluster", "steps", "error", *(("Spearman", "regret") if any(row[-1] for row in rows) else ()))
    notes = [f"error: on average, whatever the sign; `placeproof accuracy {rows[0][0]}`"]
    notes += ["Spearman: of the order of plans; regret: what the plan that is picked costs"] if len(head) > 4 else []
    return section(title, Table([row[: len(head)] for row in rows], head, range(2, len(head))), Notes(notes))


def _granted(found: Found) -> list[str]:
    task, rates = found.task, found.task.rates
    of = f"{task.cluster.name}: {rates.format}, "
    if rates.by_kernels:
        how = "time is counted by kernels, as the cluster says what these reach"
    else:
        how = f"products of matrices run at {percent(rates.values['eta'])} of the peak, and nothing else takes time in a pass"
    said = [of + how, f"overlap {task.overlap}: {OVERLAP[task.overlap]}"]
    if task.run_by is not None:
        said.append(f"memory as {task.run_by.name} runs the blocks")
    if any(cost.host != 0 for plan in found.outcome.plans for cost in plan.step.d.costs):
        said.append("what lies on a host: copies to it and back, and the update there, take no time")
    return said


def _data(found: Found) -> dict[str, Any]:
    task, outcome, verdicts = found.task, found.outcome, found.verdicts
    return {
        "schema": SCHEMA,
        "model": task.model.name,
        "cluster": task.cluster.name,
        "devices": list(task.counts),
        "batch": task.batch,
        "precision": task.precision,
        "grid": _grid_data(found.space),
        "complete": outcome.complete,
        "cut": outcome.cut,
        "bounded": outcome.bounded,
        "derived": outcome.asked,
        "objective": next(name for name, one in OBJECTIVES.items() if one is outcome.objective),
        "plans": _listed(task, outcome.plans, outcome.objective, verdicts),
        "frontier": None if (front := found.frontier) is None else _frontier(task, front, verdicts),
        "measured": [_measured_data(of.name, known) for of, known in _known_times(task)],
        "least": None if outcome.plans or outcome.least is None else plan_data(task, outcome.least, verdicts),
        "least_of_all": None if outcome.plans else outcome.least_of_all,
        "reasons": [
            {"reason": one.of, "devices": one.devices, "plan": None if one.plan is None else placed_data(task, one.plan)}
            for one in found.reasons
        ],
        "near": None if found.near is None else {"sequences": list(found.near.sequences), "devices": list(found.near.devices)},
        "besides": [
            {"strategy": one.strategy, "because": list(one.because), "plan": None if one.plan is None else placed_data(task, one.plan)}
            for one in found.besides
        ],
        "uneven": [stages.data(found, one) for one in found.uneven],
    }


def _grid_data(space: Space) -> dict[str, Any]:
    return {
        "points": space.size,
        "meshes": len(space.meshes),
        "b": list(space.b),
        "data": list(space.data),
        "sp": list(space.sp),
        "attention": list(space.attention),
        "recompute": list(space.recompute),
        "fp8": list(space.fp8),
        "schedule": [flow.text for flow in space.flows],
        "order": list(space.orders),
    }


def _measured_data(runs: str, known: KnownTimes) -> dict[str, Any]:
    return {
        "runs": runs,
        "cluster": known.cluster,
        "steps": known.steps,
        "error": known.error,
        "rank_correlation": known.rank_correlation or None,
        "regret": known.regret if known.rank_correlation else None,
    }


def _frontier(task: Task, front: Frontier, verdicts: Mapping[str, str]) -> dict[str, Any]:
    plans = _listed(task, front.plans, OBJECTIVES["time"], verdicts)
    return {"plans": plans, "beaten": front.beaten, "cut": front.cut, "derived": front.asked}


def _listed(task: Task, plans: Sequence[Plan], objective: Objective, verdicts: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{**plan_data(task, plan, verdicts), "equal": equal} for plan, equal in zip(plans, _alike(plans, objective), strict=True)]
