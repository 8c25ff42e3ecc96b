"""Small grids of placements, searched and tried one by one: the best, what is refused, and each bound, compared.

What is tried here shares nothing with `placeproof.planning` but the grid itself: strategies are written here, each is derived alone, and
whether it fits is what `process_memory` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from math import inf, isinf, prod
from typing import Any, NamedTuple

from plan_certificates import certificate_of, wrong

from placeproof.answers.models import Clock, ModelRun, derived, timed
from placeproof.answers.plan import question
from placeproof.clusters import Cluster
from placeproof.core.diagnostics import InputError
from placeproof.cost.model import ModelDerivation
from placeproof.cost.model.process import ProcessMemory, process_memory
from placeproof.cost.model.time import Overlap, StepTime
from placeproof.cost.values import read_numbers
from placeproof.implementations import BlockImplementation
from placeproof.models import Model
from placeproof.planning.bounding import Asked, Bounding
from placeproof.planning.frontier import Frontier, frontier
from placeproof.planning.objective import OBJECTIVES
from placeproof.planning.search import Outcome, Plan, Search
from placeproof.planning.space import Mesh, Option, Space
from placeproof.planning.structures import Structures
from placeproof.planning.task import Task
from placeproof.strategies import parse_strategy

#: How far a bound in floating-point numbers may be off.
ROUNDING = 1e-9


#: Rules that cut a point without deriving it.
UNEVEN, UNSHARDED = "batch % (dp * b)", "dp_replicate of what is not sharded"


class Key(NamedTuple):
    """A point, without what makes no difference to it: a strategy in words, and numbers."""

    strategy: str
    recompute: str
    b: int
    m: int
    fp8: bool
    order: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Alone:
    """A point derived by itself: ``refused`` says why it cannot be. ``beyond``: bytes of the fullest device that are too many; ``most``:
    the most bytes of tensors on one."""

    seconds: Fraction = Fraction(0)
    beyond: Fraction = Fraction(0)
    most: Fraction = Fraction(0)
    devices: int = 1
    fits: bool = False
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """What is asked of a search. ``settings``: as of `--set`."""

    name: str
    model: Model
    cluster: Cluster
    devices: int
    batch: int
    space: Space
    settings: tuple[str, ...] = ()
    precision: str = "mixed-adam"
    eta: Fraction | None = None
    overlap: Overlap = "data"
    reserve: Fraction | None = None
    run_by: BlockImplementation | None = None
    fp8: bool = False
    padding: int | None = None

    @property
    def task(self) -> Task:
        """For the search."""
        numbers = read_numbers(self.settings, self.precision)
        run = ModelRun(fp8=self.fp8, padding=self.padding, run_by=self.run_by)
        return question(self.model, run, numbers, self.clock, self.devices, batch=self.batch)

    @property
    def clock(self) -> Clock:
        """What times are told with."""
        return Clock(cluster=self.cluster, eta=self.eta, overlap=self.overlap, reserve=self.reserve)


def alone(asked: Instance, key: Key, known: dict[tuple[str, str, bool], ModelDerivation]) -> Alone:
    """A point by itself. ``known``: derivations, in which b and m are open, by strategy, recomputation and format."""
    numbers = read_numbers([*asked.settings, f"b={key.b}", f"m={key.m}"], asked.precision)
    run = ModelRun(recompute=key.recompute, fp8=key.fp8, padding=asked.padding, run_by=asked.run_by)
    shape = (key.strategy, key.recompute, key.fp8)
    try:
        if shape not in known:
            known[shape], _ = derived(asked.model, parse_strategy(key.strategy), run, numbers)
        _, step = timed(known[shape], numbers, replace(asked.clock, order=key.order))
    except InputError as error:
        return Alone(refused=error.diagnostics[0].message)
    assert step is not None
    memory = [process_memory(step, cost) for cost in step.d.costs]
    beyond, most = max(_beyond(step, own) for own in memory), max(own.tensors for own in memory)
    return Alone(seconds=step.seconds, beyond=beyond, most=most, devices=prod(map(int, step.price.mesh.values())), fits=beyond <= 0)


def _beyond(step: StepTime, shown: ProcessMemory) -> Fraction:
    """Bytes of tensors that a device has too many for what a driver usually shows, or beside what is kept free."""
    if shown.kept_free is not None:
        return shown.tensors + shown.kept_free - shown.capacity
    if shown.usual is None or shown.libraries is None:
        return shown.tensors - shown.capacity
    return (shown.usual - shown.capacity) * shown.tensors / (shown.usual - shown.libraries.most)


def tried(asked: Instance) -> tuple[dict[Key, Alone], Counter[str]]:
    """Every point of the grid by itself, and how many are cut by which rule."""
    found: dict[Key, Alone] = {}
    known: dict[tuple[str, str, bool], ModelDerivation] = {}
    cut: Counter[str] = Counter()
    for mesh, b, option in points(asked.space):
        key = key_of(mesh, option, b, asked.batch)
        if isinstance(key, str):
            cut[key] += 1
        elif key not in found:
            found[key] = alone(asked, key, known)
    return found, cut


def points(space: Space) -> Iterator[tuple[Mesh, int, Option]]:
    """All of a grid."""
    choices = product(space.meshes, space.b, space.data, space.sp, space.attention, space.recompute, space.fp8, space.flows, space.orders)
    for mesh, b, data, sp, attention, recompute, fp8, flow, order in choices:
        yield mesh, b, Option(data=data, sp=sp, attention=attention, recompute=recompute, fp8=fp8, flow=flow, order=order)


def key_of(mesh: Mesh, option: Option, b: int, batch: int) -> Key | str:
    """The point, or the rule that it breaks."""
    samples = mesh.dp * mesh.dp_shard * mesh.dp_replicate * mesh.ep
    if batch % (samples * b):
        return UNEVEN
    if option.data == "ddp" and mesh.dp_replicate > 1:
        return UNSHARDED
    m = batch // (samples * b)
    return Key(strategy=written(mesh, option, m), recompute=option.recompute, b=b, m=m, fp8=option.fp8, order=ordered(mesh, option.order))


def ordered(mesh: Mesh, order: str) -> tuple[str, ...] | None:
    """The axes, where stages lie inside of data parallelism, and there is some of both."""
    data = mesh.dp * mesh.dp_shard * mesh.dp_replicate
    if order == "dp-pp" or mesh.pp == 1 or data == 1:
        return None
    return tuple(axis for axis in ("tp", "cp", "ep", "pp", "dp", "dp_shard", "dp_replicate") if getattr(mesh, axis) > 1)


def keys_of(space: Space, batch: int) -> set[Key]:
    """The points that are derived."""
    found = {key_of(mesh, option, b, batch) for mesh, b, option in points(space)}
    return {key for key in found if isinstance(key, Key)}


def written(mesh: Mesh, option: Option, m: int) -> str:
    """The strategy, as a user would write it."""
    data, flow, words = option.data, option.flow, []
    if mesh.dp_replicate > 1:
        words.append(f"ddp({mesh.dp_replicate}, dp=dp_replicate)")
    if mesh.dp_shard > 1:
        words.append(f"{data}({mesh.dp_shard}, dp=dp_shard)")
    for axis, degree in (("dp", mesh.dp), ("cp", mesh.cp), ("ep", mesh.ep)):
        if degree > 1 and axis == "dp":
            words.append(f"{data}({degree})")
        elif degree > 1 and data != "ddp":  # what is the same on these devices is shared out over them
            words.append(f"{data}(dp={axis})")
    if mesh.tp > 1:
        words += [f"tp({mesh.tp})", "sp"] if option.sp else [f"tp({mesh.tp})"]
    if mesh.cp > 1:
        words.append(f"cp({mesh.cp})" if option.attention == "ring" else f"cp({mesh.cp}, attention={option.attention})")
    if mesh.ep > 1:
        words.append(f"ep({mesh.ep})")
    if mesh.pp > 1:
        chunks = f", chunks={flow.chunks}" if flow.schedule == "interleaved" else ""
        words.append(f"pp({mesh.pp}, schedule={flow.schedule}{chunks})")
    elif m > 1 or not words:
        words.append("accumulate")
    return " * ".join(words)


@dataclass(frozen=True)
class Bounded:
    """What the search says of a point at least."""

    seconds: float
    beyond: float
    peak: float
    schedule: str


class Watched(Bounding):
    """Bounds of which each is remembered; and that of what blocks alone take."""

    def __init__(self, of: Structures) -> None:
        super().__init__(of)
        self.bounded: dict[Key, Bounded] = {}
        self.repeated: list[Key] = []
        self.above: list[Key] = []

    def _close(self, one: Any, asked: Any, found: Any) -> None:
        self.least = self._least(one)
        super()._close(one, asked, found)

    def _of_flow(self, option: Option, own: Any, table: Any, rows: Any, found: Any, *, piped: bool) -> None:
        for place, row in enumerate(rows):
            mesh = Mesh(**{axis: int(getattr(table, axis)[row]) for axis in ("tp", "cp", "ep", "dp", "dp_shard", "dp_replicate", "pp")})
            key = key_of(mesh, option, int(table.b[row]), self.of.task.batch)
            assert isinstance(key, Key)
            assert key.m == table.m[row]
            if key in self.bounded:
                self.repeated.append(key)
            least = float(self.least[option.flow][place])
            if (isinf(least) and own.beyond[place] <= 0) or (not isinf(least) and least > own.seconds[place]):
                self.above.append(key)
            word = option.flow.schedule if mesh.pp > 1 else "no pipeline"
            self.bounded[key] = Bounded(float(own.seconds[place]), float(own.beyond[place]), float(own.peak[place]), word)
        super()._of_flow(option, own, table, rows, found, piped=piped)


@dataclass
class Compared:
    """What a search and single derivations say of a grid. ``why``: in what they differ."""

    points: int = 0
    derived: int = 0
    fit: int = 0
    why: list[str] = field(default_factory=list)
    ratios: list[tuple[str, float, float]] = field(default_factory=list)


def held_against(asked: Instance, count: int, truth: dict[Key, Alone], cut: Counter[str]) -> Compared:
    """The best of a grid, so many, by a search and by trying all, by each objective; those that nothing beats; and all bounds."""
    result = Compared(points=asked.space.size, derived=len(truth), fit=sum(one.fits for one in truth.values()))
    search = Search(asked.task, asked.space)
    outcome = search.run(count)
    watched = Watched(search.structures)
    for unit in search.units():
        watched.of_unit(Asked(unit, None, inf))
    for name, value in VALUES.items():
        own = outcome if name == "time" else Search(asked.task, asked.space, search.known).run(count, objective=OBJECTIVES[name])
        result.why += [f"{name}: {why}" for why in _optimum(own, truth, count, value)]
        result.why += [] if name == "time" else _counts(own, asked.space.size, len(truth), cut)
    again = Search(asked.task, asked.space, search.known)
    again.bound()
    result.why += _unbeaten(frontier(again), truth, sum(len(one.rows) for one in again.pool))
    result.why += _counts(outcome, asked.space.size, len(truth), cut)
    result.why += _certified(asked, search, outcome, count, truth)
    result.why += [f"bounded twice: {key}" for key in watched.repeated]
    result.why += [f"blocks alone are said to take more: {key}" for key in watched.above]
    result.why += _all_bounds(truth, watched.bounded, ROUNDING * float(asked.cluster.device.capacity))
    result.why += [f"not of the grid: {key}" for key in watched.bounded.keys() - truth.keys()]
    best = min((one.seconds for one in truth.values() if one.fits), default=Fraction(0))
    for key, own in watched.bounded.items():
        if key in truth and not truth[key].refused:
            result.ratios.append((own.schedule, own.seconds / float(truth[key].seconds), float(truth[key].seconds / best) if best else 0.0))
    return result


def _certified(asked: Instance, search: Search, outcome: Outcome, count: int, truth: dict[Key, Alone]) -> Iterator[str]:
    try:
        document = certificate_of(Search(asked.task, asked.space, search.known), outcome, count)
    except AssertionError as error:
        yield f"there is no certificate: {error}"
        return
    known: dict[tuple[Mesh, int, Option], tuple[Fraction, Fraction] | None] = {}
    for mesh, b, option in points(asked.space):
        key = key_of(mesh, option, b, asked.task.batch)
        one = truth.get(key) if isinstance(key, Key) else None
        known[mesh, b, option] = None if one is None or one.refused else (one.seconds, one.beyond)
    yield from () if document is None else wrong(document, asked.space, known)


def _same(key: Key, one: Alone) -> tuple[object, ...]:
    """Recomputation that makes no difference to a point is left out of it."""
    return (key.strategy, key.b, key.m, key.fp8, key.order, one.seconds, one.beyond)


#: What is least of the best point, by what is wanted.
VALUES: dict[str, Callable[[Alone], Fraction]] = {
    "time": lambda one: one.seconds,
    "memory": lambda one: one.most,
    "tokens-per-device": lambda one: one.seconds * one.devices,
}


def _optimum(outcome: Outcome, truth: dict[Key, Alone], count: int, value: Callable[[Alone], Fraction]) -> Iterator[str]:
    fit = {_same(key, one): value(one) for key, one in truth.items() if one.fits}
    best, own = sorted(fit.values()), [value(truth[key]) for key in map(of_plan, outcome.plans) if key in truth]
    listed = sorted({_same(key, truth[key]): value(truth[key]) for key in map(of_plan, outcome.plans) if key in truth}.values())
    if listed != best[: len(listed)] or (len(own) < count and len(listed) < len(best)) or own != sorted(own):
        yield f"the best have {[float(n) for n in best[:count]]}, and these were found: {[float(n) for n in own]}"
    yield from _none(outcome.plans, truth)


def _none(plans: list[Plan], truth: dict[Key, Alone]) -> Iterator[str]:
    for plan in plans:
        key = of_plan(plan)
        said = truth.get(key)
        if said is None or not said.fits or (said.seconds, said.most) != (plan.seconds, plan.most):
            yield f"a plan that is none: {key}: {said}"


def _unbeaten(found: Frontier, truth: dict[Key, Alone], bounded: int) -> Iterator[str]:
    """What is wrong with a frontier: every pair of numbers that no other one beats is there once, and nothing else is."""
    fit = {(one.seconds, one.most) for one in truth.values() if one.fits}
    best = sorted(one for one in fit if not any(a <= one[0] and b <= one[1] and (a, b) != one for a, b in fit))
    own = [(plan.seconds, plan.most) for plan in found.plans]
    if own != best:
        yield f"nothing beats {[(*map(float, one),) for one in best]}, and these were found: {[(*map(float, one),) for one in own]}"
    yield from _none(found.plans, truth)
    if (total := found.beaten + sum(found.cut.values()) + len(found.plans)) != bounded:
        yield f"{total} of {bounded} points are accounted for: {found}"


def of_plan(plan: Plan) -> Key:
    point = plan.point
    order = ordered(point.mesh, point.option.order)
    return Key(written(point.mesh, point.option, point.m), point.option.recompute, point.b, point.m, point.option.fp8, order)


def _counts(outcome: Outcome, size: int, each: int, cut: Counter[str]) -> Iterator[str]:
    total = sum(outcome.cut.values()) + outcome.bounded + len(outcome.plans)
    if total != size:
        yield f"{total} of {size} points are accounted for: {outcome}"
    if outcome.cut.get(UNEVEN, 0) != cut[UNEVEN]:
        yield f"of {cut[UNEVEN]} points the batch is not shared out evenly: {outcome.cut}"
    same = size - cut.total() - each
    if outcome.cut.get("the same as another point", 0) + outcome.cut.get(UNSHARDED, 0) < same + cut[UNSHARDED]:
        yield f"at least {same} points are the same as another, and of {cut[UNSHARDED]} nothing is sharded: {outcome.cut}"


def _all_bounds(truth: dict[Key, Alone], bounded: dict[Key, Bounded], least: float) -> Iterator[str]:
    """``least``: bytes that rounding may make of nothing."""
    tried_as = {_same(key, truth[key]) for key in bounded if key in truth}
    for key, one in truth.items():
        own = bounded.get(key)
        if one.refused or (own is None and _same(key, one) in tried_as):
            continue
        if own is None:
            yield f"cut, and derived alone: {key}"
        elif not own.seconds <= float(one.seconds) * (1 + ROUNDING):
            yield f"at least {own.seconds} s are said, and it takes {float(one.seconds)}: {key}"
        elif not own.beyond <= float(one.beyond) + least:
            yield f"at least {own.beyond} bytes too many are said, and they are {float(one.beyond)}: {key}"
        elif not own.peak <= float(one.most) * (1 + ROUNDING):
            yield f"at least {own.peak} bytes are said, and they are {float(one.most)}: {key}"
