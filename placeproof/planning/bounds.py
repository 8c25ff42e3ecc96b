"""How long a step takes at least, and what a device holds at least, at many points at once.

Amounts are those of a derivation. What is bounded is how a schedule puts passes together where stages differ, and what devices with several
runs of layers keep: everything else is exact up to rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from placeproof.cost.model.passes import StageTime
from placeproof.cost.model.time import together
from placeproof.planning.arrays import Array
from placeproof.planning.space import Flow
from placeproof.planning.tables import ExchangeTimes, FloatPrice, PartAmounts, Points, Stages, StateAmounts, States
from placeproof.planning.task import Task
from placeproof.schedules import forms, formulas, load


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The least ``seconds`` of a step, bytes of tensors on its fullest device beyond the ``room`` that there is for them, and the most
    bytes of tensors on a device (``peak``)."""

    seconds: Array
    beyond: Array
    peak: Array


@dataclass(frozen=True, kw_only=True)
class StageKind:
    """Stages that are alike, at many points: the first and the last of them by number, how often it has each part, and its place in a
    derivation. ``there``: whether there are some; where there are none, the last one comes before the first."""

    first: Array
    last: Array
    times: Mapping[str, Array]
    number: int
    there: Array


def stage_kinds(of: Stages, points: Points) -> tuple[StageKind, ...]:
    """The stages of pipelines at some points, in order; as many everywhere where stages are told one by one."""
    count = points.pp
    at = points.at({**{name: points.number(n) for name, n in of.linked.values.items()}, **dict.fromkeys(("N", "N_pp"), count)})
    ranges: list[tuple[Array, Array]] = [(i, i) for i in range(len(of.stages))]
    if len(of.stages) > 1 and of.stages[-1].index is None:  # three stand for all
        ranges = [(0, 0), (1, count - 2), (count - 1, count - 1)]
    kinds = []
    for number, (stage, (first, last)) in enumerate(zip(of.stages, ranges, strict=True)):
        times = {part.name: at(n) for part, n in stage.held}
        own = {name: n for name, n in times.items() if np.any(n)}
        there = np.broadcast_to(first <= last, (len(points),))
        kinds.append(StageKind(first=first, last=last, times=own, number=number, there=there))
    return tuple(kinds)


def misfits(flow: Flow, kinds: Sequence[StageKind], repeated: Collection[str], points: Points) -> Iterator[tuple[str, Array]]:
    """Rules of a pipeline, and at which points they are broken: layers that are not the same number in each run, and what a schedule needs.
    ``repeated``: the parts that are layers."""
    layers = sum(n * (kind.last - kind.first + 1) for kind in kinds for name, n in kind.times.items() if name in repeated)
    yield "layers % (pp * chunks)", np.mod(np.round(layers), points.pp * flow.of_copy) != 0
    asked = [need.rule for need in load(flow.schedule).needs]
    if asked:
        holds = [rule.value({"p": points.pp, "m": points.m, "v": flow.chunks}) for rule in asked]
        yield f"{flow.schedule} needs {' and '.join(rule.text for rule in asked)}", 1 - reduce(np.minimum, holds) == 1


def communicators(axes: Sequence[str], kind: StageKind, parts: Mapping[str, PartAmounts], held: StateAmounts) -> int:
    """How many a device of a kind has, where several devices are along ``axes``: one for each group that it exchanges with, and that over
    axes of which one has several devices is that over this one."""
    over = held.axes.union(*(parts[name].axes for name in kind.times)) | ({("pp",)} if "pp" in axes else set())
    return len({frozenset(one) & {*axes} for one in over} - {frozenset()})


@dataclass(frozen=True, kw_only=True)
class StageAmounts:
    """What the blocks of a stage take for one micro-batch, all of its parts together; ``inner``: kept by its layers alone, if all
    were of the kind that keeps least; ``behind``: by what is behind them."""

    computing: tuple[Array, Array, Array, Array]
    inside: tuple[Array, Array]
    launches: tuple[Array, Array]
    kept: Array
    late: Array
    inner: Array
    inner_late: Array
    behind: Array
    working: Array


def stage_amounts(kind: StageKind, parts: Mapping[str, PartAmounts], repeated: frozenset[str]) -> StageAmounts:
    """The parts of a stage together."""
    own = [(parts[name], n) for name, n in kind.times.items()]
    inner = [(parts[name], n) for name, n in kind.times.items() if name in repeated]

    last = max((i for i, name in enumerate(kind.times) if name in repeated), default=-1)

    def of(field: str, index: int) -> Array:
        return sum(n * getattr(part, field)[index] for part, n in own)

    return StageAmounts(
        computing=(of("computing", 0), of("computing", 1), of("computing", 2), of("computing", 3)),
        inside=(of("inside", 0), of("inside", 1)),
        launches=(of("launches", 0), of("launches", 1)),
        kept=sum(n * part.kept for part, n in own),
        late=sum(n * part.late for part, n in own),
        inner=sum(n for _, n in inner) * reduce(np.minimum, [parts[name].kept for name in repeated], np.inf) if inner else 0.0,
        inner_late=sum(n for _, n in inner) * reduce(np.minimum, [parts[name].late for name in repeated], np.inf) if inner else 0.0,
        behind=sum(n * part.kept for part, n in own[last + 1 :]),
        working=reduce(np.maximum, [part.working for part, _ in own], 0.0),
    )


def message_seconds(states: States, task: Task, points: Points, groups: ExchangeTimes) -> Array:
    """Seconds of a message between stages, 0 without any."""
    values = points.beside(states.linked.values, task.rates.values)
    price, longest, at = FloatPrice(task.rates, points.number), 0.0 * points.pp, points.at(values)
    for sent in states.messages:
        seconds = groups.seconds("send", sent.axes, at(sent.size))
        longest = np.maximum(longest, seconds + price.launch(seconds > 0) if price.by_kernels else seconds)
    return longest


def activations(flow: Flow, chunks: Array, kind: StageKind, amounts: StageAmounts, points: Points, *, piped: bool) -> Array:
    """Bytes of activations on the fullest device of a kind, at least."""
    if not piped:
        return amounts.kept
    schedule, alone = load(flow.schedule), flow.chunks == 1
    kept, late = (amounts.kept, amounts.late) if alone else (amounts.inner, amounts.inner_late)
    of_run = {"M_B": kept * schedule.copies / chunks, "M_W": late * schedule.copies / chunks}
    at = points.at({"p": points.pp, "m": points.m, "v": chunks, "d": kind.first, **of_run})
    least = reduce(np.minimum, map(at, formulas(schedule, "peak")))
    for relation in (relation.sympy() for form in forms(schedule, "peak") for relation in form.when if "m" in relation.names):
        few = at(relation.lhs - relation.rhs) < 0  # micro-batches: of one at least all is kept
        least = np.where(few, np.minimum(least, kept * schedule.copies), least)
    return least


def passes(
    flow: Flow, chunks: Array, kinds: Sequence[StageKind], times: Sequence[StageTime], points: Points, send: Array, *, piped: bool,
    alike: bool,
) -> Array:  # fmt: skip
    """Seconds that a schedule takes for the passes of all stages, at least.

    A device does all of its own work; before its first pass a micro-batch goes through the stages in front, and behind its last backward
    pass that micro-batch's gradient goes back through them. Where gradients by weights are passes of their own, they may come after that.
    """
    m, coupled = points.m, not piped or not load(flow.schedule).split
    each = [time.passes for time in times]
    if flow.chunks > 1:  # of a run of layers: no more than its share of the stage that takes the least
        columns = [[np.where(kind.there, t, np.inf) for kind, t in zip(kinds, column, strict=True)] for column in zip(*each, strict=True)]
        single = load(flow.schedule).copies == 1  # micro-batches come to devices of two copies from both sides
        send = send * single
        least_of = [reduce(np.minimum, column) / chunks * (alike and single) for column in columns]
        lead = [least_of] * len(each)
    else:
        lead = [[*own] for own in each]
    forth: Array = 0.0
    back: Array = 0.0
    least: Array = 0.0
    to_end: Array = sum(
        (kind.last - kind.first + 1) * (f + b + (w if coupled else 0.0)) for kind, (f, b, w) in zip(kinds, lead, strict=True)
    )
    for kind, (forward, inputs, weights), (f, b, w) in zip(kinds, each, lead, strict=True):
        behind = kind.last - kind.first  # stages of this kind in front of its last one
        mine = b + w if coupled else b
        there, home = forth + behind * (f + send), back + behind * (mine + send)
        every = m * (forward + inputs + weights)
        own = there + every + home if coupled else there + np.maximum(every, m * (forward + inputs) + home)
        own = np.maximum(own, every)
        if flow.chunks == 1 and piped:
            turn = to_end + 2 * send * (points.pp - 1 - kind.first)
            own = np.maximum(own, forth + np.ceil(m / _at_once(flow, kind, points)) * turn + back)
        to_end = to_end - (behind + 1) * (f + mine)
        least = np.maximum(least, np.where(kind.there, own, 0.0))
        forth, back = there + f + send, home + mine + send
    return least


def _at_once(flow: Flow, kind: StageKind, points: Points) -> Array:
    """Micro-batches between their forward and their backward pass on the first device of a kind, at most."""
    values = {"p": points.pp, "m": points.m, "v": 1, "d": kind.first, "M_B": 1.0, "M_W": 0.0}
    return np.maximum(1.0, reduce(np.maximum, map(points.at(values), formulas(load(flow.schedule), "peak"))))


def bounds(
    task: Task, flow: Flow, kinds: Sequence[StageKind], amounts: Sequence[StageAmounts], held: Sequence[StateAmounts], points: Points,
    send: Array, rooms: Sequence[Any], *, piped: bool, alike: bool, chunks: Array = None,
) -> Bounds:  # fmt: skip
    """What a step takes and a device holds at least at some points, which are ``piped`` if they have several stages; ``alike``: whether
    all layers are; ``send``: seconds of a message; ``rooms``: bytes that tensors may take on a device of each kind; ``chunks``: runs of
    layers on a device, where points have other numbers of several."""
    chunks = flow.chunks if chunks is None else chunks
    times, beyond, peak = [], np.full(len(points), -np.inf), np.zeros(len(points))
    launches = task.rates.by_kernels
    for kind, of_blocks, of_states, room in zip(kinds, amounts, held, rooms, strict=True):
        exchanged = {"inside": of_blocks.inside, "data": of_states.data, "once": of_states.once}
        started = of_blocks.launches if launches else None
        times.append(together(of_blocks.computing, started, exchanged, of_states.update, send, np.maximum, task.overlap))
        # what is behind the layers is gone when a layer is computed again, where a device has one stage
        again = of_blocks.working if flow.chunks > 1 else np.maximum(0.0, of_blocks.working - of_blocks.behind)
        if task.run_by is not None and flow.chunks == 1:  # no moment is looked at: that at which backward comes to the last layer is one
            again = -of_blocks.behind
        in_passes = activations(flow, chunks, kind, of_blocks, points, piped=piped) + of_states.transient + again
        own = of_states.held + np.maximum(in_passes, of_states.updating)
        beyond = np.maximum(beyond, np.where(kind.there, own - room, -np.inf))
        peak = np.maximum(peak, np.where(kind.there, own, 0.0))
    tails = (np.where(kind.there, t.tail, 0.0) for kind, t in zip(kinds, times, strict=True))
    seconds = passes(flow, chunks, kinds, times, points, send, piped=piped, alike=alike) + reduce(np.maximum, tails)
    return Bounds(seconds=np.broadcast_to(seconds, (len(points),)), beyond=beyond, peak=peak)
