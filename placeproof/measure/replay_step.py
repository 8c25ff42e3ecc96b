"""A training step as one process runs it: the program's statements, one after the other, with real exchanges."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch

from placeproof.core.program import Assign, Binary, Call, Do, Expr, For, If, Number, Ref, Stmt, calls, statements
from placeproof.core.program.ir import FIRST_UNIT
from placeproof.core.program.ops import OPS
from placeproof.core.states import STATES
from placeproof.measure.replay_exchange import exchange, receive, send
from placeproof.measure.replay_experts import LAYERS, layer
from placeproof.measure.replay_flat import axes_together, gradient
from placeproof.measure.replay_local import a, arithmetic, local, plain
from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_model import Model, not_replayed
from placeproof.measure.replay_numbers import Arithmetic, Numbers, zeros
from placeproof.measure.replay_values import Frame, Handle, Here, NothingThereError, NotReplayedError, Part, Parts, Value, mapped

#: What a branch asks.
COMPARE: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class NoPartError(Exception):
    """An index beyond the first or the last part: the statement does nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """What a process holds after the last step, and the gradients that its last update read."""

    parameters: Part
    optimizer: Part
    gradients: Part | None


def groups_of(model: Model) -> tuple[list[frozenset[str]], list[str]]:
    """The sets of factors along which the program exchanges, and the axes between whose ends it does."""
    sets, ends = [frozenset(model.factors(axes_together(model)))], []
    if model.experts is not None:
        sets.append(frozenset(model.factors((model.experts,))))
    for stmt in statements(model.program.body):
        for call in calls(stmt):
            if call.op == "tied_reduce":
                ends.append(call.axes[0])
            elif OPS[call.op].collective and call.op not in ("send", "recv"):
                sets.append(frozenset(model.factors(call.axes)))
    return list(dict.fromkeys(sets)), list(dict.fromkeys(ends))


class Process(Here):
    """The program's state in one process: its buffers."""

    def __init__(self, model: Model, mesh: Mesh, of: Arithmetic) -> None:
        super().__init__(model, mesh, of)
        if (why := not_replayed(model.program)) is not None:
            raise NotReplayedError(why)
        self.env: dict[str, Value] = {state: self._initial(state) for state in ("parameters", "optimizer", "gradients")}

    def _initial(self, state: str) -> Part:
        model, count = self.model, len(self.model.elements)
        held = model.placed(self.at, state)
        at = self.at if state == "parameters" else None
        first = [model.initial(e, at) if there else 0 for e, there in zip(model.elements, held.tolist(), strict=True)]
        numbers = Numbers.make(self.of, first, count)
        if state == "optimizer":
            numbers = Numbers(self.of, torch.stack([numbers.data, zeros(self.of, count).data], dim=1))
        return Part(extent=model.extent(self.at, state), held=held & (state != "gradients"), numbers=numbers)

    def run(self, steps: int) -> Ended:
        """All steps. Raises NothingThereError, NotReplayedError, UndefinedError, or the errors of exchanges."""
        for number in range(steps):
            self.number = number
            self.past.append(self._state("parameters"))
            self.env = {k: v for k, v in self.env.items() if k in STATES and k != "activations"}
            self._body(self.model.program.body, Frame())
        return Ended(self._state("parameters"), self._state("optimizer"), self.read)

    def _state(self, name: str) -> Part:
        value = self.env.get(name)
        if not isinstance(value, Part):
            raise NothingThereError(f"the state `{name}` at the end of a step")
        return value

    # Statements.

    def _body(self, body: tuple[Stmt, ...], frame: Frame) -> None:
        for stmt in body:
            try:
                self._statement(stmt, frame)
            except NoPartError:
                continue

    def _statement(self, stmt: Stmt, frame: Frame) -> None:
        match stmt:
            case Assign():
                found = self._eval(stmt.value, frame, len(stmt.targets))
                values = found if isinstance(found, tuple) else (found,)
                for target, value in zip(stmt.targets, values, strict=True):
                    self._store(target, value, frame, add=stmt.accumulate)
            case Do(call=Call(op="free", args=(Ref(group=None, index=None) as ref,))):
                self.env.pop(ref.name, None)
            case Do(call=Call(op="free")):
                pass
            case Do(call=Call(op="zero", args=(Ref() as ref,))):
                self._zero(ref, frame)
            case Do(call=call):
                self._eval(call, frame)
            case If():
                taken = COMPARE[stmt.op](Fraction(self.at[stmt.axis]), plain(self._value(stmt.bound, frame)))
                self._body(stmt.then if taken else stmt.orelse, frame)
            case For():
                for inner in self._iterations(stmt, frame):
                    self._body(stmt.body, inner)

    def _zero(self, ref: Ref, frame: Frame) -> None:
        held = self._held(ref.name)
        if isinstance(held, Part):
            chosen = self._select(held, ref, frame)
            self.env[ref.name] = held.merged(chosen.with_numbers(zeros(self.of, *held.numbers.shape), chosen.extent))
        else:
            self.env[ref.name] = Fraction(0) if isinstance(held, Fraction | Numbers) else mapped(held, lambda n: n - n)

    def _iterations(self, stmt: For, frame: Frame) -> Iterator[Frame]:
        if stmt.domain == "microbatches":
            for i in range(self.model.found.microbatches):
                self.batch = i
                yield Frame(frame.parts, frame.batches | {stmt.var: i})
            return
        parts = self._parts(stmt.domain, self._within(stmt, frame))
        order = list(enumerate(parts))[stmt.start :]
        for position, blocks in reversed(order) if stmt.reverse else order:
            yield Frame(frame.parts | {stmt.var: (stmt.domain, position, blocks)}, frame.batches)

    def _within(self, stmt: For, frame: Frame) -> tuple[int, ...]:
        """The blocks out of which a loop takes its parts."""
        stage = self.model.stage_blocks(self.at)
        if stmt.within is None:
            return stage
        return self._parts("units", stage)[0] if stmt.within == FIRST_UNIT else frame.parts[stmt.within][2]

    def _parts(self, domain: str, blocks: tuple[int, ...]) -> list[tuple[int, ...]]:
        """What a loop walks over, out of some blocks."""
        units = self.model.found.sizes["units per stage"]
        whole = len(self.model.stage_blocks(self.at))
        size = {"blocks": 1, "layers": self.model.blocks_per_layer, "units": whole // units}[domain]
        return [blocks[i : i + size] for i in range(0, len(blocks), size)]

    # Buffers.

    def _blocks(self, ref: Ref, frame: Frame) -> tuple[int, ...] | None:
        """The blocks that an index names; None for the whole."""
        if ref.index is None or ref.index.var in frame.batches:
            return None
        if ref.index.var is None:
            units = self._parts("units", self.model.stage_blocks(self.at))
            if not -len(units) <= ref.index.offset < len(units):
                raise NothingThereError(f"unit {ref.index.offset}")
            return units[ref.index.offset]
        domain, position, blocks = frame.parts[ref.index.var]
        moved = position + ref.index.offset
        if not ref.index.offset:
            return blocks
        siblings = self._parts(domain, self.model.stage_blocks(self.at))
        if not 0 <= moved < len(siblings):
            raise NoPartError
        return siblings[moved]

    def _store(self, target: Ref, value: Value, frame: Frame, *, add: bool) -> None:
        held = self.env.get(target.name)
        if isinstance(value, Part):
            if add and isinstance(held, Part):
                before = held.numbers.where(held.held, zeros(self.of, *held.numbers.shape))
                value = value.with_numbers(before + value.numbers)
            whole = target.index is None and target.group is None and not add
            self.env[target.name] = value if whole or not isinstance(held, Part) else held.merged(value)
            return
        blocks = self._blocks(target, frame)
        if blocks is None and target.group is None:
            self.env[target.name] = arithmetic(self.model, "+", held, value) if add and held is not None else value
            return
        parts = dict(held.by_key) if isinstance(held, Parts) else {}
        self.env[target.name] = Parts(by_key={**parts, (target.group, blocks or ()): value})

    def _held(self, name: str) -> Value:
        if name not in self.env:
            raise NothingThereError(f"the buffer `{name}`, which this device does not have")
        return self.env[name]

    def _read(self, ref: Ref, frame: Frame) -> Value:
        if ref.name in self.env:
            value, blocks = self.env[ref.name], self._blocks(ref, frame)
            if isinstance(value, Part):
                return self._select(value, ref, frame)
            if not isinstance(value, Parts):
                return value
            if (ref.group, blocks or ()) not in value.by_key:
                raise NothingThereError(f"a part of `{ref.name}` that this device never wrote")
            return value.by_key[(ref.group, blocks or ())]
        if ref.name in frame.batches:
            return Fraction(frame.batches[ref.name])
        if ref.name == "microbatches":
            return Fraction(self.model.found.microbatches)
        if self.model.program.axis(ref.name) is None:
            raise NothingThereError(f"the buffer `{ref.name}`, which this device never wrote")
        return Fraction(self.model.degree((ref.name,)))

    def _select(self, value: Part, ref: Ref, frame: Frame) -> Part:
        """The part and the group of a buffer that a reference names."""
        blocks = self._blocks(ref, frame)
        if blocks is None and ref.group is None:
            return value
        wanted = [(blocks is None or e.block in blocks) and ref.group in (None, "all", e.group) for e in self.model.elements]
        return value.only(self.model.mask(wanted), ref.group)

    # Expressions.

    def _value(self, expr: Expr, frame: Frame) -> Value:
        found = self._eval(expr, frame)
        assert not isinstance(found, tuple)
        return found

    def _eval(self, expr: Expr, frame: Frame, results: int = 1) -> Value | tuple[Value, Value]:
        """The value of an expression; ``results`` is how many targets take it."""
        match expr:
            case Number(value=value):
                return value
            case Ref():
                return self._read(expr, frame)
            case Binary():
                return arithmetic(self.model, expr.op, self._value(expr.left, frame), self._value(expr.right, frame))
            case Call():
                return self._call(expr, frame, results)

    def _call(self, call: Call, frame: Frame, results: int) -> Value | tuple[Value, Value]:
        if call.op == "start":
            started = call.args[0]
            assert isinstance(started, Call)
            pinned = self._pinned(started, frame)
            computed = started.args and not isinstance(started.args[0], Ref)
            return Handle(call=started, frame=pinned, value=self._value(started.args[0], pinned) if computed else None)
        if call.op == "wait":
            handle = a(Handle, self._value(call.args[0], frame), call)
            return self._eval(handle.call, handle.frame) if handle.value is None else exchange(self, handle.call, handle.value)
        if call.op in ("elementwise", "quantize", "cast"):
            position = 1 if call.op == "elementwise" else 0
            return local(self, call, [self._value(call.args[position], frame)], results)
        operands = [self._value(arg, frame) for arg in call.args]
        if call.op == "send":
            send(self, call, operands[0])
            return Fraction(0)
        if call.op == "recv":
            return receive(self, call)
        if OPS[call.op].collective:
            return exchange(self, call, operands[0])
        if call.op in ("backward", "backward_with") and not self.model.network:
            return self._pass(call, operands)
        if call.op in LAYERS and self.model.experts is not None and self._meets_experts(operands[0]):
            return layer(self, call, operands, results)
        return local(self, call, operands, results)

    def _meets_experts(self, w: Value) -> bool:
        """Whether a computation sends tokens to experts: a layer that has some, and the experts of a block, but no other group of it."""
        return isinstance(w, Part) and w.group not in ("norm", "matrix")

    def _pinned(self, expr: Expr, frame: Frame) -> Frame:
        """The loop variables as they are now; an index without a part is noticed now."""
        if isinstance(expr, Call):
            for arg in expr.args:
                self._pinned(arg, frame)
        if isinstance(expr, Ref):
            self._blocks(expr, frame)
        return frame

    def _pass(self, call: Call, operands: list[Value]) -> Part:
        batch = operands[1].numerator if len(operands) > 1 and isinstance(operands[1], Fraction) else 0
        sample = self.model.sample(self.at, batch)
        weight: Value = self.model.statistic(sample, self.number) if self.model.coupled else Fraction(1)
        if call.op == "backward_with":
            weight = operands[2]
        return gradient(self, call, a(Part, operands[0], call), batch, weight if isinstance(weight, Numbers) else plain(weight))
