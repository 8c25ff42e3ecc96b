"""The best layers of each stage of a plan with a pipeline, and how many of them are computed again.

What a stage takes and holds is derived once for each kind of stage, in symbols for how many layers of each kind it has; then it is a number
for any of them. The layers are shared out by :mod:`placeproof.planning.partition`, and what that finds is worked out as any plan is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import lcm
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from placeproof.core.diagnostics import InputError
from placeproof.core.stages import stages_text
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.derive import evaluate
from placeproof.cost.model.derivation import StageCost, cost_of
from placeproof.cost.model.extents import Members
from placeproof.cost.model.parts import DeviceSegment
from placeproof.cost.model.prices import Exact, Known
from placeproof.cost.model.recomputation import Extent, extent, words
from placeproof.cost.model.stages import Stage, stage_of
from placeproof.cost.model.time import stage_time
from placeproof.models import turns
from placeproof.planning.exact import Placed, Plan, room, worked_out
from placeproof.planning.objective import OBJECTIVES
from placeproof.planning.partition import Bound, Pipeline, Share, assigned
from placeproof.planning.pool import Queue
from placeproof.planning.search import Search
from placeproof.planning.space import Point
from placeproof.planning.task import Task
from placeproof.schedules import StageLayout, Times, is_own, load
from placeproof.schedules import step as makespan

if TYPE_CHECKING:
    import sympy

#: Words of recomputation between which each layer can choose, where both are tried: so many first layers of each stage are computed again.
BY_LAYER = frozenset({"none", "full"})
#: Layers that a stage has more than its equal share at first, until it is known how many it may have.
MORE = 2

#: Layers of a stage, by the names of their segments.
Layers: TypeAlias = tuple[str, ...]


#: Points that are no plans, of whose stages the layers are shared out, at most.
MOST_BEYOND = 4


@dataclass(frozen=True, kw_only=True)
class Uneven:
    """The best layers of the stages of a plan: ``best``, None where none is better, or, of a plan that does not fit, where none fits.
    ``least``: no assignment takes less, None where none fits. ``tried``: how many were worked out. ``because``: why none was looked for."""

    of: Plan
    best: Placed | None = None
    least: Fraction | None = None
    tried: int = 0
    because: str = ""

    @property
    def optimal(self) -> bool:
        """Whether no assignment of layers to the stages of this plan is better."""
        return self.least is None or self.least >= (self.best or self.of).seconds


def unmoved(point: Point) -> str:
    """Why layers of a placement's stages are not shared out otherwise; empty where they can be."""
    flow = point.option.flow
    if point.mesh.pp == 1:
        return "no pipeline"
    schedule = load(flow.schedule)
    if flow.chunks > 1 or schedule.layout is not StageLayout.LOOP:
        return "several runs of layers on a device"
    return "an order that is searched for" if is_own(flow.schedule) or schedule.search is not None else ""


def all_uneven(search: Search, plans: Sequence[Plan], verdict: Callable[[Point], str]) -> Iterator[Uneven]:
    """The best layers of the stages of plans that a search found, and of other points, one after the other: of those that fit only if all
    layers are computed again, the first by their bounds if none were, as far as these are below the last plan's time; or, where there is no
    plan, of those that are nearest to fitting. ``verdict``: as of :meth:`placeproof.planning.search.Search.run`.
    """
    words = search.space.recompute
    seen: set[Point] = set()
    for number, plan in enumerate((*plans, *_beyond(search, plans))):
        same = replace(plan.point, option=replace(plan.point.option, recompute=""))
        if same in seen:
            because = "the same as another one but for what is computed again"
        elif not (because := unmoved(plan.point)) and number >= len(plans) and (word := verdict(plan.point)) != "proved":
            because = f"{word}, not proved"
        seen.add(same)
        try:
            yield Uneven(of=plan, because=because) if because else uneven(search.task, plan, words)
        except InputError as error:
            yield Uneven(of=plan, because=error.diagnostics[0].message)


def _beyond(search: Search, plans: Sequence[Plan]) -> Iterator[Plan]:
    """Points that are no plans: as of :func:`all_uneven`."""
    if not plans:
        yield from islice((plan for plan in search.near() if not unmoved(plan.point)), MOST_BEYOND)
    elif {*search.space.recompute} >= BY_LAYER:
        queue, whole = Queue(search.found.unfit, OBJECTIVES["time"]), _computed_again(search)
        tried = 0
        while queue and tried < MOST_BEYOND and queue.least < plans[-1].seconds:
            point = queue.pop()
            again = replace(point, option=replace(point.option, recompute="full"))
            if again in whole and isinstance(plan := search.asked(again), Plan) and all(plan.point != other.point for other in plans):
                tried += 1
                yield plan


def _computed_again(search: Search) -> set[Point]:
    """Points with a pipeline that may fit if all layers are computed again."""
    queue = Queue([one for one in search.pool if one.option.recompute == "full" and one.option.flow.chunks == 1], OBJECTIVES["time"])
    return {point for _ in range(len(queue)) if (point := queue.pop()).mesh.pp > 1}


def uneven(task: Task, plan: Plan, recompute: Sequence[str]) -> Uneven:
    """The best layers of a plan's stages, and of ``recompute``, words that may be said of them, the best. The plan is one of which
    :func:`unmoved` says nothing.

    Raises InputError where nothing can be derived of its stages.
    """
    task = task.narrow(plan.point.option.fp8)
    by_layer = {*recompute} >= BY_LAYER
    families = [_Family("full", by_layer=True)] if by_layer else []
    families += [_Family(word, by_layer=False) for word in recompute if not (by_layer and word in BY_LAYER)]
    found = Uneven(of=plan)
    for family in families:
        sharing = _Sharing(task=task, plan=plan, family=family, below=_below(found))
        if family.by_layer or not by_layer or sharing.recomputes:
            own = sharing.run()
            least = [one.least for one in (found, own) if one.least is not None]
            found = Uneven(of=plan, best=own.best or found.best, least=min(least, default=None), tried=found.tried + own.tried)
    return found


def _below(found: Uneven) -> Fraction | None:
    """What another assignment has to take less than."""
    return found.best.seconds if found.best is not None else found.of.seconds if found.of.fits else None


class _Family(NamedTuple):
    """Assignments that compute again what some words say; ``by_layer``: in the first layers of each stage, in so many as have to."""

    words: str
    by_layer: bool


class _Seconds(NamedTuple):
    """Of a stage: its passes, what comes once a step, as far as that is exchanges which a pass could hide, and all of it; a message."""

    passes: tuple[Fraction, Fraction, Fraction]
    exposed: Fraction
    tail: Fraction
    send: Fraction


@dataclass(kw_only=True)
class _Kind:
    """A kind of stage, in symbols for the numbers of its layers: ``peak`` with all other values put in, and the room that there is."""

    cost: StageCost
    peak: sympy.Expr
    room: Fraction


@dataclass(kw_only=True)
class _Sharing:
    """The layers of one plan, shared out over its stages so that a step takes less than ``below``, if that is said."""

    task: Task
    plan: Plan
    family: _Family
    below: Fraction | None
    _kinds: dict[tuple[object, ...], _Kind] = field(default_factory=dict)
    _times: dict[tuple[object, ...], _Seconds] = field(default_factory=dict)
    _found: dict[tuple[int, Layers], dict[int, _Seconds]] = field(default_factory=dict)

    @cached_property
    def depth(self) -> int:
        """Stages."""
        return self.plan.point.mesh.pp

    @cached_property
    def times(self) -> dict[str, int]:
        """How often the model has each of its segments."""
        return {name: int(n) for name, n in self.task.model.times().items()}

    @cached_property
    def order(self) -> Layers:
        """The layers of the model, one after the other."""
        repeated = [turn for turn in turns(self.task.model.segments) if str(turn[0].times) != "1"]
        return tuple(s.name for turn in repeated for _ in range(self.times[turn[0].name]) for s in turn)

    @property
    def layers(self) -> int:
        """So many."""
        return len(self.order)

    @cached_property
    def whole(self) -> Placed:
        """The plan with as many layers in each stage, as far as that can be: what all others are like."""
        each, more = divmod(self.layers, self.depth)
        layers = tuple(each + (number < more) for number in range(self.depth))
        return self._worked_out("full:1" if self.family.by_layer else self.family.words, layers)

    @property
    def recomputes(self) -> bool:
        """Whether backward computes something again of some layer."""
        return any(p.repeats and p.layer != p.plain for p in self.whole.step.d.parts)

    @cached_property
    def ends(self) -> tuple[bool, bool]:
        """Whether the model has something before its layers, and behind them."""
        repeats = [str(s.times) != "1" for s in self.task.model.segments]
        return not repeats[0], not repeats[-1]

    def run(self) -> Uneven:
        """The best assignment: first of nearly equal numbers, and then of all that may be better than that."""
        most = [min(self.layers, -(-self.layers // self.depth) + MORE)] * self.depth
        while True:
            found = self._within(most)
            seconds = self.below if found.best is None else found.best.seconds
            wider = [max(n, self._reach(number, n, seconds)) for number, n in enumerate(most)]
            if wider == most:
                return found
            most = wider

    def _reach(self, number: int, layers: int, seconds: Fraction | None) -> int:
        """Layers that a stage may have in an assignment that takes less: with one more, it takes as long alone."""
        while layers < self.layers:
            if seconds is not None and all(self._alone(number, own) >= seconds for own in self._runs(number, layers + 1)):
                break
            layers += 1
        return layers

    def _runs(self, number: int, count: int) -> set[Layers]:
        """So many layers that a stage may have."""
        last = self.layers - count
        places = range(1) if number == 0 else range(last, last + 1) if number == self.depth - 1 else range(last + 1)
        return {self.order[first : first + count] for first in places}

    def _alone(self, number: int, layers: Layers) -> Fraction:
        """What a step takes at least in which a stage has these layers, whatever the others have."""
        own = self._seconds(number, layers, 0)
        unit = lcm(*(n.denominator for n in (*own.passes, own.send)))
        forward, backward, weight = (int(n * unit) for n in own.passes)
        share = Share(len(layers), 0, forward, backward, weight, 0)
        pipeline = self._pipeline(int(own.send * unit))
        return Fraction(pipeline.before(share, number, Bound(0, 0, 0)).passes, unit)

    def _pipeline(self, send: int) -> Pipeline:
        return Pipeline(schedule=load(self.plan.point.option.flow.schedule), devices=self.depth, batches=self.plan.m, send=send)

    def _within(self, most: Sequence[int]) -> Uneven:
        """The best assignment of at most so many layers to each stage."""
        below = self.below
        every = {
            (n, first, count): own for n, first, count in self._places(most) if (own := self._of(n, self.order[first : first + count]))
        }
        if not every:
            return Uneven(of=self.plan)
        seconds = [one for own in every.values() for one in own.values()]
        numbers = (n for one in seconds for n in (*one.passes, one.tail, one.send))
        unit = lcm(*(n.denominator for n in (*numbers, below or Fraction(1))))
        shares = {
            place: tuple(Share(place[2], k, *(int(n * unit) for n in (*one.passes, one.tail))) for k, one in own.items())
            for place, own in every.items()
        }
        pipeline, send = self._pipeline(int(min(one.send for one in seconds) * unit)), max(one.send for one in seconds) * unit

        def step(assignment: Sequence[Share]) -> int:
            rows = [Times(forward=s.forward, backward=s.backward, weight=s.weight, send=send) for s in assignment]
            return int(makespan(pipeline.schedule, p=self.depth, m=self.plan.m, v=1, times=rows))

        found = assigned(pipeline, self.layers, lambda *place: shares.get(place, ()), step, None if below is None else int(below * unit))
        if found is None or isinstance(found, int):
            return Uneven(of=self.plan, best=None, least=None if found is None else Fraction(found, unit))
        best = self._again(found.shares)
        assert best.fits, "each stage fits"
        assert best.seconds == Fraction(found.seconds, unit), "a step takes what its stages say"
        return Uneven(of=self.plan, best=best, least=Fraction(found.least, unit), tried=found.tried)

    def _places(self, most: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Stages, each behind so many layers, with so many of its own; a stage between the ends has one at least."""
        for number, own in enumerate(most):
            behind = sum(most[number + 1 :])
            for first in range(max(0, self.layers - own - behind), min(self.layers, sum(most[:number])) + 1):
                for count in range(max(0, self.layers - first - behind), min(own, self.layers - first) + 1):
                    if count or (number in (0, self.depth - 1) and self.ends[number > 0]):
                        yield number, first, count

    def _again(self, shares: Sequence[Share]) -> Placed:
        """An assignment, worked out."""
        layers, again = tuple(s.layers for s in shares), [s.again for s in shares]
        words = self.family.words
        if self.family.by_layer and again != [*layers]:
            words = f"full:{stages_text(again)}" if any(again) else "none"
        same = words.partition(":")[0] == self.whole.recompute.partition(":")[0]
        return self._worked_out(words, layers if len({*layers}) > 1 else (), self.whole.step.d.parts if same else None)

    def _worked_out(self, words: str, layers: tuple[int, ...], segments: tuple[DeviceSegment, ...] | None = None) -> Placed:
        plan = self.plan
        return worked_out(
            self.task, plan.expression, recompute=words, b=plan.b, m=plan.m, layers=layers, segments=segments, order=plan.order
        )

    def _of(self, number: int, layers: Layers) -> dict[int, _Seconds]:
        """What a stage takes that has these layers, by how many are computed again: as few as fit; and more of them, as long as these hide
        exchanges that come once a step. Nothing else is shorter with more of them."""
        if (number, layers) not in self._found:
            found = self._found[number, layers] = {}
            for k in range(len(layers) + 1) if self.family.by_layer else (0,):
                kind, counts = self._kind(number, layers, k)
                peak = evaluate(kind.peak, counts)
                if peak is None or peak > kind.room:
                    continue
                found[k] = self._seconds(number, layers, k)
                if not found[k].exposed:
                    break
        return self._found[number, layers]

    def _seconds(self, number: int, layers: Layers, again: int) -> _Seconds:
        """What a stage takes with these layers, the first ones of which are computed again; others of the same kind take as long."""
        kind, counts = self._kind(number, layers, again)
        stage = kind.cost.stage
        key = (stage.first, stage.last, id(self.whole.step.d.step.at(stage)), _names(stage), *counts.values())
        if key not in self._times:
            time = stage_time(self.whole.step.d, kind.cost, self._price(counts), self.task.overlap)
            forward, backward, weight = map(Fraction, time.passes)
            self._times[key] = _Seconds((forward, backward, weight), Fraction(time.exposed[2]), Fraction(time.tail), Fraction(time.send))
        return self._times[key]

    def _price(self, counts: Mapping[str, Fraction]) -> Exact:
        """Of amounts that speak of numbers of layers."""
        price = self.whole.step.price
        return replace(price, values={**price.values, **counts}, known=Known(exchanges=price.known.exchanges))

    def _kind(self, number: int, layers: Layers, again: int) -> tuple[_Kind, dict[str, Fraction]]:
        """The kind of a stage, and the numbers of its layers."""
        d = self.whole.step.d
        of = Extent(layers=again, grouped=False) if self.family.by_layer else extent(words(self.family.words))
        stage = stage_of(d.parts, self.times, number, self.depth, layers, of)
        opened, counts = _opened(stage)
        key = (number, _names(opened))
        if key not in self._kinds:
            cost = cost_of(d, opened)
            price = self._price(counts)
            known = {s: _rational(price.values[str(s)]) for s in cost.peak.free_symbols if str(s) not in counts}
            self._kinds[key] = _Kind(cost=cost, peak=cost.peak.xreplace(known), room=room(self.task, price, cost))
        return self._kinds[key], counts


def _opened(stage: Stage) -> tuple[Stage, dict[str, Fraction]]:
    """A stage with symbols for how many layers of each kind it has, and how many of them are behind others; and their numbers."""
    import sympy

    counts: dict[str, Fraction] = {}

    def open_(members: Members) -> Iterator[tuple[DeviceSegment, Amount]]:
        for part, number in members:
            if part.repeats:
                name = f"layers_{len(counts)}"
                counts[name] = Fraction(int(number))
                yield part, sympy.Symbol(name, positive=True, integer=True)
            else:
                yield part, number

    held = tuple(open_(stage.held))
    replays = tuple(replace(replay, freed=tuple(open_(replay.freed))) for replay in stage.replays)
    return replace(stage, held=held, replays=replays), counts


def _names(stage: Stage) -> tuple[tuple[str, ...], ...]:
    """What a stage has, and computes again at once, by name."""
    together = (stage.held, *(members for replay in stage.replays for members in (replay.members, replay.freed)))
    return tuple(tuple(part.name for part, _ in members) for members in together)


def _rational(number: Fraction) -> sympy.Expr:
    import sympy

    return sympy.Rational(number.numerator, number.denominator)
