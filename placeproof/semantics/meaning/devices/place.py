"""Running the statements of a program on all devices of a place; it waits where it needs other places."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from placeproof.core.states import STATES
from placeproof.programs import FIRST_UNIT, Assign, Binary, Call, Do, Expr, For, If, Number, Ref, Resolved, Stmt, assigned
from placeproof.programs.ops import COMPARE, DOMAINS, OPS
from placeproof.semantics.meaning.devices import local
from placeproof.semantics.meaning.devices.mesh import Mesh, size
from placeproof.semantics.meaning.recorded import HERE, known
from placeproof.semantics.meaning.setup import NoMeaningError
from placeproof.semantics.meaning.values import Handle, MisfitError, Norms, Part, Parts, Stream, arithmetic, numeric
from placeproof.semantics.meaning.world import World

Waits = Generator[Any, Any, Any]


#: Computations that send tokens to experts, where a layer has some.
LAYERS = ("forward", "backward", "backward_weight", "backward_input")


def axes_together(program: Resolved) -> tuple[str, ...]:
    """The axes whose devices compute a whole pass of the flat model together."""
    axes = {a.name for a in program.axes if a.splits.compute} | {axis for g in program.groups for axis in g.experts}
    return tuple(a.name for a in program.axes if a.name in axes)


class BeyondError(Exception):
    """An index beyond the first or last part: the statement does nothing."""


@dataclass(frozen=True)
class Meeting:
    """A place enters a collective and waits for its group.

    ``apart``: the factors along which its group has other places; ``what``: in which all have to agree; ``also``: the micro-batch of a
    whole pass, or how many operands a layer has.
    """

    apart: tuple[str, ...]
    group: tuple[object, ...]
    size: int
    what: tuple[object, ...]
    call: Call
    value: Any
    also: int = 0


@dataclass(frozen=True)
class Message:
    """A place sends to, or waits for, one other place, which need not be there."""

    key: tuple[object, ...]
    sends: bool
    value: Any
    call: Call
    other: dict[str, int]


@dataclass(frozen=True)
class Scope:
    """Loop variables: the domain, position and blocks of each; micro-batches."""

    parts: dict[str, tuple[str, int, tuple[int, ...]]] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)


class Place:
    """The program's buffers on the devices with the same coordinates along the factors that are apart."""

    def __init__(self, world: World, coordinates: dict[str, int], batches: int) -> None:
        self.world: World = world
        self.here, self.batches = coordinates, batches
        self.mesh, self.layout = Mesh(world, coordinates), world.layout
        self.number = 0
        self.batch: int = 0
        self.within: int | None = None  # the micro-batch, in a loop over them
        self.calls: list[dict[int, list[Part]]] = []  # of each step, what each call of `stale` was given, in turn
        self.stmt: Stmt | None = None
        self.read: Part | None = None  # the gradients that the last update read
        self.seen: list[dict[Any, Any]] | None = None  # where somebody wants to know: what there is after each line that is in no loop
        self.env: dict[Any, Any] = {state: self._initial(state) for state in ("parameters", "optimizer", "gradients")}

    def _initial(self, state: str) -> Part:
        columns, extent = self.mesh.extent(state)
        if state == "gradients":
            none = np.zeros_like(extent)
            return Part(columns, self.world.garbage((*extent.shape, 1)), extent, none)
        _, placed = self.mesh.placed(state)
        first = self.world.initial(columns, (self.mesh.at, self.mesh.shape), copies=state == "parameters")
        if state == "optimizer":
            first = np.concatenate([first, self.world.field.zeros(first.shape)], axis=-1)
        return Part(columns, first, extent, extent).with_(first, placed)

    def state(self, name: str) -> Part:
        """A state as the devices hold it."""
        value = self.env[name]
        assert isinstance(value, Part)
        return value

    def past(self, call: Call, value: Part) -> list[Part]:
        """What a call was given at this point of each step, the last being ``value``, that of this step."""
        given = self.calls[-1].setdefault(id(call), [])
        given.append(value)
        return [step[id(call)][len(given) - 1] for step in self.calls]

    def gradient(self, number: int, at: tuple[int, ...]) -> Any:
        """What the last update of a device read as the gradient of an element; None where it read none."""
        if self.read is None or number not in self.read.columns.numbers:
            return None
        where = (*at, self.read.columns.numbers.index(number))
        return known(self.read.data[(*where, 0)]) if self.read.have[where] else None

    # Running.

    def step(self, number: int) -> Waits:
        """One training step."""
        self.number = number
        self.calls.append({})
        self.env = {k: self._kept(k, v) for k, v in self.env.items() if k in STATES and k != "activations"}
        yield from self._body(self.world.program.body, Scope())

    def _kept(self, state: str, value: Any) -> Any:
        """A state has room for what is placed on the device, from one step to the next."""
        if not isinstance(value, Part):
            return value
        columns, room = self.mesh.extent(state)
        value = value.on(columns)
        return replace(value, extent=value.extent & room).with_(value.data, value.have & room)

    @property
    def line(self) -> int | None:
        """The line of the statement that it is at."""
        return self.stmt.place.line if self.stmt is not None and self.stmt.place is not None else None

    def note(self) -> None:
        """Which device it is and at which statement, for numbers that remember it."""
        if not self.world.field.exact:
            return
        HERE.device = ", ".join(f"{f} = {n}" for f, n in self.here.items()) or "the device"
        written = self.stmt.place if self.stmt is not None else None
        HERE.line, HERE.text = (written.line, written.text.strip()) if written else (None, "")

    def _body(self, body: tuple[Stmt, ...], scope: Scope) -> Waits:
        for stmt in body:
            self.stmt = stmt
            self.note()
            try:
                for ref in self.world.program.elsewhere.get(id(stmt), ()):
                    self.blocks_of(ref, scope)
                yield from self._statement(stmt, scope)
            except BeyondError:
                pass
            if self.seen is not None and body is self.world.program.body:
                self.seen.append(dict(self.env))

    def _statement(self, stmt: Stmt, scope: Scope) -> Waits:
        match stmt:
            case Assign():
                value = yield from self.eval(stmt.value, scope, results=len(stmt.targets))
                self.stmt = stmt
                for target, one in zip(stmt.targets, value if len(stmt.targets) > 1 else (value,), strict=True):
                    self._store(target, one, scope, add=stmt.accumulate)
            case Do(call=Call(op="free", args=(Ref(group=None, index=None) as ref,))):
                for key in [k for k in self.env if k == ref.name or (isinstance(k, tuple) and k[0] == ref.name)]:
                    del self.env[key]
            case Do(call=Call(op="free")):
                pass
            case Do(call=Call(op="zero", args=(Ref() as ref,))):
                self._zero(ref, scope)
            case Do(call=call):
                yield from self.eval(call, scope)
            case If():
                bound = yield from self.eval(stmt.bound, scope)
                if not isinstance(bound, Fraction):
                    raise MisfitError("a rank is compared with something that devices compute")
                rank = self.mesh.place(self.layout.factors((stmt.axis,))).item()
                yield from self._body(stmt.then if COMPARE[stmt.op](rank, bound) else stmt.orelse, scope)
            case For():
                yield from self._loop(stmt, scope)

    def _zero(self, ref: Ref, scope: Scope) -> None:
        key, zeros = self._key(ref, scope), self.world.field.zeros
        held = self.env[key]
        if isinstance(held, Part):
            chosen = held.only(self.blocks_of(ref, scope), ref.group)
            self.env[key] = held.merged(chosen.with_(zeros(chosen.data.shape), chosen.extent))
        else:
            self.env[key] = replace(held, data=zeros(held.data.shape)) if isinstance(held, Stream) else Fraction(0)

    def _loop(self, stmt: For, scope: Scope) -> Waits:
        if stmt.domain == "microbatches":
            order = range(self.batches)
            for i in reversed(order) if stmt.reverse else order:
                self.batch = self.within = i
                yield from self._body(stmt.body, Scope(scope.parts, scope.batches | {stmt.var: i}))
            self.within = None
            return
        parts = list(enumerate(self._parts(stmt.domain, self._within(stmt, scope))))[stmt.start :]
        for position, blocks in reversed(parts) if stmt.reverse else parts:
            yield from self._body(stmt.body, Scope(scope.parts | {stmt.var: (stmt.domain, position, blocks)}, scope.batches))

    @property
    def _blocks(self) -> tuple[int, ...]:
        return self.layout.stage_blocks(self.mesh.stage)

    def _within(self, stmt: For, scope: Scope) -> tuple[int, ...]:
        if stmt.within is None:
            return self._blocks
        if stmt.within == FIRST_UNIT:
            return self._parts("units", self._blocks)[0]
        return scope.parts[stmt.within][2]

    def _parts(self, domain: str, blocks: tuple[int, ...]) -> list[tuple[int, ...]]:
        units = len(self._blocks) // self.layout.setup.units_per_stage
        each = {"blocks": 1, "layers": self.layout.blocks_per_layer, "units": units}[domain]
        return [blocks[i : i + each] for i in range(0, len(blocks), each)]

    # Buffers.

    def _batch_of(self, ref: Ref, scope: Scope) -> int | None:
        """The micro-batch that an index names."""
        if ref.index is None:
            return None
        if ref.index.var in scope.batches:
            number = scope.batches[ref.index.var] + ref.index.offset
        elif ref.index.var is None and ref.name in self.world.by_batch:
            number = ref.index.offset if ref.index.offset >= 0 else self.batches + ref.index.offset
        else:
            return None
        if not 0 <= number < self.batches:
            raise BeyondError
        return number

    def _key(self, ref: Ref, scope: Scope) -> Any:
        """Under what a buffer is kept: one that is indexed by micro-batches has one part for each."""
        batch = self._batch_of(ref, scope)
        return ref.name if batch is None else (ref.name, batch)

    def blocks_of(self, ref: Ref, scope: Scope) -> tuple[int, ...] | None:
        """The blocks that an index names; None for the whole."""
        if ref.index is None or self._batch_of(ref, scope) is not None:
            return None
        if ref.index.var is None:
            units, at = self._parts("units", self._blocks), ref.index.offset
            if not -len(units) <= at < len(units):
                raise BeyondError
            return units[at]
        domain, position, blocks = scope.parts[ref.index.var]
        if ref.index.offset == 0:
            return blocks
        siblings, moved = self._parts(domain, self._blocks), position + ref.index.offset
        if not 0 <= moved < len(siblings):
            raise BeyondError
        return siblings[moved]

    def _store(self, target: Ref, value: Any, scope: Scope, *, add: bool) -> None:
        key = self._key(target, scope)
        held, blocks = self.env.get(key), self.blocks_of(target, scope)
        if isinstance(value, Part):
            value = replace(self._within_target(value, target, blocks), group=None if target.group is not None else value.group)
            if isinstance(held, Part) and (add or (blocks is not None and target.group is None)):  # what the value lacks is lost
                value = value.over(held.columns.only(blocks, target.group))
            if add and isinstance(held, Part):
                before = held.on(value.columns)
                zero = np.where(before.have[..., None], before.data, self.world.field.of(0))
                value = value.with_(self.world.field.add(zero, value.data), value.have)
            if isinstance(held, Parts):
                raise NoMeaningError(f"`{target.name}` is activations in one part and parameters, or gradients, in another")
            whole = blocks is None and target.group is None and not add
            if blocks is None and target.group is not None and isinstance(held, Part) and not add:
                held = held.without(target.group)
            self.env[key] = value if whole or not isinstance(held, Part) else held.merged(value)
            return
        if blocks is None and target.group is None:
            self.env[key] = arithmetic(self.world, "+", held, value) if add and held is not None else value
            return
        if isinstance(value, Norms):
            raise NoMeaningError(f"norms of tensors are written to a part of `{target.name}`")
        parts = held if isinstance(held, Parts) else Parts()
        parts.by_key[target.group, blocks or ()] = value
        self.env[key] = parts

    def _within_target(self, value: Part, target: Ref, blocks: tuple[int, ...] | None) -> Part:
        """What a write to a part of a buffer leaves there: what is about other parts is not what belongs there."""
        inside = value.only(blocks, target.group)
        if len(inside.columns) or not len(value.columns):
            return inside
        return inside.over(self.world.columns(tuple(range(len(self.world.elements)))).only(blocks, target.group))

    def _read(self, ref: Ref, scope: Scope) -> Any:
        key = self._key(ref, scope)
        if key in self.env:
            value = self.env[key]
            if isinstance(value, Part):
                return value.only(self.blocks_of(ref, scope), ref.group)
            if isinstance(value, Parts):
                return value.at(ref.group, self.blocks_of(ref, scope), self._blocks)
            return value
        if ref.name in scope.batches:
            return Fraction(scope.batches[ref.name])
        if ref.name == "microbatches":
            return Fraction(self.batches)
        if ref.name in DOMAINS:
            return Fraction(len(self._parts(ref.name, self._blocks)))
        if self.world.program.axis(ref.name) is None:
            if ref.name in self._assigned:  # and not written on this device
                raise KeyError(ref.name)
            return self.world.symbol(ref.name)
        return Fraction(size(self.world, self.layout.factors((ref.name,))))

    @cached_property
    def _assigned(self) -> frozenset[str]:
        return frozenset(t.name for t in assigned(self.world.program.body)) | frozenset(STATES)

    # Expressions.

    def eval(self, expr: Expr, scope: Scope, results: int = 1) -> Waits:
        """The value of an expression; ``results`` is how many targets take it."""
        match expr:
            case Number(value=value):
                return value
            case Ref():
                return self._read(expr, scope)
            case Binary():
                left = yield from self.eval(expr.left, scope)
                right = yield from self.eval(expr.right, scope)
                return arithmetic(self.world, expr.op, left, right)
            case Call():
                return (yield from self._call(expr, scope, results))

    def _call(self, call: Call, scope: Scope, results: int) -> Waits:
        if call.op == "start":
            inner = call.args[0]
            assert isinstance(inner, Call)
            return Handle(inner, scope, (yield from self.eval(inner.args[0], scope)) if inner.args else None)
        if call.op == "wait":
            handle = yield from self.eval(call.args[0], scope)
            if not isinstance(handle, Handle):
                raise MisfitError("what is waited for is no handle")
            inner, value = handle.call, handle.value
            if not inner.args or isinstance(inner.args[0], Ref):  # what is computed was computed then; a buffer is read while it runs
                if not isinstance(value, Part):
                    return (yield from self.eval(inner, handle.scope))
                value = yield from self._unchanged(handle)
            return (yield self._meeting(inner, value))
        operands = []
        for arg in call.operands:
            operands.append((yield from self.eval(arg, scope)))
        if call.op in ("send", "recv"):
            message = self._message(call, operands)
            return (yield message) if message is not None else None
        if OPS[call.op].collective:
            return (yield self._meeting(call, operands[0]))
        if call.op in ("backward", "backward_with") and not self.layout.network:
            return (yield self._pass(call, operands))
        if self.layout.called and call.op in LAYERS:
            answers = yield self._meeting(replace(call, axes=self.layout.called), [*operands, None, None, None][:4], also=len(operands))
            return answers if results > 1 else answers[0]
        # a layer that has experts sends tokens to them, and so do the experts of a block, but no other group of it
        if self.layout.experts and call.op in LAYERS and operands[0].group in (None, *self.layout.expert_groups):
            stream = [*operands, None, None, None][:4]
            together = replace(call, axes=self.layout.experts)
            answers = yield self._meeting(together, stream, also=len(operands))
            return answers if results > 1 else answers[0]
        return local.compute(self, call, operands, results)

    def _unchanged(self, handle: Handle) -> Waits:
        """What a started collective sends; what was written since, and what was there before, may both be read, so that it is neither."""
        now = yield from self.eval(handle.call.args[0], handle.scope)
        same = isinstance(now, Part) and now.columns is handle.value.columns and np.array_equal(now.data, handle.value.data)
        return now if same or not isinstance(now, Part) else now.with_(now.data, np.zeros_like(now.have))

    def _message(self, call: Call, operands: list[Any]) -> Message | None:
        """A message; None for one that is sent beyond the ends of the axis, which goes nowhere."""
        axis, sends = call.axes[0], call.op == "send"
        other = {**self.here, axis: self.here[axis] + call.steps}
        if sends and not 0 <= other[axis] < self.world.sizes[axis]:
            return None
        ends = (self.here, other) if sends else (other, self.here)
        return Message((axis, *(tuple(sorted(end.items())) for end in ends)), sends, operands[0] if operands else None, call, other)

    def _pass(self, call: Call, operands: list[Any]) -> Meeting:
        """A whole pass of the flat model: the devices of the axes that split the computation take part together."""
        together = replace(call, axes=axes_together(self.world.program))
        batch = local.batch_of(self, operands[1:2])
        statistic: Any = Fraction(1)
        if call.op == "backward_with":
            statistic = operands[2]
        elif self.world.problem.coupled:
            statistic = local.of_sample(self, "statistic", batch)
        return self._meeting(together, [operands[0], np.broadcast_to(numeric(self.world, statistic), self.mesh.shape)], also=batch)

    def _meeting(self, call: Call, value: Any, also: int = 0) -> Meeting:
        apart = tuple(f for f in self.layout.factors(call.axes) if f in self.here)
        fixed: tuple[object, ...] = tuple(sorted((f, at) for f, at in self.here.items() if f not in apart))
        count = size(self.world, apart)
        if call.op == "tied_reduce" and apart:
            ends = (0, self.world.sizes[apart[0]] - 1)
            inside = self.here[apart[0]] in ends
            fixed, count = (*fixed, ("ends" if inside else self.here[apart[0]], 0)), len(set(ends)) if inside else 1
        what = (call.op, call.axes, call.options, call.place and call.place.line, also)
        group = tuple(sorted(self.layout.factors(call.axes))), fixed
        return Meeting(apart, group, count, what, call, value, also)
