"""One simulated device: it runs the program's statements, and waits where it needs others."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placeproof.core.program import FIRST_UNIT, Assign, Binary, Call, Do, Expr, For, If, Number, Program, Ref, Stmt
from placeproof.core.program.ops import OPS
from placeproof.core.states import STATES
from placeproof.semantics.simulate import compute
from placeproof.semantics.simulate.experts import LAYERS, LayerCall
from placeproof.semantics.simulate.layout import Element, Layout
from placeproof.semantics.simulate.numbers import HERE
from placeproof.semantics.simulate.problem import Number as Exact
from placeproof.semantics.simulate.problem import Problem
from placeproof.semantics.simulate.values import Handle, Part, Parts

if TYPE_CHECKING:
    from placeproof.semantics.simulate.run import Setup

Waits = Generator[Any, Any, Any]


class NoPartError(Exception):
    """An index beyond the first or last part: the statement does nothing."""


@dataclass(frozen=True)
class Rendezvous:
    """A device enters a collective and waits for its group."""

    group: tuple[object, ...]
    size: int
    what: tuple[object, ...]
    call: Call
    value: Any


@dataclass(frozen=True)
class Message:
    """A device sends to, or waits for, one other device."""

    key: tuple[object, ...]
    sends: bool
    value: Any = None


@dataclass
class Frame:
    """Loop variables: the domain and position of each, and the blocks of its part."""

    parts: dict[str, tuple[str, int, tuple[int, ...]]] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)


class Device:
    """The program's state on one device of the mesh."""

    def __init__(self, program: Program, problem: Problem, at: dict[str, int], setup: Setup) -> None:
        self.program, self.problem, self.at, self.setup = program, problem, at, setup
        self.layout: Layout = problem.layout
        self.env: dict[str, Any] = {}
        self.number: int = 0
        self.batch: int = 0
        self.past: list[dict[str, Any]] = []
        self.stmt: Stmt = Do(call=Call(op="free"))
        self.read_gradients: list[dict[Element, Exact]] = []
        for state in ("parameters", "optimizer", "gradients"):
            self.env[state] = self._initial(state)

    def place(self, axes: tuple[str, ...]) -> int:
        """The device's number within its group over some axes."""
        number = 0
        for factor in self.layout.factors(axes):
            number = number * self.layout.sizes.factors[factor] + self.at[factor]
        return number

    def owns(self, element: Element, axes: tuple[str, ...], order: str = "blocked") -> bool:
        """Whether the device owns the element along some axes."""
        return self.layout.owns(element, self.at, axes, order)

    def has_token(self, token: int) -> bool:
        """Whether a token is the device's own where the sequence is split over the hidden axis."""
        return self.layout.hidden is None or token == self.at[self.layout.hidden]

    def stage_blocks(self) -> tuple[int, ...]:
        """The blocks of the device's pipeline stage."""
        return self.layout.stage_blocks(self.at[self.layout.stages] if self.layout.stages else 0)

    def sample(self, batch: int) -> tuple[int, ...]:
        """The device's samples of one micro-batch."""
        return (*(self.at[f] for f in self.layout.sample_factors), batch)

    def _initial(self, state: str) -> Part:
        own = self.layout.placed(self.at, state)
        data: dict[Element, Any] = {}
        for element in own:
            split = self.layout.factors(self.layout.split_axes("parameters", self.layout.group_of(element)))
            copy = {f: 0 if f in split else n for f, n in self.at.items()}
            first = self.problem.initial(element, copy if state == "parameters" else None)
            data[element] = (first, self.problem.number(Fraction(0))) if state == "optimizer" else first
        return Part(extent=self.layout.extent(self.at, state), data={} if state == "gradients" else data)

    def state(self, name: str) -> Part:
        """A state as the device holds it."""
        value = self.env[name]
        assert isinstance(value, Part)
        return value

    def _kept(self, state: str, value: Any) -> Any:
        """A state has room for what is placed on the device, from one step to the next."""
        room = set(self.layout.extent(self.at, state))
        return value.only(lambda e: e in room, None) if isinstance(value, Part) and not room.issuperset(value.extent) else value

    # Running.

    def step(self, number: int) -> Waits:
        """One training step."""
        self.number = number
        self.past.append({s: self.env[s] for s in ("parameters", "optimizer")})
        self.env = {k: self._kept(k, v) for k, v in self.env.items() if k in STATES and k != "activations"}
        yield from self._body(self.program.body, Frame())

    def _body(self, body: tuple[Stmt, ...], frame: Frame) -> Waits:
        for stmt in body:
            self._note(stmt)
            try:
                yield from self._statement(stmt, frame)
            except NoPartError:
                continue

    def _note(self, stmt: Stmt) -> None:
        """Which statement the device is at, for those who record what it computes."""
        self.stmt = stmt
        HERE.device = ", ".join(f"{f} = {n}" for f, n in self.at.items()) or "the device"
        HERE.line, HERE.text = (stmt.place.line, stmt.place.text.strip()) if stmt.place else (None, "")

    def _statement(self, stmt: Stmt, frame: Frame) -> Waits:
        match stmt:
            case Assign():
                yield from self._assign(stmt, frame)
            case Do(call=Call(op="free", args=(Ref(group=None, index=None) as ref,))):
                self.env.pop(ref.name, None)
            case Do(call=Call(op="free")):
                pass
            case Do(call=Call(op="zero", args=(Ref() as ref,))):
                held = self.env[ref.name]
                if isinstance(held, Part):
                    chosen = self._select(held, ref, frame)
                    self.env[ref.name] = held.merged(chosen.with_data(dict.fromkeys(chosen.extent, Fraction(0))))
                else:
                    self.env[ref.name] = {k: Fraction(0) for k in held} if isinstance(held, dict) else Fraction(0)
            case Do(call=call):
                yield from self.eval(call, frame)
            case If():
                taken = _compares(stmt.op, self.at[stmt.axis], (yield from self.eval(stmt.bound, frame)))
                yield from self._body(stmt.then if taken else stmt.orelse, frame)
            case For():
                yield from self._loop(stmt, frame)

    def _loop(self, stmt: For, frame: Frame) -> Waits:
        if stmt.domain == "microbatches":
            for i in range(self.setup.microbatches):
                self.batch = i
                yield from self._body(stmt.body, Frame(frame.parts, frame.batches | {stmt.var: i}))
            return
        parts = self._parts(stmt.domain, self._within(stmt, frame))
        order = list(enumerate(parts))[stmt.start :]
        for position, blocks in reversed(order) if stmt.reverse else order:
            yield from self._body(stmt.body, Frame(frame.parts | {stmt.var: (stmt.domain, position, blocks)}, frame.batches))

    def _within(self, stmt: For, frame: Frame) -> tuple[int, ...]:
        """The blocks that a loop walks over."""
        if stmt.within is None:
            return self.stage_blocks()
        if stmt.within == FIRST_UNIT:
            return self._parts("units", self.stage_blocks())[0]
        return frame.parts[stmt.within][2]

    def _parts(self, domain: str, blocks: tuple[int, ...]) -> list[tuple[int, ...]]:
        size = {
            "blocks": 1,
            "layers": self.layout.blocks_per_layer,
            "units": len(self.stage_blocks()) // self.layout.sizes.units_per_stage,
        }[domain]
        return [blocks[i : i + size] for i in range(0, len(blocks), size)]

    def blocks_of(self, ref: Ref, frame: Frame) -> tuple[int, ...] | None:
        """The blocks that an index names; None for the whole."""
        if ref.index is None or ref.index.var in frame.batches:
            return None
        if ref.index.var is None:
            return self._parts("units", self.stage_blocks())[ref.index.offset]
        domain, position, blocks = frame.parts[ref.index.var]
        if ref.index.offset == 0:
            return blocks
        siblings = self._parts(domain, self.stage_blocks())
        moved = position + ref.index.offset
        if not 0 <= moved < len(siblings):
            raise NoPartError
        return siblings[moved]

    def _assign(self, stmt: Assign, frame: Frame) -> Waits:
        value = yield from self.eval(stmt.value, frame, results=len(stmt.targets))
        self._note(stmt)
        values = value if len(stmt.targets) > 1 else (value,)
        for target, one in zip(stmt.targets, values, strict=True):
            self._store(target, one, frame, add=stmt.accumulate)

    def _store(self, target: Ref, value: Any, frame: Frame, *, add: bool) -> None:
        held = self.env.get(target.name)
        if isinstance(value, Part):
            if add and isinstance(held, Part):
                value = value.with_data({e: held.data.get(e, Fraction(0)) + v for e, v in value.data.items()})
            whole = target.index is None and target.group is None and not add
            self.env[target.name] = value if whole or not isinstance(held, Part) else held.merged(value)
            return
        blocks = self.blocks_of(target, frame)
        if blocks is None and target.group is None:
            self.env[target.name] = held + value if add and held is not None else value
            return
        parts = held if isinstance(held, Parts) else Parts()
        parts.by_key[(target.group, blocks or ())] = value
        self.env[target.name] = parts

    # Expressions.

    def eval(self, expr: Expr, frame: Frame, results: int = 1) -> Waits:
        """The value of an expression; ``results`` is how many targets take it."""
        match expr:
            case Number(value=value):
                return value
            case Ref():
                return self._read(expr, frame)
            case Binary():
                left = yield from self.eval(expr.left, frame)
                right = yield from self.eval(expr.right, frame)
                return compute.arithmetic(expr.op, left, right)
            case Call():
                return (yield from self._call(expr, frame, results))

    def _read(self, ref: Ref, frame: Frame) -> Any:
        if ref.name in self.env:
            value, blocks = self.env[ref.name], self.blocks_of(ref, frame)
            if isinstance(value, Part):
                return self._select(value, ref, frame)
            return value.by_key[(ref.group, blocks or ())] if isinstance(value, Parts) else value
        if ref.name in frame.batches:
            return Fraction(frame.batches[ref.name])
        if ref.name == "microbatches":
            return Fraction(self.setup.microbatches)
        size = 1
        for factor in self.layout.factors((ref.name,)):
            size *= self.layout.sizes.factors[factor]
        return Fraction(size)

    def _select(self, value: Part, ref: Ref, frame: Frame) -> Part:
        """The part and the group of a buffer that a reference names."""
        blocks = self.blocks_of(ref, frame)
        if blocks is None and ref.group is None:
            return value
        return value.only(lambda e: (blocks is None or e[0] in blocks) and ref.group in (None, "all", self.layout.group_of(e)), ref.group)

    def _call(self, call: Call, frame: Frame, results: int) -> Waits:
        if call.op == "start":
            return Handle(call=call.args[0], bindings=self._pinned(call.args[0], frame))
        if call.op == "wait":
            handle = yield from self.eval(call.args[0], frame)
            return (yield from self.eval(handle.call, handle.bindings))
        if call.op in ("elementwise", "quantize", "cast"):
            position = 1 if call.op == "elementwise" else 0
            return compute.local(self, call, [(yield from self.eval(call.args[position], frame))], results)
        operands = []
        for arg in call.args:
            operands.append((yield from self.eval(arg, frame)))
        self._note(self.stmt)
        if call.op in ("send", "recv"):
            return (yield self._message(call, operands))
        if OPS[call.op].collective:
            return (yield self._rendezvous(call, operands[0]))
        if call.op in ("backward", "backward_with") and not self.layout.network:
            return (yield self._pass(call, operands))
        if self.layout.experts is not None and call.op in LAYERS and self._meets_experts(operands[0]):
            together = replace(call, axes=(self.layout.experts,))
            return (yield self._rendezvous(together, LayerCall(operands, results)))
        return compute.local(self, call, operands, results)

    def _meets_experts(self, w: Part) -> bool:
        """Whether a computation sends tokens to experts: a layer that has some, and the experts of a block, but no other group of it."""
        return w.group not in ("norm", "matrix")

    def _pinned(self, expr: Expr, frame: Frame) -> Frame:
        """The loop variables as they are now; an index without a part is noticed now."""
        if isinstance(expr, Call):
            for arg in expr.args:
                self._pinned(arg, frame)
        if isinstance(expr, Ref):
            self.blocks_of(expr, frame)
        return Frame(dict(frame.parts), dict(frame.batches))

    def _message(self, call: Call, operands: list[Any]) -> Message:
        axis, sends = call.axes[0], call.op == "send"
        offset = int(call.option("to" if sends else "source", "1") or "1")
        other = {**self.at, axis: self.at[axis] + offset}
        ends = (self.at, other) if sends else (other, self.at)
        key = (axis, *(tuple(sorted(end.items())) for end in ends))
        return Message(key=key, sends=sends, value=operands[0] if operands else None)

    def _pass(self, call: Call, operands: list[Any]) -> Rendezvous:
        """A whole pass of the flat model: the devices of the axes that split the computation take part together."""
        axes = {a.name for a in self.program.axes if a.splits.compute} | {g.experts for g in self.program.groups if g.experts}
        together = replace(call, axes=tuple(a.name for a in self.program.axes if a.name in axes))
        batch = operands[1].numerator if len(operands) > 1 and isinstance(operands[1], Fraction) else 0
        local = self.problem.statistic(self.sample(batch), self.number) if self.problem.coupled else 1
        statistic = operands[2] if call.op == "backward_with" else local
        return self._rendezvous(together, (operands[0], batch, statistic))

    def _rendezvous(self, call: Call, value: Any) -> Rendezvous:
        factors = self.layout.factors(call.axes)
        fixed: tuple[object, ...] = tuple(sorted((f, at) for f, at in self.at.items() if f not in factors))
        size = 1
        for factor in factors:
            size *= self.layout.sizes.factors[factor]
        if call.op == "tied_reduce":
            ends = (0, self.layout.sizes.factors[factors[0]] - 1)
            inside = self.at[factors[0]] in ends
            fixed, size = (*fixed, ("ends" if inside else self.at[factors[0]], 0)), len(set(ends)) if inside else 1
        what = (call.op, call.axes, call.options, call.place and call.place.line)
        return Rendezvous(group=(tuple(sorted(factors)), fixed), size=size, what=what, call=call, value=value)


def _compares(op: str, left: int, right: Fraction) -> bool:
    return {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]
