"""Bounds on the points of a grid, part by part, as far as they may matter.

What blocks take is bounded first, whatever states take beside them. What data parallelism makes of states is derived and added where the
points are asked for of which blocks alone take no longer than some seconds.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf, prod
from typing import NamedTuple

import numpy as np

from placeproof.core.diagnostics import InputError
from placeproof.planning.arrays import Array
from placeproof.planning.bounds import Bounds, StageAmounts, StageKind, bounds, communicators, misfits, stage_amounts, stage_kinds
from placeproof.planning.pool import Bounded, Piece, point_of
from placeproof.planning.rows import Rows, alike_flows, together_of
from placeproof.planning.space import AXES, COPIED, Flow, Option, Point, axes_of
from placeproof.planning.structures import Derived, Structures
from placeproof.planning.tables import Blocks, GroupTimes, PartAmounts, Points, StateAmounts, taken
from placeproof.planning.task import Task

#: How much a bound may be above what it bounds by rounding.
ROUNDING = 1e-9
#: So many points are kept that are nearest to fitting.
NEAREST = 100
#: What is counted beside rules: points that only differ in what they do not have.
SAME = "the same as another point"
#: What stages have of states at least.
_NOTHING = StateAmounts(held=0.0, transient=0.0, updating=0.0, update=0.0, data=(0.0, 0.0), once=(0.0, 0.0), axes=frozenset())


class Asked(NamedTuple):
    """Of some pieces the points of which blocks alone take more than ``over`` seconds, and no more than ``limit``. ``over``: None when they
    are asked for the first time."""

    unit: list[Piece]
    over: float | None
    limit: float


@dataclass(kw_only=True)
class Found:
    """What points come to. ``cut``: how many rules leave out, by rule; ``pool``: those that may fit; ``nearest``: those nearest to fitting,
    with how many bytes they have too much at least; ``unfit``: as of :class:`Bounding`. ``slower``: points of which blocks alone take
    longer than what is asked, ``least`` seconds or more; ``larger``: others whose blocks alone do not fit."""

    cut: dict[str, int] = field(default_factory=dict)
    pool: list[Bounded] = field(default_factory=list)
    nearest: list[tuple[float, Point]] = field(default_factory=list)
    unfit: list[Bounded] = field(default_factory=list)
    slower: int = 0
    larger: int = 0
    least: float = inf

    def leave_out(self, rule: str, number: int) -> None:
        """So many points, by a rule."""
        if number:
            self.cut[rule] = self.cut.get(rule, 0) + number

    def kept(self, rules: Iterable[tuple[str, Array]], size: int, each: int = 1) -> Array:
        """The rows that no rule cuts; a row that several cut is counted for the first of them. ``each``: points of a row."""
        left: Array = np.ones(size, dtype=bool)
        for name, breaks in rules:
            self.leave_out(name, int(np.count_nonzero(left & breaks)) * each)
            left &= ~np.broadcast_to(breaks, (size,))
        return np.flatnonzero(left)

    def add(self, other: Found) -> None:
        """What other points come to."""
        for rule, count in other.cut.items():
            self.leave_out(rule, count)
        self.pool += other.pool
        self.unfit += other.unfit
        self.nearest = sorted((*self.nearest, *other.nearest), key=lambda near: near[0])[:NEAREST]


@dataclass(frozen=True, kw_only=True)
class Alike:
    """Points with the same blocks on the same axes, each once for every word of ``data``, every order and
    every flow. ``same``: with other points,
    ``kept`` of which these are; ``parts``: what blocks take."""

    axes: tuple[str, ...]
    blocks: Blocks
    same: Rows
    kept: Array
    points: Points
    parts: Mapping[str, PartAmounts]
    data: tuple[str, ...]
    orders: tuple[str, ...]

    @property
    def each(self) -> int:
        """How often each is there with one flow."""
        return len(self.data) * len(self.orders)

    @property
    def piped(self) -> bool:
        """Whether there are several stages."""
        return "pp" in self.axes


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Those whose stages are laid out alike: ``rows`` of them by flow. ``amounts``: what blocks take, those of a stage together; ``least``:
    seconds at least whatever states take, infinite where blocks alone do not fit; nothing where all points are looked at."""

    of: Alike
    option: Option
    kinds: tuple[StageKind, ...]
    amounts: tuple[StageAmounts, ...]
    rows: Mapping[Flow, Array]
    least: Mapping[Flow, Array]


class Bounding:
    """Bounds on the points of a grid. ``unfit``: whether points are kept of a pipeline with one run of layers on each device that do not
    fit as long as nothing is computed again."""

    def __init__(self, of: Structures, *, unfit: bool = False) -> None:
        self.of, self.unfit = of, unfit
        self._opened: dict[int, list[Opened]] = {}

    def of_unit(self, asked: Asked) -> tuple[dict[int, Found], Derived]:
        """What some pieces come to, by number; and, where nothing of them fits, what was derived, since others are then looked at."""
        known = self.of.known
        before = {*known.blocks, *known.states}
        found = {piece.number: self._of_piece(piece, asked) for piece in asked.unit}
        if asked.limit < inf or any(one.pool for one in found.values()):
            return found, Derived()
        blocks = {key: blocks for key, blocks in known.blocks.items() if key not in before}
        return found, Derived(blocks=blocks, states={key: states for key, states in known.states.items() if key not in before})

    def _of_piece(self, piece: Piece, asked: Asked) -> Found:
        found, first = Found(), asked.over is None
        opened: Iterable[Opened] | None = self._opened.pop(piece.number, None)
        if opened is None:  # what it cuts was counted before, unless they are asked for the first time
            opened = self._open(piece, found if first else Found(), whole=first and asked.limit == inf)
        left = []
        for one in opened:
            self._close(one, asked, found)
            left += [one] if asked.limit < inf else []
        self._opened[piece.number] = left
        return found

    # What blocks take.

    def _open(self, piece: Piece, found: Found, *, whole: bool) -> Iterator[Opened]:
        """Points of meshes that have several devices along the same axes. ``whole``: whether all of them are looked at."""
        space, batch, own, axes = self.of.space, self.of.task.batch, piece.meshes, axes_of(piece.meshes)
        rows = [(mesh, b) for mesh in own for b in space.b if batch % (mesh.replicas * b) == 0]
        sps, attentions, data, flows, orders = space.options_of(axes)
        each = space.options // len(sps)
        found.leave_out("batch % (dp * b)", (len(own) * len(space.b) - len(rows)) * each)
        if not rows:
            return
        columns = {axis: np.array([getattr(mesh, axis) for mesh, _ in rows], dtype=float) for axis in AXES}
        b = np.array([b for _, b in rows], dtype=float)
        m = np.array([batch / (mesh.replicas * b) for mesh, b in rows])
        points = Points(**columns, b=b, m=m, vocabulary=self.of.vocabulary(columns["tp"]))
        different = prod(map(len, (attentions, space.recompute, space.fp8, data, flows, orders)))
        found.leave_out(SAME, len(rows) * (each - different))
        if "dp_replicate" in axes:
            sharded = tuple(word for word in data if word not in COPIED)
            found.leave_out("dp_replicate of what is not sharded", len(rows) * different // len(data) * (len(data) - len(sharded)))
            data = sharded
        if not data:
            return
        sums = (m > 1) & (columns["pp"] == 1)  # gradients are added up by a loop of their own
        alike = [Rows(taken(points, own), {}) for own in (np.flatnonzero(~sums), np.flatnonzero(sums)) if len(own)]
        for attention, recompute, fp8, same in product(attentions, space.recompute, space.fp8, alike):
            option = Option(data=data[0], sp=piece.sp, attention=attention, recompute=recompute, fp8=fp8, flow=flows[0])
            yield from self._of_blocks(axes, option, same, data, orders, flows, found, whole=whole)

    def _of_blocks(
        self, axes: tuple[str, ...], option: Option, same: Rows, data: tuple[str, ...], orders: tuple[str, ...], flows: tuple[Flow, ...],
        found: Found, *, whole: bool,
    ) -> Iterator[Opened]:  # fmt: skip
        """Points of which axes and options but for data parallelism and orders are the same."""
        each, points = len(data) * len(orders) * len(flows), same.points
        try:
            blocks = self.of.blocks_of(option, axes)
        except InputError as error:
            found.leave_out(f"refused: {error.diagnostics[0].message}", len(points) * each)
            return
        others = self.of.space.recompute[: self.of.space.recompute.index(option.recompute)]
        before = (self.of.known.blocks.get((blocks.axes, *replace(option, recompute=words).key)) for words in others)
        if any(other is not None and blocks.alike == other.alike for other in before):
            found.leave_out(SAME, len(points) * each)
            return
        kept = found.kept(blocks.uneven(points), len(points), each)
        if not len(kept):
            return
        points = taken(points, kept)
        parts = blocks.amounts(points, GroupTimes(blocks.task, points))
        alike = Alike(axes=axes, blocks=blocks, same=same, kept=kept, points=points, parts=parts, data=data, orders=orders)
        for own in together_of(flows, alike=self.of.alike):
            yield from self._of_stages(alike, replace(option, flow=own[0]), own, found, whole=whole)

    def _of_stages(self, of: Alike, option: Option, flows: tuple[Flow, ...], found: Found, *, whole: bool) -> Iterator[Opened]:
        """Points of which stages have the same layers, too."""
        points, each = of.points, of.each
        divided = [flow for flow in flows if not of.piped or not np.mod(self.of.layers, points.pp * flow.of_copy).all()]
        found.leave_out("layers % (pp * chunks)", len(points) * (len(flows) - len(divided)) * each)
        if not divided:
            return
        try:
            stages = self.of.stages_of(option, of.blocks, int(points.pp[0]))
        except InputError as error:
            found.leave_out(f"refused: {error.diagnostics[0].message}", len(points) * len(divided) * each)
            return
        kinds, repeated = stage_kinds(stages, points), _layers(of.blocks)
        amounts = tuple(stage_amounts(kind, of.parts, repeated) for kind in kinds)
        rows = {flow: found.kept(misfits(flow, kinds, repeated, points) if of.piped else (), len(points), each) for flow in divided}
        opened = Opened(of=of, option=option, kinds=kinds, amounts=amounts, rows=rows, least={})
        yield opened if whole else replace(opened, least=self._least(opened))

    def _least(self, one: Opened) -> dict[Flow, Array]:
        """Seconds of points at least, whatever states take; infinite where they do not fit."""
        nothing = [_NOTHING] * len(one.kinds)
        found = self._bounds(one, self.of.tasks[one.option.fp8], one.rows, nothing, np.zeros(len(one.of.points)))
        return {flow: np.where(self._fits(own), own.seconds * (1 - ROUNDING), inf) for flow, own in found.items()}

    # What states take beside them.

    def _close(self, one: Opened, asked: Asked, found: Found) -> None:
        """Bounds on those of some points that are asked for."""
        over, rows = -inf if asked.over is None else asked.over, dict(one.rows)
        for flow, least in one.least.items():
            rows[flow] = rows[flow][(least > over) & (least <= asked.limit)]
            left = least[least > asked.limit]
            finite = np.isfinite(left)
            found.slower += int(np.count_nonzero(finite)) * one.of.each
            found.larger += int(np.count_nonzero(~finite)) * one.of.each
            found.least = min(found.least, left.min(initial=inf))
        if rows := {flow: own for flow, own in rows.items() if len(own)}:
            for word, order in product(one.of.data, one.of.orders):
                self._of_states(one, replace(one.option, data=word, order=order), rows, found)

    def _of_states(self, one: Opened, option: Option, rows: Mapping[Flow, Array], found: Found) -> None:
        """These rows with one kind of data parallelism."""
        of = one.of
        try:
            sums = not of.piped and bool(of.points.m[0] > 1)
            states = self.of.states_of(of.axes, option, of.blocks, int(of.points.pp[0]), sums=sums)
        except InputError as error:
            found.leave_out(f"refused: {error.diagnostics[0].message}", sum(map(len, rows.values())))
            return
        every, sends = of.same.amounts(states, option.order)
        held = [taken(every[kind.number], of.kept) for kind in one.kinds]
        for flow, own in self._bounds(one, states.task, rows, held, sends[of.kept]).items():
            self._of_flow(replace(option, flow=flow), own, of.points, rows[flow], found, piped=of.piped)

    def _bounds(
        self, one: Opened, task: Task, rows: Mapping[Flow, Array], held: Sequence[StateAmounts], send: Array
    ) -> dict[Flow, Bounds]:  # fmt: skip
        """Bounds on these rows with what stages have of states; ``send``: seconds of a message."""
        of, bounded = one.of, dict[Flow, Bounds]()
        every = zip(one.kinds, held, strict=True)
        rooms = [float(self.of.task.room(communicators(of.axes, kind, of.parts, of_states))) for kind, of_states in every]
        for together in alike_flows(flow for flow in rows if len(rows[flow])):
            sizes = [len(rows[flow]) for flow in together]
            number = np.concatenate([rows[flow] for flow in together])
            chunks: Array = np.repeat([float(flow.chunks) for flow in together], sizes)
            own = bounds(
                task, together[0], [taken(kind, number) for kind in one.kinds], [taken(of_kind, number) for of_kind in one.amounts],
                [taken(of_kind, number) for of_kind in held], taken(of.points, number), send[number], rooms, piped=of.piped,
                alike=self.of.alike, chunks=chunks if together[0].chunks > 1 else None,
            )  # fmt: skip
            ends = np.cumsum(sizes)
            bounded |= {flow: taken(own, slice(end - size, end)) for flow, size, end in zip(together, sizes, ends, strict=True)}
        return bounded

    def _of_flow(self, option: Option, own: Bounds, points: Points, rows: Array, found: Found, *, piped: bool) -> None:
        """``own``: of these ``rows`` of the points."""
        fits = self._fits(own)
        found.leave_out("does not fit", int(np.count_nonzero(~fits)))
        for nearest in np.argsort(own.beyond, kind="stable")[:NEAREST]:
            if len(found.nearest) >= NEAREST and own.beyond[nearest] >= found.nearest[-1][0]:
                break
            insort(found.nearest, (float(own.beyond[nearest]), point_of(points, rows[nearest], option)), key=lambda n: n[0])
            del found.nearest[NEAREST:]
        if self.unfit and piped and option.flow.chunks == 1 and option.recompute == "none" and not fits.all():
            found.unfit.append(Bounded(own.seconds[~fits], own.peak[~fits], rows[~fits], points, option))
        if fits.any():
            found.pool.append(Bounded(own.seconds[fits], own.peak[fits], rows[fits], points, option))

    def _fits(self, own: Bounds) -> Array:
        return own.beyond <= ROUNDING * float(self.of.task.cluster.device.capacity)


def _layers(blocks: Blocks) -> frozenset[str]:
    """The names of the parts of a model that are its layers."""
    return frozenset(part.name for part in blocks.segments if part.repeats)
