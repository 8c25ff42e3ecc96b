"""Why nothing fits, and why a strategy is not among the plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from placeproof.core.diagnostics import InputError, refuse
from placeproof.core.strategy import Strategy
from placeproof.planning.choices import Pins, space_of
from placeproof.planning.exact import Placed, Plan, worked_out
from placeproof.planning.search import Search
from placeproof.planning.space import AXES, COPIED, ORDERS, Space
from placeproof.planning.structures import Derived
from placeproof.planning.task import Task
from placeproof.strategies import parse_strategy

#: So many numbers of devices are tried below and above, where no point keeps all rules.
MOST_NEAR = 64
#: How often more devices are tried: twice as many each time.
DOUBLED = 6


@dataclass(frozen=True, kw_only=True)
class Reason:
    """One of the reasons why nothing fits, without which something would. ``of``: what it is; ``plan``: of what fits without it, or, of the
    memory of a device, what needs the least; None where nothing was found. ``devices``: how many that takes."""

    of: str
    plan: Plan | None
    devices: int


@dataclass(frozen=True, kw_only=True)
class Relaxed:
    """A question with some of its reasons left out: ``pins`` that are left; ``more``: whether there may be more devices."""

    pins: Pins
    more: bool = False


def reasons(task: Task, pins: Pins, known: Derived | None = None) -> tuple[Reason, ...]:
    """A minimal set of reasons why nothing fits: without any one of them something does, or would in a device with more memory. Where no
    point keeps all rules, and more devices do not help, there is none."""
    known = known or Derived()
    names = [*pins.given, task.devices_text]
    kept = list(names)
    for name in names:  # what can be left out, is, as long as nothing fits without it
        without = [other for other in kept if other != name]
        if _fitting(task, _left(pins, names, without), known) is None:
            kept = without
    found = [Reason(of=name, plan=plan, devices=n) for name in kept for plan, n in [_relaxed(task, pins, names, kept, name, known)]]
    try:
        least = _search(task, _left(pins, names, kept), known).least()
    except InputError:  # what is left of the pins leaves a grid that has no point
        least = None
    return (*([] if least is None else [Reason(of="the memory of a device", plan=least, devices=least.devices)]), *found)


def _left(pins: Pins, names: Sequence[str], kept: Sequence[str]) -> Relaxed:
    """What is asked with these reasons alone."""
    return Relaxed(pins=pins.left(kept), more=names[-1] not in kept)


def _relaxed(task: Task, pins: Pins, names: Sequence[str], kept: Sequence[str], name: str, known: Derived) -> tuple[Plan | None, int]:
    found = _fitting(task, _left(pins, names, [other for other in kept if other != name]), known)
    return (None, task.devices) if found is None else found


def _fitting(task: Task, asked: Relaxed, known: Derived) -> tuple[Plan, int] | None:
    """What fits, and on how many devices: of as many as there are, and where there may be more, of twice as many, and so on."""
    joined = task.cluster.levels[-1].joins
    for devices in (n << doubled for doubled in range(1 + DOUBLED * asked.more) for n in task.counts):
        if joined is not None and devices > joined:
            continue
        try:
            found = _search(replace(task, devices=devices, fewer=()), asked, known).fitting()
        except InputError:  # a grid that has no point
            continue
        if found is not None:
            return found, devices
    return None


def _search(task: Task, asked: Relaxed, known: Derived) -> Search:
    search = Search(task, space_of(task.model, task.counts, task.batch, asked.pins, task.joined, fp8=task.fp8), known)
    search.bound()
    return search


@dataclass(frozen=True, kw_only=True)
class Near:
    """Numbers of sequences, and of devices, with each of which alone some point keeps all rules: one below what is asked and one above,
    where such were found."""

    sequences: tuple[int, ...]
    devices: tuple[int, ...]


def near(task: Task, pins: Pins, space: Space, known: Derived) -> Near:
    """Where no point of a space keeps all rules. Sequences are tried that replicas of its meshes share out."""
    counts = sorted(task.counts)
    joined = task.cluster.levels[-1].joins or counts[-1] + MOST_NEAR
    fewer = range(counts[0] - 1, max(0, counts[0] - 1 - MOST_NEAR), -1)
    more = range(counts[-1] + 1, min(joined, counts[-1] + MOST_NEAR) + 1)

    def on(devices: int) -> bool:
        with suppress(InputError):  # a grid that has no point
            of = space_of(task.model, (devices,), task.batch, pins, task.joined, fp8=task.fp8)
            return _keeps(replace(task, devices=devices, fewer=()), of, known)
        return False

    def shared(sequences: int) -> bool:
        of = replace(space, meshes=tuple(mesh for mesh in space.meshes if any(sequences % (mesh.replicas * b) == 0 for b in space.b)))
        return bool(of.meshes) and _keeps(replace(task, batch=sequences), of, known)

    parts = {mesh.replicas * b for mesh in space.meshes for b in space.b if task.batch % (mesh.replicas * b)}
    below = sorted({task.batch // part * part for part in parts} - {0}, reverse=True)
    above = sorted({(task.batch // part + 1) * part for part in parts})
    return Near(
        sequences=tuple(n for tried in (below, above) if (n := next(filter(shared, tried), None)) is not None),
        devices=tuple(n for tried in (fewer, more) if (n := next(filter(on, tried), None)) is not None),
    )


def _keeps(task: Task, space: Space, known: Derived) -> bool:
    """Whether a point keeps all rules and is derived: of those with one word of each choice that no size depends on, and of what data
    parallelism does one that may have copies of shards."""
    data = (*(word for word in space.data if word not in COPIED), *space.data)[:1]
    search = Search(task, replace(space, data=data, recompute=space.recompute[:1], orders=space.orders[:1]), known)
    search.bound()
    return next(search.near(), None) is not None


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A strategy that was asked about. ``plan``: the best that it can be, None where it cannot be at all; ``because``: why not."""

    strategy: str
    plan: Placed | None
    because: tuple[str, ...] = ()


def require_strategy(task: Task, text: str) -> Strategy:
    """The strategy of a text. Raises InputError for a text that is none, for one with open degrees, and for other numbers of devices."""
    strategy = parse_strategy(text)
    if any(axis.degree is None for axis in strategy.axes):
        refuse("PP203", f"`{text}` leaves degrees open", help="say all of them: `zero1(8) * tp(8)`")
    if (devices := prod(axis.degree or 1 for axis in strategy.axes)) not in task.counts:
        message = f"`{text}` is of {devices:,} devices, and plans are for {task.devices_text}"
        refuse("PP202", message, help="degrees multiply to the number of devices")
    return strategy


def beside(task: Task, space: Space, text: str) -> Beside:
    """The best that a strategy can be with the sizes of a micro-batch and the recomputation of a grid; where nothing of it fits, what needs
    least. Without a pipeline it accumulates gradients over several micro-batches, also where it does not say so.

    Raises InputError as :func:`require_strategy` does.
    """
    strategy = require_strategy(task, text)
    degrees = {axis.name: axis.degree or 1 for axis in strategy.axes}
    replicas = prod(degrees[axis.name] for axis in strategy.axes if axis.splits.batch)
    every: list[Placed] = []
    because: list[str] = []
    alone = strategy.schedule.microbatches is None
    shared = [b for b in space.b if task.batch % (replicas * b) == 0]
    for recompute, fp8, order, b in product(space.recompute, space.fp8, _orders(space, degrees), shared):
        m = task.batch // replicas // b
        own = f"{text} * accumulate" if alone and m > 1 else text
        try:
            every.append(worked_out(task.narrow(fp8), own, recompute=recompute, b=b, m=m, order=order))
        except InputError as error:
            because += [d.message for d in error.diagnostics]
    if not shared:
        sizes = ", ".join(map(str, space.b))
        because.append(f"no micro-batch (b = {sizes}) shares out {task.batch:,} sequences over {replicas:,} replicas")
    if not every:
        return Beside(strategy=text, plan=None, because=tuple(dict.fromkeys(because)))
    fitting = [plan for plan in every if plan.fits]
    if fitting:
        return Beside(strategy=text, plan=min(fitting, key=lambda plan: plan.seconds))
    return Beside(strategy=text, plan=min(every, key=lambda plan: plan.peak - plan.room), because=("does not fit",))


def _orders(space: Space, degrees: Mapping[str, int]) -> tuple[tuple[str, ...] | None, ...]:
    """The orders of a grid, of axes that have these degrees; None for the usual one, and of axes that no grid has."""
    if not {*degrees} <= {*AXES}:
        return (None,)
    every = (tuple(axis for axis in ORDERS[order] if axis in degrees) for order in space.orders)
    usual = tuple(axis for axis in AXES if axis in degrees)
    return tuple(dict.fromkeys(None if own == usual else own for own in every))
