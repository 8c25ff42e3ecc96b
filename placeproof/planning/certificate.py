"""The certificate of a plan: the grid, bounds as formulas, what was derived exactly, and boxes that take the grid apart, each with the
reason why no point of it is better. :mod:`placeproof.verify.plan` says what it means, and checks it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from math import prod
from typing import Any

from placeproof.core.diagnostics import InputError, refuse
from placeproof.planning.bounds import StageKind, bounds, message_seconds, misfits, stage_amounts, stage_kinds
from placeproof.planning.choices import shown
from placeproof.planning.exact import Plan
from placeproof.planning.formulas import Asked, Log, RecordedTimes
from placeproof.planning.pool import inside
from placeproof.planning.search import Outcome, Search
from placeproof.planning.space import AXES, COPIED, INSIDE, ORDERS, REPLICAS, SHARING, Flow, Mesh, Option, Point, Space, axes_of
from placeproof.planning.tables import Blocks, PartAmounts, Points, StateAmounts
from placeproof.verify import plan as checker

#: How many values the fields of a table have, 0 of one that is a value.
_FIELDS: Mapping[type[PartAmounts | StateAmounts], Mapping[str, int]] = {
    PartAmounts: {"kept": 0, "late": 0, "working": 0, "computing": 4, "inside": 2, "launches": 2},
    StateAmounts: {"held": 0, "transient": 0, "updating": 0, "update": 0, "data": 2, "once": 2},
}
#: The options that a table depends on.
_BY = {"blocks": ("sp", "attention", "recompute", "fp8"), "states": ("sp", "fp8", "data", "flow", "order")}
#: Reasons in the order in which they are tried of a box.
_REASONS = ("batch", "uneven", "order", "refused", "memory", "time", "exact")
#: In which order a box is taken apart.
_ORDER = ("mesh", "b", "flow", "recompute", "attention", "sp", "fp8", "data", "order")


def written(search: Search, outcome: Outcome, count: int, question: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate that no point of a search's grid is better than the plans that it found; ``question``: what says what was asked.

    Raises InputError where an exchange has no closed form.
    """
    document = stated(search, question) | {"count": count}
    document |= {"derived": [*_derived(search, outcome, document["grid"])], "tree": "exact"}
    return document | {"tree": _tree(checker.Plan(document))}


def stated(search: Search, question: Mapping[str, Any]) -> dict[str, Any]:
    """What of a certificate says what is asked: the grid, and formulas of bounds on all of it."""
    recorder = Recorder(search)
    space = search.space
    tables = {"blocks": recorder.blocks(), "states": recorder.states()}
    exchanges, lines = recorder.exchanges()
    every = len({*recorder.asked}) + 2  # one communicator for the axes of each exchange, and for those between stages
    return {
        "schema": checker.SCHEMA,
        "question": dict(question),
        "grid": {
            "devices": sorted({prod(_degrees(mesh)) for mesh in space.meshes}),
            "batch": search.task.batch,
            "axes": list(AXES),
            "meshes": [list(_degrees(mesh)) for mesh in space.meshes],
            "replicas": list(REPLICAS),
            "choices": {"b": list(space.b)} | _options(space),
        },
        "formulas": recorder.log.lines,
        "exchanges": exchanges,
        "lines": lines,
        "rooms": [str(search.task.room(n)) for n in range(every)],
        "tables": tables,
    }


def differences(search: Search, document: Mapping[str, Any], verdict: Callable[[Point], str]) -> Iterator[str]:
    """What of a certificate is not what a search of its question derives: formulas, what was derived of points, and verdicts on plans."""
    now = stated(search, document["question"])
    yield from (f"`{name}` is not that of the question" for name, value in now.items() if document.get(name) != value)
    for row in document["derived"]:
        point = _placed(search, row["point"], document["grid"])
        because = row["because"] if row["because"] in ("listed", "unproved") else "slower"
        if row != _row(search, point, search.asked(point), because, document["grid"]):
            yield f"what was derived of `{point.expression}` is not so"
        elif row["because"] == because != "slower" and (verdict(point) == "proved") != (because == "listed"):
            yield f"`{point.expression}` is {verdict(point)}"


def _options(space: Space, option: Option | None = None, axes: Collection[str] = AXES) -> dict[str, list[str]]:
    """The options of a grid, by coordinate; or those that are the same as ``option`` on meshes with several devices along some axes."""
    every = {
        "flow": space.flows, "recompute": space.recompute, "attention": space.attention, "sp": space.sp, "fp8": space.fp8,
        "data": space.data, "order": space.orders,
    }  # fmt: skip
    if option is not None:
        there = {"flow": "pp" in axes, "attention": "cp" in axes, "sp": "tp" in axes, "data": not {*SHARING}.isdisjoint(axes)}
        there["order"] = len(space.options_of((*axes,))[-1]) == len(space.orders)
        every |= {name: (getattr(option, name),) for name in every if there.get(name, True)}
    return {name: [shown(value) for value in values] for name, values in every.items()}


class Recorder:
    """Formulas of the bounds of a search, for all its options."""

    def __init__(self, search: Search) -> None:
        self.search, self.log = search, Log()
        self.asked: dict[Asked, int] = {}
        variable = self.log.variable
        self.points = Points(**{name: variable(name) for name in (*AXES, "b", "m")}, number=self.log.number)
        self.points = replace(self.points, vocabulary=search.structures.vocabulary(self.points.tp))
        self.times = RecordedTimes(self.log, self.asked)

    def blocks(self) -> dict[str, Any]:
        """What blocks take, by the axes that split them and by what they depend on."""
        space, entries = self.search.space, []
        for axes in dict.fromkeys(inside(axes_of(own)) for own in space.classes()):
            sps, attentions, *_ = space.options_of(axes)
            same: list[tuple[Any, list[str]]] = []  # recomputations that change nothing beside others
            for sp, attention, fp8, recompute in product(sps, attentions, space.fp8, space.recompute):
                option = Option(data=space.data[0], sp=sp, attention=attention, recompute=recompute, fp8=fp8, flow=space.flows[0])
                made = self._block(option, axes)
                alike = sp, attention, fp8, recompute if "refused" in made else self.search.structures.blocks_of(option, axes).alike
                if words := next((words for one, words in same if one == alike), None):
                    words.append(recompute)
                    continue
                same.append((alike, [recompute]))
                own = _options(space, option, axes) | {"recompute": same[-1][1]}
                of = {name: own[name] for name in _BY["blocks"]}
                entries.append({"axes": list(axes), "pp": None, "several": None, "of": of} | made)
        return {"by": list(_BY["blocks"]), "axes": list(INSIDE), "entries": entries}

    def _block(self, option: Option, axes: tuple[str, ...]) -> dict[str, Any]:
        try:
            blocks = self.search.structures.blocks_of(option, axes)
        except InputError as error:
            return {"refused": error.diagnostics[0].message}
        parts = blocks.amounts(self.points, self.times)
        return {
            "broken": [self._line(breaks) for _, breaks in blocks.uneven(self.points)],
            "slots": {name: self._line(value) for part, own in parts.items() for name, value in _slots(part, own)},
            "over": {part: _lists(own.axes) for part, own in parts.items()},
        }

    def _any_blocks(self, option: Option, axes: tuple[str, ...]) -> Blocks:
        """The blocks with some of the options that states do not depend on. Raises InputError where there are none with any."""
        refused: list[InputError] = []
        for attention, recompute in product(self.search.space.options_of(axes)[1], self.search.space.recompute):
            try:
                return self.search.structures.blocks_of(replace(option, attention=attention, recompute=recompute), axes)
            except InputError as error:
                refused.append(error)
        raise refused[0]

    def states(self) -> dict[str, Any]:
        """What stages have of states, and bounds, by axes and by what they depend on."""
        space, entries = self.search.space, []
        alike = self.search.structures.alike
        for own in space.classes(by_stages=not alike):
            axes, stages = axes_of(own), own[0].pp
            sps, attentions, data, flows, orders = space.options_of(axes)
            sums = (False, True) if "pp" not in axes else (None,)
            for sp, fp8, word, flow, order, several in product(sps, space.fp8, data, flows, orders, sums):
                words = {"data": word, "attention": attentions[0], "recompute": space.recompute[0], "order": order}
                option = Option(sp=sp, fp8=fp8, flow=flow, **words)
                own_of = _options(space, option, axes)
                of = {name: own_of[name] for name in _BY["states"]}
                entry = {"axes": list(axes), "pp": None if alike else stages, "several": several, "of": of}
                entries.append(entry | self._states(option, axes, stages, sums=bool(several)))
        return {"by": list(_BY["states"]), "axes": list(AXES), "entries": entries}

    def _states(self, option: Option, axes: tuple[str, ...], stages: int, *, sums: bool) -> dict[str, Any]:
        if "dp_replicate" in axes and option.data in COPIED:
            return {"refused": "dp_replicate of what is not sharded"}
        try:
            blocks = self._any_blocks(option, axes)
            states = self.search.structures.states_of(axes, option, blocks, stages, sums=sums)
        except InputError as error:
            return {"refused": error.diagnostics[0].message}
        kinds = stage_kinds(states, self.points)
        times = replace(self.times, order=option.order)
        held = [states.amounts(kind.number, self.points, times) for kind in kinds]
        own = {name: self._line(value) for i, one in enumerate(held) for name, value in _slots(str(i), one)}
        send = self._line(message_seconds(states, states.task, self.points, times))
        repeated = frozenset(part.name for part in blocks.segments if part.repeats)
        seconds, beyond = self._bounds(option.flow, axes, blocks, kinds, held)
        return {
            "broken": [self._line(breaks) for _, breaks in misfits(option.flow, kinds, repeated, self.points)] if "pp" in axes else [],
            "slots": {**own, "send": send},
            "parts": [list(kind.times) for kind in kinds],
            "over": [_lists(one.axes | ({("pp",)} if "pp" in axes else set())) for one in held],
            "seconds": seconds,
            "beyond": beyond,
        }

    def _bounds(
        self, flow: Flow, axes: tuple[str, ...], blocks: Blocks, kinds: tuple[StageKind, ...], held: Sequence[StateAmounts]
    ) -> tuple[int, int]:
        """The formulas of the bounds, in what blocks and states come to."""
        repeated = frozenset(part.name for part in blocks.segments if part.repeats)
        parts = {part.name: PartAmounts(**self._open(part.name, PartAmounts), axes=frozenset()) for part in blocks.segments}
        own = [StateAmounts(**self._open(str(i), StateAmounts), axes=one.axes) for i, one in enumerate(held)]
        found = bounds(
            blocks.task, flow, kinds, [stage_amounts(kind, parts, repeated) for kind in kinds], own, self.points,
            self.log.variable("send"), [self.log.variable(f"{i}.room") for i in range(len(kinds))],
            piped="pp" in axes, alike=self.search.structures.alike,
        )  # fmt: skip
        return self._line(found.seconds), self._line(found.beyond)

    def _open(self, name: str, table: type[PartAmounts | StateAmounts]) -> dict[str, Any]:
        """The fields of a table, as variables."""
        variable = self.log.variable
        return {
            one: tuple(variable(f"{name}.{one}.{i}") for i in range(n)) if n else variable(f"{name}.{one}")
            for one, n in _FIELDS[table].items()
        }

    def _line(self, value: Any) -> int:
        return self.log.number(value).index

    def exchanges(self) -> tuple[list[dict[str, int]], list[Any]]:
        """Of each exchange on each mesh its number among the lines of all; and these."""
        lines: dict[Any, int] = {}
        every = [{str(i): lines.setdefault(self._lines(key, mesh), len(lines)) for i, mesh in self._meshes(key)} for key in self.asked]
        return every, [[[[str(a), str(b)] for a, b in groups] for groups in one] for one in lines]

    def _meshes(self, key: Asked) -> Iterator[tuple[int, Mesh]]:
        every = enumerate(self.search.space.meshes)
        return ((i, mesh) for i, mesh in every if key[2] is None or getattr(mesh, key[2]) > 1)

    def _lines(self, key: Asked, mesh: Mesh) -> Any:
        (kind, axes, pair, order), task = key, self.search.task
        degrees = tuple((axis, getattr(mesh, axis)) for axis in ORDERS[order])
        time = task.exchange_time(kind, task.groups(degrees, axes, pair))
        if not time.lines:
            message = f"{kind} over {', '.join(axes)} has no closed form on {' x '.join(map(str, _degrees(mesh)))} devices"
            refuse("PP202", message, help="a certificate needs one: pin smaller degrees, or leave it out")
        return time.lines


def _degrees(mesh: Mesh) -> tuple[int, ...]:
    return tuple(getattr(mesh, axis) for axis in AXES)


def _slots(name: str, amounts: PartAmounts | StateAmounts) -> Iterator[tuple[str, Any]]:
    """The fields of a table, each by what formulas call it."""
    for one in fields(amounts):
        value = getattr(amounts, one.name)
        if isinstance(value, tuple):
            yield from ((f"{name}.{one.name}.{i}", part) for i, part in enumerate(value))
        elif not isinstance(value, frozenset):
            yield f"{name}.{one.name}", value


def _lists(axes: Collection[tuple[str, ...]]) -> list[list[str]]:
    return [list(one) for one in sorted(axes)]


def _point(point: Point, grid: Mapping[str, Any]) -> dict[str, Any]:
    """The coordinates of a point in a grid; of what changes nothing there, the first that there is."""
    own, option = grid["choices"], point.option
    said: dict[str, Any] = {"b": point.b} | {name: shown(getattr(option, name)) for name in own if name != "b"}
    return {"mesh": grid["meshes"].index([*_degrees(point.mesh)])} | {
        name: value if value in own[name] else own[name][0] for name, value in said.items()
    }


def _placed(search: Search, said: Mapping[str, Any], grid: Mapping[str, Any]) -> Point:
    """The point at some coordinates."""
    mesh = search.space.meshes[said["mesh"]]
    flow = next(flow for flow in search.space.flows if flow.text == said["flow"])
    words = {name: said[name] for name in ("recompute", "attention", "data", "order")}
    option = Option(sp=said["sp"] == shown(True), fp8=said["fp8"] == shown(True), flow=flow, **words)
    return Point(mesh=mesh, option=option, b=said["b"], m=search.task.batch // (mesh.replicas * said["b"]))


def _derived(search: Search, outcome: Outcome, grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was derived exactly, and what came of it."""
    for point, found in outcome.derived:
        lists = {"listed": outcome.plans, "unproved": outcome.unproved}
        because = next((word for word, plans in lists.items() if any(found is one for one in plans)), "slower")
        yield _row(search, point, found, because, grid)


def _row(search: Search, point: Point, found: Plan | str, because: str, grid: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"point": _point(point, grid)}
    if isinstance(found, str) and found.startswith("refused"):
        return row | {"because": "refused", "says": found}
    plan = search.exact(point) if isinstance(found, str) else found
    numbers = {"seconds": str(plan.seconds), "peak": str(plan.peak), "room": str(plan.room)}
    return row | {"because": "memory" if not plan.fits else because} | numbers


def _tree(plan: checker.Plan, box: checker.Box | None = None) -> Any:
    """The boxes that a grid falls apart into. Raises InputError for a point of which nothing is known."""
    box = plan.grid if box is None else box
    single = [name for name, values in box.items() if len(values) == 1]
    if {"mesh", "b"} <= {*single}:
        for reason in _REASONS:
            if plan.holds(box, reason):
                return reason
    name = next((name for name in _ORDER if name not in single), None)
    if name is None:
        raise AssertionError(f"nothing is known of {plan.shown(box)}")
    parts: list[list[Any]] = []
    for value in box[name]:
        part = _tree(plan, {**box, name: (value,)})
        same = next((own for own in parts if own[1] == part and part in checker.POINTWISE), None)
        if same is None:
            parts.append([[value], part])
        else:
            same[0].append(value)
    return [name, parts] if len(parts) > 1 or parts[0][1] not in checker.POINTWISE else parts[0][1]
