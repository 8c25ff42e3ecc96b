"""A linked step walked for one device, every loop unrolled over the model's units: each collective as the calls that it becomes, each call
of layers as what their blocks exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from math import prod

from placeproof.collectives import COLLECTIVES, AxisLayout
from placeproof.core.exchange import Exchange
from placeproof.core.shapes import WEIGHT_TYPES, Unit, Weight
from placeproof.cost.blocks.tensors import BlockExchange, exchanges
from placeproof.cost.exact.cuts import buckets, dealt, local_shape, padded
from placeproof.cost.exact.setting import Setting
from placeproof.programs import FIRST_UNIT, POSITIONS, Binary, Call, Expr, For, If, Number, Program, Ref, Stmt, calls, read
from placeproof.programs.ops import COMPARE
from placeproof.semantics.resolve import resolve
from placeproof.semantics.trace import trace
from placeproof.semantics.values import Event, Kind, Value

#: The calls that run blocks; gradients by weights come with those by inputs.
_PHASES = {"forward": "forward", "backward": "backward", "backward_weight": "backward"}

#: Bytes that a device broadcasts which owns no weight: one number, of whatever type the weights are.
NOTHING = 4


@cache
def block(name: str, plan: str) -> Program:
    """The program of a block under a plan, which may begin with a folder of the profiles; on one device without one."""
    folder, _, ending = plan.rpartition("/")
    file = f"{name}_{ending}.step" if ending else f"{name}.step"
    return read(files("placeproof.profiles").joinpath(folder or "torch", file).read_text(encoding="utf-8"), source=file)


@cache
def block_exchanges(name: str, plan: str) -> tuple[BlockExchange, ...]:
    """What a block exchanges under a plan."""
    return exchanges(block(name, plan))


def sizes(dims: Mapping[str, int]) -> dict[str, int]:
    """The sizes of a model's dimensions by the names that the programs of blocks use."""
    return {**dims, "keys": dims["tokens"], "group": dims["heads"] // dims["kv_heads"]}


@dataclass(frozen=True)
class _Where:
    """The unit of the loops around a statement, if there is one, and the stage. ``left``: passes after this one, None after all of them."""

    stage: int
    unit: int | None = None
    left: int | None = None


@dataclass
class Walk:
    """Walks a setting's program. ``found`` are the exchanges in the order in which the device makes them."""

    setting: Setting
    found: list[Exchange] = field(default_factory=list)
    late: list[Exchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.program = resolve(self.setting.program)
        self.events: dict[int, Event] = {id(e.call): e for e in trace(self.program).events}
        self.shards_samples = bool(self.setting.cut_axes)

    def run(self) -> tuple[Exchange, ...]:
        """All exchanges of a step."""
        for stage in self.setting.own_stages:
            self._body(self.program.body, _Where(stage))
        return (*self._extras(), *self.found, *self.late)

    # Statements.

    def _body(self, body: tuple[Stmt, ...], where: _Where) -> None:
        for stmt in body:
            match stmt:
                case For():
                    self._loop(stmt, where)
                case If():
                    self._body(stmt.then if self._taken(stmt, where) else stmt.orelse, where)
                case _:
                    self._statement(stmt, where)

    def _statement(self, stmt: Stmt, where: _Where) -> None:
        for call in calls(stmt):
            if call.op in COLLECTIVES:
                self._collective(self._event(call), where)
            elif call.op == "loss":
                self._turn(where)
            elif call.op in _PHASES:
                self._blocks(self._event(call), where)

    def _event(self, call: Call) -> Event:
        return self.events[id(call)]

    def _taken(self, stmt: If, where: _Where) -> bool:
        rank = where.stage if stmt.axis == self.setting.stage_axis else self.setting.at[stmt.axis]
        return bool(COMPARE[stmt.op](rank, self._number(stmt.bound)))

    def _number(self, expr: Expr) -> int:
        match expr:
            case Number(value=value):
                return int(value)
            case Ref(name=name):
                return self.setting.stages if name == self.setting.stage_axis else self.setting.degree((name,))
            case Binary(op="-", left=left, right=right):
                return self._number(left) - self._number(right)
        raise ValueError("a rank is compared with a number of devices")

    def _loop(self, stmt: For, where: _Where) -> None:
        if stmt.domain == "microbatches":
            for left in reversed(range(self.setting.passes)):
                self._body(stmt.body, replace(where, left=left))
            return
        if stmt.within == FIRST_UNIT:
            where = replace(where, unit=0)
        if stmt.domain == "units":
            order = range(stmt.start, len(self.setting.units_of(where.stage)))
            for unit in reversed(order) if stmt.reverse else order:
                self._body(stmt.body, replace(where, unit=unit))
        else:
            self._body(stmt.body, where)

    def _units(self, value: Value, where: _Where) -> tuple[Unit, ...]:
        """The units of which a value is."""
        every = self.setting.units_of(where.stage)
        if value.index is not None and value.index.var is None:
            return (every[value.index.offset],)
        return every if value.part is None or where.unit is None else (every[where.unit],)

    # Blocks: what their own programs exchange.

    def _blocks(self, event: Event, where: _Where) -> None:
        """The blocks that a call runs, those of the root but for its ends."""
        phase, root = _PHASES[event.call.op], self.setting.shapes.units[0].name
        names = [n for u in self._units(event.operands[0], where) for n in (u.blocks[:1] if u.name == root else u.blocks)]
        for name in reversed(names) if phase == "backward" else names:
            self._block(name, phase)

    def _turn(self, where: _Where) -> None:
        """The end of the root, after the last unit: the last norm, the head, the loss."""
        if where.stage != self.setting.stages - 1 or self.setting.blocks is None:
            return
        ends = self.setting.shapes.units[0].blocks[1:]
        for name in ends:
            self._block(name, "forward")
        for name in reversed(ends):
            self._block(name, "backward")

    def _block(self, name: str, phase: str) -> None:
        plan = self.setting.blocks
        if plan is None or self.setting.hidden is None or self.setting.mesh[self.setting.hidden] == 1:
            return
        degrees, dims = {"tp": self.setting.mesh[self.setting.hidden]}, sizes(dict(self.setting.shapes.dims))
        for shape in block_exchanges(name, plan.plan):
            if shape.phase != phase:
                continue
            made = replace(shape.exchange(dims, degrees, self.setting.widths.computed), axes=(self.setting.hidden,))
            if not set(shape.dims) & set(POSITIONS):
                self._weight_gradient(made)
            else:
                self.found.append(made)

    def _weight_gradient(self, made: Exchange) -> None:
        """A gradient that stays a partial sum: whatever reads it first reduces it, and so does whoever reads it again."""
        plan = self.setting.blocks
        assert plan is not None
        if self.shards_samples or not plan.reads:
            self.found.append(made)
        else:
            times = plan.reads[str(self.setting.options.get("optimizer") or "adamw")]
            self.late += [replace(made, phase="update")] * times

    # Collectives of the step program.

    def _collective(self, event: Event, where: _Where) -> None:
        if event.call.op in ("send", "recv"):
            self._message(event, where)
        elif event.operands[0].kind is not Kind.STREAM:
            self.found += list(self._calls(event, where)) * self._times(event, where)

    def _times(self, event: Event, where: _Where) -> int:
        """How often a collective is called where the program calls it once: gradients of several passes may be reduced in each of them, or
        in the last alone, which is the same sum; and parameters stay gathered between passes where nothing is reduced."""
        once, setting = self.setting.options.get("no_sync"), self.setting
        if not setting.accumulates or once is None:
            return 1
        if event.operands[0].kind is Kind.PARAMETERS:
            stays = once and setting.states.cut == "flat" and setting.strategy.schedule.reshard is False
            return int(not stays or where.left in (None, setting.passes - 1))
        if where.left is None:
            return 1 if once else setting.passes
        return int(not once or where.left == 0)

    def _message(self, event: Event, where: _Where) -> None:
        assert self.setting.stage_axis is not None
        if self.setting.holder(where.stage + event.call.steps) == self.setting.at[self.setting.stage_axis]:
            return  # both stages lie on this device
        dims = dict(self.setting.shapes.dims)
        amount = prod(dims[d] for d in ("batch", "tokens", "hidden")) * self.setting.widths.computed
        backward = (event.call.op == "send") == (event.call.steps < 0)
        self.found.append(Exchange(kind=event.call.op, axes=event.call.axes, bytes=amount, phase="backward" if backward else "forward"))

    def _calls(self, event: Event, where: _Where) -> Iterator[Exchange]:
        operand, how = event.operands[0], self.setting.states
        rule = how.parameters if operand.kind is Kind.PARAMETERS else how.gradients
        if operand.kind is Kind.PARAMETERS and rule == "weight" and self.setting.options.get("bucket_view"):
            rule = "owner"
        split = {a for p in operand.pieces for a in p.axes(AxisLayout.SHARD)} - {self.setting.stage_axis}
        left = self.setting.degree(a for a in split if a not in _factors(self.setting, event.call.axes))
        reduces = "reduce" in event.call.op
        if event.call.op in ("all_gather", "reduce_scatter") and how.cut == "rows" and self.setting.degree(event.call.axes) == 1:
            return  # nothing is cut over one device
        for group in self._grouped(rule, self._weights(event, where)):
            amount = self._amount(event, group)
            if not group and rule == "owner":
                yield Exchange(kind=event.call.op, axes=self._group(event.call.axes), bytes=NOTHING, phase=event.phase)
            if amount:
                op = self._op(event) if reduces else ""
                yield Exchange(kind=event.call.op, axes=self._group(event.call.axes), bytes=amount // left, op=op, phase=event.phase)

    def _amount(self, event: Event, weights: list[Weight]) -> int:
        """Bytes of a tensor with all of these weights, or with their gradients, as a collective carries it."""
        setting, amount = self.setting, 0
        sent = ("reduce_dtype", "param_dtype") if event.operands[0].kind is not Kind.PARAMETERS else ("param_dtype",)
        option = next((name for name in sent if setting.options.get(name)), "") if event.phase != "update" else ""
        for width in dict.fromkeys(WEIGHT_TYPES[setting.kind(w, option)] for w in weights):
            alike = [w for w in weights if WEIGHT_TYPES[setting.kind(w, option)] == width]
            if setting.states.cut == "flat":
                amount += width * setting.flat(alike)
            else:
                amount += width * padded(setting.states.cut, [self.local(w) for w in alike], setting.degree(setting.cut_axes))
        return amount

    def _group(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axes of a group; a sub-group of all devices of an axis is that axis."""
        names = {a.inner_name: a.name for a in self.setting.strategy.axes if a.inner == self.setting.mesh[a.name]}
        return tuple(names.get(a, a) for a in axes)

    def _op(self, event: Event) -> str:
        return event.call.choice("op")

    def local(self, weight: Weight) -> tuple[int, ...]:
        """The shape of a device's part of a weight, before any axis of samples cuts it."""
        return local_shape(weight, 1 if self.setting.hidden is None else self.setting.mesh[self.setting.hidden])

    def _weights(self, event: Event, where: _Where) -> list[tuple[Unit, Weight]]:
        """The weights that a state's collective is about, unit by unit."""
        return [(u, w) for u in self._units(event.operands[0], where) for w in self._of(event, u)]

    def _of(self, event: Event, unit: Unit) -> Iterable[Weight]:
        """The weights of a unit that a collective is about: of gradients those that have one, of parameters all that are needed there."""
        setting, how = self.setting, self.setting.states
        if event.operands[0].kind is Kind.PARAMETERS:
            if event.phase == "update":
                return filter(setting.given, unit.weights)
            return unit.weights if event.phase != "backward" or self._comes(unit) else ()
        if how.cut == "flat":
            return unit.weights if any(w.learns for w in unit.weights) else ()
        return [w for w in unit.weights if (w.trained if how.gradients == "bucket" else w.learns)]

    def _comes(self, unit: Unit) -> bool:
        """Whether backward gathers a unit: it comes there, or to the next one, which fetches it ahead
        (torch==2.13.0:torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, ``_backward_prefetch``)."""
        root, *others = self.setting.shapes.units
        if unit.backward or unit is root or self.setting.states.cut != "rows":
            return unit.backward or unit is root
        later = [u for u in others[others.index(unit) + 1 :] if u.weights]
        return later[0].backward if later else bool(root.weights)

    def _grouped(self, rule: str, weights: list[tuple[Unit, Weight]]) -> list[list[Weight]]:
        every = [w for _, w in weights]
        match rule:
            case "weight":
                return [[w] for w in every]
            case "unit":
                return [[w for v, w in weights if v is u] for u in {id(u): u for u, _ in weights}.values()]
            case "bucket":
                return self.buckets(every)
            case "owner":
                parts = self.setting.degree(self.setting.cut_axes)
                owners = dealt([self.local(w) for w in every], parts)
                return [[w for w, owner in zip(every, owners, strict=True) if owner == part] for part in range(parts)]
        return [every]

    def buckets(self, weights: list[Weight]) -> list[list[Weight]]:
        """Buckets as they are once they are rebuilt: in the order in which gradients become ready, unless unused weights are looked for,
        each of one element type. Before there is one of each type (torch==2.13.0:torch/nn/parallel/distributed.py, ``_rebuild_buckets``).
        """
        first, rest = self.setting.states.buckets
        if (cap := self.setting.options.get("bucket_cap_mb")) is not None:
            first = rest = int(float(cap) * 1024 * 1024)
        step = self.setting.options.get("step")
        if not self._looked_for:
            if step is not None and int(step) < self._rebuilt:
                first = rest = sum(w.elements for w in weights) * 8 + 1
            weights = self.setting.by_ready(weights)
        elif sum(w.elements * self.setting.width(w) for w in weights) > first:
            weights = [w for w in self.setting.shapes.by_registration if w in weights]
        kinds = dict.fromkeys(map(self.setting.kind, weights))
        alike = ([w for w in weights if self.setting.kind(w) == kind] for kind in kinds)
        return [group for some in alike for group in buckets(some, lambda w: prod(self.local(w)) * self.setting.width(w), first, rest)]

    @property
    def _looked_for(self) -> bool:
        """Whether DistributedDataParallel looks for weights that are not used, in each step."""
        return bool(self.setting.options.get("find_unused")) and not self.setting.options.get("static_graph")

    @property
    def _rebuilt(self) -> int:
        """The step in which DistributedDataParallel rebuilds its buckets."""
        return 3 if self.setting.options.get("static_graph") else 2

    def _extras(self) -> Iterator[Exchange]:
        """What DistributedDataParallel sends beside gradients: the buffers of its first device, before each pass that follows one whose
        gradients were reduced, and which weights were used."""
        axes, options = self.setting.cut_axes or self.setting.sample_axes, self.setting.options
        if not self.setting.states.extras:
            return
        weights = [w for w in self.setting.shapes.weights if w.trained]
        synced = self.setting.passes if self.setting.accumulates and not options.get("no_sync") else 1
        for size in self.setting.buffers * synced:
            yield Exchange(kind="broadcast", axes=axes, bytes=size, phase="forward")
        if self._looked_for:
            yield from [Exchange(kind="all_reduce", axes=axes, bytes=4 * len(weights), op="sum", phase="backward")] * synced
        elif options.get("step") == self._rebuilt:  # the first device tells the others its buckets
            for count in (len(weights) + 1, len(self.buckets(weights))):
                yield Exchange(kind="broadcast", axes=axes, bytes=4 * count, phase="forward")


def _factors(setting: Setting, axes: Iterable[str]) -> set[str]:
    """Axes and, of those with sub-groups, both factors."""
    factors = set(axes)
    for axis in setting.strategy.axes:
        if axis.name in factors and axis.inner is not None:
            factors |= {axis.outer_name, axis.inner_name}
    return factors
