"""Amounts at many points at once: of the parts of a model, read off the same programs as every derivation; and of what data parallelism
makes of its parameters, by the same closed forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from placeproof.clusters import Group
from placeproof.collectives.time import TIMED_AS
from placeproof.cost.model.derivation import laid_out, sizing, state_costs
from placeproof.cost.model.parts import DeviceSegment, Sizing, parts
from placeproof.cost.model.prices import MASKED, seconds_of_kernels
from placeproof.cost.model.rates import Rates
from placeproof.cost.model.recomputation import chosen, of_layers
from placeproof.cost.model.running import dummy_gradients, dummy_shapes, running
from placeproof.cost.model.step import StepCosts
from placeproof.cost.model.time import exchange_kind, updated
from placeproof.cost.model.traffic import sent_between
from placeproof.planning.arrays import Array, ExchangeTime, Number, evaluate
from placeproof.planning.space import AXES, Option, strategy_text
from placeproof.planning.task import Task
from placeproof.semantics.blocks.plan import HEADS
from placeproof.semantics.linked import Linked, link
from placeproof.strategies import parse_strategy

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: A table whose fields are arrays with a row for each point.
T = TypeVar("T", bound="DataclassInstance")

_PASSES = ("forward", "again", "inputs", "weights")


@dataclass(frozen=True, kw_only=True)
class Points:
    """Rows of a table: degrees, b and m, and the vocabulary as it is padded; an array each, or a number for all.
    ``number``: what is made of exact numbers beside them."""

    tp: Array
    cp: Array
    ep: Array
    dp: Array
    dp_shard: Array
    dp_replicate: Array
    pp: Array
    b: Array
    m: Array
    vocabulary: Array = None
    number: Number = float

    def __len__(self) -> int:
        return len(self.b)

    def values(self) -> dict[str, Array]:
        """By the names of symbols."""
        degrees = {axis: getattr(self, axis) for axis in AXES}
        only = {"N": prod(degrees.values())}  # of a strategy of one axis, beside which there is no other
        return (
            only
            | {f"N_{axis}": n for axis, n in degrees.items()}
            | {"b": self.b, "m": self.m}
            | ({} if self.vocabulary is None else {"V": self.vocabulary})
        )

    def beside(self, *known: Mapping[str, int | Fraction]) -> dict[str, Array]:
        """The same with values of other symbols."""
        return {name: self.number(n) for values in known for name, n in values.items()} | self.values()

    def at(self, values: Mapping[str, Array]) -> Callable[[Any], Array]:
        """A closed form at such values."""
        memo: dict[Any, Array] = {}
        return lambda expr: evaluate(expr, values, memo, self.number)


def taken(table: T, rows: Array) -> T:
    """Some rows of all of a table's arrays, of those in tuples and by name, too."""

    def of(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(of, value))
        if isinstance(value, dict):
            return {name: of(each) for name, each in value.items()}
        return value[rows] if isinstance(value, np.ndarray) and value.ndim else value

    return type(table)(**{f.name: of(getattr(table, f.name)) for f in fields(table)})


@dataclass(frozen=True, kw_only=True)
class PartAmounts:
    """What one repetition of a part takes: bytes ``kept`` of one micro-batch until backward, ``late`` of them for gradients by weights, and
    ``working`` while it is computed again; seconds of computing in each pass, and of exchanges in a forward and a backward pass; seconds
    that kernels take to launch; and the axes that it exchanges over."""

    kept: Array
    late: Array
    working: Array
    computing: tuple[Array, Array, Array, Array]
    inside: tuple[Array, Array]
    launches: tuple[Array, Array]
    axes: frozenset[tuple[str, ...]]


class FloatPrice:
    """What computing takes, in floating-point numbers: as :class:`placeproof.cost.model.prices.Exact`."""

    def __init__(self, rates: Rates, number: Number) -> None:
        self.by_kernels, self.masked = rates.by_kernels, number(MASKED)
        self._wide, self._narrow = number(rates.peak * rates.values["eta"]), number(rates.values.get("F_fp8", 1))
        self._bandwidth, self._kernel = number(rates.bandwidth), number(rates.values.get("t_k", 0))

    def compute(self, operations: Array) -> Array:
        """Seconds of so many floating-point operations."""
        return operations / self._wide

    def narrow(self, operations: Array) -> Array:
        """Seconds of so many floating-point operations in fp8."""
        return operations / self._narrow

    def memory(self, amount: Array) -> Array:
        """Seconds of reading or writing so many bytes."""
        return amount / self._bandwidth

    def launch(self, number: Array) -> Array:
        """Seconds that so many kernels take at least."""
        return number * self._kernel


class Blocks:
    """The parts of a model under options, as one device runs them; ``axes``: those of `tp`, `cp` and `ep` that there are."""

    def __init__(self, task: Task, option: Option, axes: tuple[str, ...]) -> None:
        self.task, self.axes = task, axes
        strategy = parse_strategy(strategy_text(None, option, axes))
        words = chosen(strategy, option.recompute)
        self.linked: Linked = link(task.ran, of_layers(strategy, words), recompute=words)
        self.segments: tuple[DeviceSegment, ...] = parts(self.linked, task.run_by)

    @cached_property
    def splits(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Every dimension that axes split, with them."""
        found: dict[tuple[str, tuple[str, ...]], None] = {}
        for part in self.segments:
            for stored in (*(w for _, w in part.weights), *part.layer.kept(part.drawn)):
                found |= dict.fromkeys(stored.split)
        return tuple(found)

    @property
    def alike(self) -> tuple[object, ...]:
        """What segments under another recomputation have in common that keep as much, and compute as much again."""
        return tuple((part.layer, part.plain, part.kept) for part in self.segments)

    def sizing(self, points: Points) -> Sizing:
        """Where amounts are worked out."""
        task, open_ = self.task, sizing(self.linked, self.task.widths, self.task.fp8)
        values = points.beside(self.linked.values, task.values) | {"N": points.tp * points.cp * points.ep}
        at = points.at(values)
        return replace(
            open_,
            sizes={dim: at(size) for dim, size in open_.sizes.items()},
            degrees={axis: at(n) for axis, n in open_.degrees.items()},
            width=at(open_.width),
            load=at(open_.load),
        )

    def uneven(self, points: Points) -> list[tuple[str, Array]]:
        """Rules, and at which points degrees do not divide a size as they say."""
        sizes = self.sizing(points).sizes
        rules = []
        for dim, over in self.splits:
            degree = prod((getattr(points, axis) for axis in over), start=1.0)
            rules.append((f"{dim} % {' * '.join(over)}", np.mod(sizes[dim], degree) != 0))
        if "cp" in self.axes and not any(dim in HEADS and "cp" in over for dim, over in self.splits):
            rules.append(("tokens % (2 * cp)", (np.mod(sizes["tokens"], 2 * points.cp) != 0) & (points.cp > 1)))
        return rules

    def amounts(self, points: Points, groups: ExchangeTimes) -> dict[str, PartAmounts]:
        """What each part takes at some points, by its name."""
        at = self.sizing(points)
        price = FloatPrice(self.task.rates, points.number)
        return {part.name: self._amounts(part, at, groups, price) for part in self.segments}

    def _amounts(self, part: DeviceSegment, at: Sizing, groups: ExchangeTimes, price: FloatPrice) -> PartAmounts:
        launches: tuple[Array, Array] = (0.0, 0.0)
        works = [part.flops(at), part.narrow_flops(at)]
        if price.by_kernels:
            kernels = part.kernels(at)
            works += [kernels.inside, kernels.moved, kernels.moving]
            launches = (price.launch(kernels.launched.forward), price.launch(kernels.launched.again + kernels.launched.backward))
        rows = zip(*([getattr(work, name) for name in _PASSES] for work in works), strict=True)
        forward, again, inputs, weights = (seconds_of_kernels(price, *row) for row in rows)
        sent: list[Array] = [0.0, 0.0]
        axes = set()
        for exchange, times in part.exchanges(at):
            seconds = groups.seconds(exchange.kind, exchange.axes, exchange.bytes)
            more = price.launch(seconds > 0) if price.by_kernels else 0.0
            sent[exchange.phase == "backward"] = sent[exchange.phase == "backward"] + (seconds + more) * times
            axes.add(exchange.axes)
        host = part.checkpoints.host
        return PartAmounts(
            kept=sum(r.bytes for r in part.bytes(tuple(s for s in part.kept if not (host and part.is_checkpoint(s))), at)),
            late=sum(r.bytes for r in part.bytes(part.late, at)),
            working=sum(r.bytes for r in part.bytes(part.working, at)) if self.task.run_by is None else 0.0,
            computing=(forward, again, inputs, weights),
            inside=(sent[0], sent[1]),
            launches=launches,
            axes=frozenset(axes),
        )


class ExchangeTimes(Protocol):
    """Seconds of exchanges at some points."""

    def seconds(self, kind: str, axes: tuple[str, ...], size: Array, pair: str | None = None) -> Array:
        """Of one call of an exchange about so many bytes; ``pair``: as of :class:`placeproof.cost.model.traffic.Transfer`."""


class GroupTimes:
    """Seconds of exchanges at some points: each in the groups that its axes have on the mesh of that point. ``order``: of axes, from the
    innermost to the outermost."""

    def __init__(self, task: Task, points: Points, order: Sequence[str] = AXES) -> None:
        self.task, self.size = task, len(points)
        columns = [np.broadcast_to(np.asarray(getattr(points, axis), dtype=np.int64), (self.size,)) for axis in order]
        rows, own = np.unique(np.stack(columns), axis=1, return_inverse=True)
        self._own = own.reshape(-1)
        self._meshes = [dict(zip(order, map(int, row), strict=True)) for row in rows.T]
        self._times: dict[tuple[str, tuple[str, ...], str | None], list[tuple[ExchangeTime, Array]]] = {}

    def seconds(self, kind: str, axes: tuple[str, ...], size: Array, pair: str | None = None) -> Array:
        """Of one call of an exchange about so many bytes; ``pair``: as of :class:`placeproof.cost.model.traffic.Transfer`."""
        key = (TIMED_AS.get(kind, kind), axes, pair)
        if key not in self._times:
            self._times[key] = self._asked(*key)
        sizes, seconds = np.broadcast_to(np.asarray(size, dtype=float), (self.size,)), np.zeros(self.size)
        for time, rows in self._times[key]:
            seconds[rows] = time(sizes[rows])
        return seconds

    def _asked(self, kind: str, axes: tuple[str, ...], pair: str | None) -> list[tuple[ExchangeTime, Array]]:
        """Each kind of groups, and at which points they are."""
        by_groups: dict[tuple[Group, ...], list[int]] = {}
        for number, mesh in enumerate(self._meshes):
            groups = self.task.groups(tuple(mesh.items()), axes, pair)
            by_groups.setdefault(groups, []).append(number)
        timed = ((self.task.exchange_time(kind, groups), numbers) for groups, numbers in by_groups.items())
        return [(time, np.flatnonzero(np.isin(self._own, numbers))) for time, numbers in timed]


@dataclass(frozen=True, kw_only=True)
class StateAmounts:
    """What a stage has of states, in bytes: ``held``; what passes in the passes (``transient``) and in the ``updating``; seconds of the
    update, and of exchanges of parameters and gradients in a pass (``data``) and once a step; and over which axes."""

    held: Array
    transient: Array
    updating: Array
    update: Array
    data: tuple[Array, Array]
    once: tuple[Array, Array]
    axes: frozenset[tuple[str, ...]]


class Stages:
    """The stages of a pipeline, or the only one, with open degrees but for their number, where that is said."""

    def __init__(self, task: Task, strategy: str, blocks: Blocks, stages: int | None) -> None:
        linked = link(task.ran, parse_strategy(strategy))
        self.linked: Linked = linked if stages is None else linked.with_degrees({"pp": stages})
        self.at = sizing(self.linked, task.widths, task.fp8)
        self.flow, self.stages = laid_out(self.linked, blocks.segments, self.at)


class States(Stages):
    """What data parallelism makes of a model's parameters under options: one derivation, in which degrees are open.

    ``costs``: of each stage; ``beside``: bytes that an implementation has there all the time; ``messages``: exchanges between stages, where
    there are several.
    """

    def __init__(self, task: Task, strategy: str, blocks: Blocks, stages: int | None) -> None:
        super().__init__(task, strategy, blocks, stages)
        linked, at, flow, own = self.linked, self.at, self.flow, self.stages
        step = StepCosts(linked)
        layer = next((part for part in blocks.segments if part.repeats), None)
        run_by = None if task.run_by is None else task.run_by.on(task.cluster.device.architecture)
        self.task, self.batches = task, flow.batches
        self.costs = tuple(state_costs(stage, step, at, linked) for stage in own)
        if run_by is None:
            self.beside: tuple[Any, ...] = (0,) * len(own)
            self.shapes: tuple[tuple[tuple[Any, Any], ...], ...] = ((),) * len(own)
        else:
            sizes = {name: n for name, n in linked.values.items() if name != "V"}  # the vocabulary is padded at each point
            self.shapes = tuple(dummy_shapes(stage, at, run_by, sizes) for stage in own)
            every = (running(c.stage, at, run_by, False, linked.values, c.states["optimizer"]).beside for c in self.costs)
            dummies = (dummy_gradients(stage, at, run_by, linked.values) for stage in own)
            self.beside = tuple(beside - dummy for beside, dummy in zip(every, dummies, strict=True))
        self.messages = tuple(sent for stage in own for sent in sent_between(stage, at, flow.batches, flow.hops(stage), linked, layer))

    def amounts(self, number: int, points: Points, groups: ExchangeTimes) -> StateAmounts:
        """What a stage has at some points."""
        rates, cost = self.task.rates, self.costs[number]
        values = points.beside(self.linked.values, rates.values)
        at, price = points.at(values), FloatPrice(rates, points.number)
        sums: dict[str, list[Array]] = {kind: [0.0, 0.0] for kind in ("data", "once", "update")}
        axes = set()
        for sent in cost.sent:
            kind = exchange_kind(sent)
            seconds, calls = groups.seconds(sent.kind, sent.axes, at(sent.size / sent.calls), sent.pair), at(sent.calls)
            launched = price.launch(seconds > 0) if rates.by_kernels else 0.0
            often = at(sent.times / (1 if kind in ("once", "update") else self.batches))
            sums[kind][sent.phase == "backward"] = sums[kind][sent.phase == "backward"] + (seconds + launched) * calls * often
            axes.add(sent.axes)
        return StateAmounts(
            held=at(sum(cost.states.values()) + self.beside[number])
            + values["b_theta"] * _distinct([(at(r), at(c)) for r, c in self.shapes[number]]),
            transient=at(cost.transient),
            updating=at(cost.updating),
            update=price.memory(at(updated(cost))) + price.compute(at(cost.iterated)) + sums["update"][0],
            data=(sums["data"][0], sums["data"][1]),
            once=(sums["once"][0], sums["once"][1]),
            axes=frozenset(axes),
        )


def _distinct(shapes: Sequence[tuple[Array, Array]]) -> Array:
    """Elements of matrices of these shapes, those of the same shape once at each point."""
    elements: Array = 0.0
    for number, (rows, columns) in enumerate(shapes):
        seen: Array = np.asarray(False)
        for r, c in shapes[:number]:
            seen = seen | (np.equal(rows, r) & np.equal(columns, c))
        elements = elements + rows * columns * ~seen
    return elements
