"""The best points of a grid: bounds on all of them first, and then exact answers for those that may be among the best, until no other can
be."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from math import inf, prod

import numpy as np

from placeproof.core.diagnostics import InputError
from placeproof.cost.model.parts import DeviceSegment
from placeproof.cost.model.vocabulary import MULTIPLE
from placeproof.planning.arrays import Array
from placeproof.planning.bounds import Bounds, bounds, communicators, misfits, stage_amounts, stage_kinds
from placeproof.planning.crew import ALONE, Crew, Running
from placeproof.planning.exact import Plan, worked_out
from placeproof.planning.objective import OBJECTIVES, Objective
from placeproof.planning.pool import Bounded, Found, Piece, Pool, Queue, inside, point_of, share, units_of
from placeproof.planning.rows import Rows, alike_flows, together_of
from placeproof.planning.space import AXES, COPIED, Flow, Option, Point, Space, axes_of, strategy_text
from placeproof.planning.tables import Blocks, GroupTimes, PartAmounts, Points, States, taken
from placeproof.planning.task import Task
from placeproof.schedules import StageLayout, load

#: How much a bound may be above what it bounds by rounding.
ROUNDING = 1e-9
#: So many points are kept that are nearest to fitting.
NEAREST = 100


@dataclass(kw_only=True)
class Outcome:
    """``plans``: the best ones, in order. ``cut``: points that were left out, by rule; ``bounded``: those that are worse than the last
    plan by the ``objective``; ``derived``: those that were worked out exactly, with what came of it; ``unproved``: plans of them that are
    not proved. ``least``: where nothing fits, a point that needs the least memory beyond what there is, and ``least_of_all``: whether no
    other needs less, which is open where more than :data:`NEAREST` points have bounds below it. ``complete``: False where the
    search was interrupted: then the plans are the best that were worked out, and no other number says anything."""

    objective: Objective = OBJECTIVES["time"]
    plans: list[Plan] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    bounded: int = 0
    derived: list[tuple[Point, Plan | str]] = field(default_factory=list)
    unproved: list[Plan] = field(default_factory=list)
    least: Plan | None = None
    least_of_all: bool = True
    complete: bool = True

    @property
    def asked(self) -> int:
        """How many points were worked out exactly."""
        return len(self.derived)

    @contextmanager
    def interruptible(self, running: Running) -> Iterator[None]:
        """Work that an interrupt ends, with what is there so far, if it may be partial."""
        try:
            yield
        except KeyboardInterrupt:
            if not running.partial:
                raise
            self.complete = False


@dataclass(kw_only=True)
class Derived:
    """What was derived for some options and axes, whatever the number of devices and the batch."""

    segments: dict[tuple[tuple[bool, str, str, bool], tuple[bool, ...]], tuple[DeviceSegment, ...]] = field(default_factory=dict)
    blocks: dict[tuple[tuple[str, ...], bool, str, str, bool], Blocks] = field(default_factory=dict)
    states: dict[tuple[tuple[str, ...], str, bool, bool, tuple[int, Flow] | StageLayout, bool], States] = field(default_factory=dict)


class Search:
    """A search for the best points of a space. ``known``: what another search derived of the same model on the same cluster. ``unfit``:
    whether points are kept of a pipeline with one run of layers on each device that do not fit as long as nothing is computed again."""

    def __init__(self, task: Task, space: Space, known: Derived | None = None, *, unfit: bool = False) -> None:
        self.task, self.space = task, space
        self._tasks = {fp8: task.narrow(fp8) for fp8 in space.fp8}
        self.known = known or Derived()
        self.cut: dict[str, int] = {}
        self.pool: list[Bounded] = []
        self.nearest: list[tuple[float, Point]] = []
        self.early: dict[Point, Plan | str] = {}
        self.keeps_unfit, self.unfit = unfit, list[Bounded]()

    def run(
        self,
        count: int,
        verdict: Callable[[Point], str] = lambda _: "proved",
        objective: Objective = OBJECTIVES["time"],
        running: Running = ALONE,
        crew: Crew | None = None,
    ) -> Outcome:
        """The best points, so many at most. ``verdict``: whether one trains what one device trains; those that are not `proved` are cut.
        ``crew``: processes that know :meth:`of_unit`."""
        outcome = Outcome(objective=objective, cut=self.cut)
        with outcome.interruptible(running):
            self._look_ahead(objective, running, crew)
            self._choose(outcome, count, verdict, running)
        if not outcome.complete:
            for plan in self.early.values():
                if isinstance(plan, Plan):
                    insort(outcome.plans, plan, key=objective.key)
        del outcome.plans[count:]
        return outcome

    def _look_ahead(self, objective: Objective, running: Running, crew: Crew | None) -> None:
        """Bounds on all points. Where some of them are there, and one may be better than each that was worked out, it is worked out: there
        is something to tell if the search is interrupted."""
        bounded, least = 0, inf
        for done, pool in self.bounding(crew):
            bounded += done
            running.tell(f"bounds on {bounded:,} of {self.space.size:,} points")
            points = Pool(pool)
            values = points.column(lambda one: one.bound(objective))
            if len(values) and values.min() < least:
                point = points[int(values.argmin())]
                found = self.early[point] = self.asked(point)
                least = least if isinstance(found, str) else float(objective.value(found))

    def _choose(self, outcome: Outcome, count: int, verdict: Callable[[Point], str], running: Running) -> None:
        """Work out points until no other can be among the plans, and all of these are proved."""
        objective, queue = outcome.objective, Queue(self.pool, outcome.objective)
        while queue or outcome.plans:
            last = objective.value(outcome.plans[count - 1]) if len(outcome.plans) >= count else None
            if queue and (last is None or queue.least <= float(last) * (1 + ROUNDING)):
                running.tell(f"{outcome.asked + 1:,} placements derived, of {self.size:,} that may fit")
                point = queue.pop()
                found = self.early.pop(point, None) or self.asked(point)
                outcome.derived.append((point, found))
                if isinstance(found, str):
                    self._cut(found, 1)
                    continue
                insort(outcome.plans, found, key=objective.key)
                if found in outcome.plans[:count]:
                    running.ahead(point)
                continue
            running.tell(f"proving {min(count, len(outcome.plans))} plans")
            words = [verdict(plan.point) for plan in outcome.plans[:count]]
            for word in words:
                self._cut(f"{word}, not proved", int(word != "proved"))
            if all(word == "proved" for word in words):
                break
            outcome.unproved += [plan for plan, word in zip(outcome.plans, words, strict=False) if word != "proved"]
            kept = [plan for plan, word in zip(outcome.plans, words, strict=False) if word == "proved"]
            outcome.plans = [*kept, *outcome.plans[count:]]
        if not outcome.plans and self.nearest:
            outcome.least = self.least()
            outcome.least_of_all = self.none_needs_less(outcome.least)
        outcome.bounded = len(queue) + max(0, len(outcome.plans) - count)

    def asked(self, point: Point) -> Plan | str:
        """A point worked out, or the rule that cuts it."""
        try:
            plan = self.exact(point)
        except InputError as error:
            return f"refused: {error.diagnostics[0].message}"
        return plan if plan.fits else "does not fit"

    def exact(self, point: Point) -> Plan:
        """A point worked out; points with the same blocks on the same axes have the same segments."""
        key = (point.option.key, tuple(getattr(point.mesh, axis) > 1 for axis in AXES))
        known, words = self.known.segments.get(key), point.option.recompute
        placed = worked_out(self._tasks[point.option.fp8], point.expression, recompute=words, b=point.b, m=point.m, segments=known)
        plan = Plan(**{f.name: getattr(placed, f.name) for f in fields(placed)}, point=point)
        self.known.segments[key] = plan.step.d.parts
        return plan

    def near(self) -> Iterator[Plan]:
        """The points nearest to fitting that can be derived, worked out."""
        for _, point in self.nearest:
            with suppress(InputError):
                yield self.exact(point)

    def fitting(self) -> Plan | None:
        """A point that fits, None where none does."""
        queue = Queue(self.pool, OBJECTIVES["memory"])
        while queue:
            if isinstance(found := self.asked(queue.pop()), Plan):
                return found
        return None

    def least(self) -> Plan | None:
        """The point that needs the least memory beyond what there is, or fits; None where no point keeps all rules.

        It is the one of all points if :meth:`none_needs_less` says so.
        """
        found: Plan | None = None
        for beyond, point in self.nearest:
            if found is not None and (found.fits or beyond > float(found.peak - found.room)):
                break
            try:
                plan = self.exact(point)
            except InputError:
                continue
            found = plan if found is None or plan.peak - plan.room < found.peak - found.room else found
        return found

    def none_needs_less(self, least: Plan | None) -> bool:
        """Whether points beyond the :data:`NEAREST` ones cannot need less memory than the least of these."""
        return len(self.nearest) < NEAREST or (least is not None and self.nearest[-1][0] > float(least.peak - least.room))

    @property
    def size(self) -> int:
        """Points that fit by their bounds."""
        return sum(len(one.rows) for one in self.pool)

    # Bounds.

    @property
    def alike(self) -> bool:
        """Whether all layers are of one kind: then stages differ in their ends alone."""
        return sum(str(segment.times) != "1" for segment in self.task.model.segments) < 2

    @cached_property
    def _layers(self) -> int:
        model = self.task.model
        return sum(int(n) for segment, n in zip(model.segments, model.times().values(), strict=True) if str(segment.times) != "1")

    def bound(self) -> None:
        """Bounds on every point that no rule cuts."""
        for _ in self.bounding():
            pass

    def units(self) -> list[list[Piece]]:
        """All points in parts, the largest first; what is derived for one part is for no other."""
        return units_of(self.space, by_stages=not self.alike)

    def bounding(self, crew: Crew | None = None) -> Iterator[tuple[int, list[Bounded]]]:
        """The same step by step: how many points were looked at, and what of them is bounded. ``crew``: as of :meth:`run`."""
        units = self.units()
        found: dict[int, Found] = {}
        for place, (each, derived) in (crew or Crew(1, {"bound": self.of_unit})).each("bound", units):
            found |= each
            self.known.blocks |= derived.blocks
            self.known.states |= derived.states
            points = sum(share(piece, self.space) for piece in units[place])
            yield points, [one for own in each.values() for one in own.pool]
        for number in sorted(found):
            for rule, count in found[number].cut.items():
                self._cut(rule, count)
            self.pool += found[number].pool
            self.nearest += found[number].nearest
            self.unfit += found[number].unfit
        self.nearest = sorted(self.nearest, key=lambda near: near[0])[:NEAREST]

    def of_unit(self, unit: Sequence[Piece]) -> tuple[dict[int, Found], Derived]:
        """What some pieces come to, by number; and, where nothing of them fits, what was derived, since others are then looked at."""
        before, found = {*self.known.blocks, *self.known.states}, dict[int, Found]()
        for piece in unit:
            own = copy(self)
            own.cut, own.pool, own.nearest, own.unfit = {}, [], [], []
            own._of_class(piece)
            found[piece.number] = Found(own.cut, own.pool, own.nearest, own.unfit)
        if any(one.pool for one in found.values()):
            return found, Derived()
        blocks = {key: blocks for key, blocks in self.known.blocks.items() if key not in before}
        return found, Derived(blocks=blocks, states={key: states for key, states in self.known.states.items() if key not in before})

    def _cut(self, rule: str, number: int) -> None:
        if number:
            self.cut[rule] = self.cut.get(rule, 0) + number

    def _of_class(self, piece: Piece) -> None:
        """Points of meshes that have several devices along the same axes."""
        space, batch, own, axes = self.space, self.task.batch, piece.meshes, axes_of(piece.meshes)
        rows = [(mesh, b) for mesh in own for b in space.b if batch % (mesh.replicas * b) == 0]
        sps, attentions, data, flows = space.options_of(axes)
        each = space.options // len(sps)
        self._cut("batch % (dp * b)", (len(own) * len(space.b) - len(rows)) * each)
        if not rows:
            return
        columns = {axis: np.array([getattr(mesh, axis) for mesh, _ in rows], dtype=float) for axis in AXES}
        b = np.array([b for _, b in rows], dtype=float)
        m = np.array([batch / (mesh.replicas * b) for mesh, b in rows])
        points = Points(**columns, b=b, m=m, vocabulary=self.vocabulary(columns["tp"]))
        different = prod(map(len, (attentions, space.recompute, space.fp8, data, flows)))
        self._cut("the same as another point", len(rows) * (each - different))
        if "dp_replicate" in axes:
            sharded = tuple(word for word in data if word not in COPIED)
            self._cut("dp_replicate of what is not sharded", len(rows) * different // len(data) * (len(data) - len(sharded)))
            data = sharded
        if not data:
            return
        sums = (m > 1) & (columns["pp"] == 1)  # gradients are added up by a loop of their own
        alike = [Rows(taken(points, own), {}) for own in (np.flatnonzero(~sums), np.flatnonzero(sums)) if len(own)]
        for attention, recompute, fp8, same in product(attentions, space.recompute, space.fp8, alike):
            option = Option(data=data[0], sp=piece.sp, attention=attention, recompute=recompute, fp8=fp8, flow=flows[0])
            self._of_blocks(axes, option, same, data, flows)

    def vocabulary(self, tp: Array) -> Array:
        """Its size as it is padded, None of a model without one."""
        size = self.task.model.sizes.get("V")
        if size is None:
            return None
        unit = (self.task.padding or MULTIPLE) * tp
        whole = np.ceil(size / unit) * unit
        if self.task.padding == 0:
            return np.full(len(tp), float(size))
        return whole if self.task.padding else np.where(size % tp == 0, size, whole)

    def _of_blocks(self, axes: tuple[str, ...], option: Option, same: Rows, data: tuple[str, ...], flows: tuple[Flow, ...]) -> None:
        """Points of which axes and options but for data parallelism are the same."""
        each, points = len(data) * len(flows), same.points
        try:
            blocks = self.blocks_of(option, axes)
        except InputError as error:
            self._cut(f"refused: {error.diagnostics[0].message}", len(points) * each)
            return
        others = self.space.recompute[: self.space.recompute.index(option.recompute)]
        before = (self.known.blocks.get((blocks.axes, *replace(option, recompute=words).key)) for words in others)
        if any(other is not None and blocks.alike == other.alike for other in before):
            self._cut("the same as another point", len(points) * each)
            return
        kept = self._counted(blocks.uneven(points), len(points), each)
        if not len(kept):
            return
        points = taken(points, kept)
        parts = blocks.amounts(points, GroupTimes(blocks.task, points))
        for word, own in product(data, together_of(flows, alike=self.alike)):
            self._of_states(axes, replace(option, data=word, flow=own[0]), blocks, same, kept, points, parts, own)

    def _counted(self, rules: Iterable[tuple[str, Array]], size: int, each: int = 1) -> Array:
        """The rows that no rule cuts; a row that several cut is counted for the first of them. ``each``: points of a row."""
        left: Array = np.ones(size, dtype=bool)
        for name, breaks in rules:
            self._cut(name, int(np.count_nonzero(left & breaks)) * each)
            left &= ~np.broadcast_to(breaks, (size,))
        return np.flatnonzero(left)

    def _of_states(
        self, axes: tuple[str, ...], option: Option, blocks: Blocks, same: Rows, kept: Array, points: Points,
        parts: Mapping[str, PartAmounts], flows: tuple[Flow, ...],
    ) -> None:  # fmt: skip
        piped = "pp" in axes
        divided = [flow for flow in flows if not piped or not np.mod(self._layers, points.pp * flow.chunks).all()]
        self._cut("layers % (pp * chunks)", len(points) * (len(flows) - len(divided)))
        if not divided:
            return
        try:
            sums = not piped and bool(points.m[0] > 1)
            states = self.states_of(axes, option, blocks, int(points.pp[0]), sums=sums)
        except InputError as error:
            self._cut(f"refused: {error.diagnostics[0].message}", len(points) * len(divided))
            return
        kinds = stage_kinds(states, points)
        every, sends = same.amounts(states)
        held, send = [taken(every[kind.number], kept) for kind in kinds], sends[kept]
        repeated = frozenset(part.name for part in blocks.segments if part.repeats)
        amounts = [stage_amounts(kind, parts, repeated) for kind in kinds]
        rooms = [float(self.task.room(communicators(axes, kind, parts, of_states))) for kind, of_states in zip(kinds, held, strict=True)]
        rows = {flow: self._counted(misfits(flow, kinds, repeated, points) if piped else (), len(points)) for flow in divided}
        bounded: dict[Flow, Bounds] = {}
        for together in alike_flows(flow for flow in divided if len(rows[flow])):
            sizes = [len(rows[flow]) for flow in together]
            number = np.concatenate([rows[flow] for flow in together])
            chunks: Array = np.repeat([float(flow.chunks) for flow in together], sizes)
            own = bounds(
                states.task, together[0], [taken(kind, number) for kind in kinds], [taken(of_kind, number) for of_kind in amounts],
                [taken(of_kind, number) for of_kind in held], taken(points, number), send[number], rooms, piped=piped, alike=self.alike,
                chunks=chunks if together[0].chunks > 1 else None,
            )  # fmt: skip
            ends = np.cumsum(sizes)
            bounded |= {flow: taken(own, slice(end - size, end)) for flow, size, end in zip(together, sizes, ends, strict=True)}
        for flow in divided:
            if flow in bounded:
                self._of_flow(replace(option, flow=flow), bounded[flow], points, rows[flow], piped=piped)

    def _of_flow(self, option: Option, own: Bounds, points: Points, rows: Array, *, piped: bool) -> None:
        """``own``: of these ``rows`` of the points."""
        fits = own.beyond <= ROUNDING * float(self.task.cluster.device.capacity)
        self._cut("does not fit", int(np.count_nonzero(~fits)))
        for nearest in np.argsort(own.beyond, kind="stable")[:NEAREST]:
            if len(self.nearest) >= NEAREST and own.beyond[nearest] >= self.nearest[-1][0]:
                break
            insort(self.nearest, (float(own.beyond[nearest]), point_of(points, rows[nearest], option)), key=lambda n: n[0])
            del self.nearest[NEAREST:]
        if self.keeps_unfit and piped and option.flow.chunks == 1 and option.recompute == "none" and not fits.all():
            self.unfit.append(Bounded(own.seconds[~fits], own.peak[~fits], rows[~fits], points, option))
        if fits.any():
            self.pool.append(Bounded(own.seconds[fits], own.peak[fits], rows[fits], points, option))

    def blocks_of(self, option: Option, axes: tuple[str, ...]) -> Blocks:
        """The blocks of a model, on meshes with several devices along these axes. Raises InputError."""
        key = (inside(axes), *option.key)
        if key not in self.known.blocks:
            self.known.blocks[key] = Blocks(self._tasks[option.fp8], replace(option, data="ddp"), inside(axes))
        return self.known.blocks[key]

    def states_of(self, axes: tuple[str, ...], option: Option, blocks: Blocks, stages: int, *, sums: bool) -> States:
        """What stages have of states. ``stages``: of all of them, where layers differ; ``sums``: whether gradients are added up by a loop
        of their own. Raises InputError."""
        several = stages > 1 and not self.alike
        key = (axes, option.data, option.sp, option.fp8, (stages, option.flow) if several else load(option.flow.schedule).layout, sums)
        if key not in self.known.states:
            of_any = replace(option, attention="ring", flow=Flow(schedule="1f1b") if key[4] is StageLayout.LOOP else option.flow)
            text = strategy_text(None, of_any, axes, accumulate=sums)
            self.known.states[key] = States(blocks.task, text, blocks, stages if several else None)
        return self.known.states[key]
