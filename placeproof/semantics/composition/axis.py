"""How everything in a step lies on one axis of its mesh: a derivation by the clauses of the rule, or where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from placeproof.core.diagnostics import Place
from placeproof.core.mesh import Axis
from placeproof.core.strategy import NORM
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Program, Ref, Stmt
from placeproof.programs.ir import constant, expressions
from placeproof.prove.composition import CARRIED, JOINED, PLACED, REPLICATE, SHARD, ZERO, ZEROED, AxisType, Clause, Derivation, Use

#: What a value is to the rule.
WEIGHTS, OPTIMIZER, GRADIENTS, STREAM, SAVED, NUMBER, BATCH = "parameters", "optimizer", "gradients", "stream", "saved", "number", "batch"
_TENSORS = (WEIGHTS, OPTIMIZER, GRADIENTS)
#: Operations on a device that change no number, or do so linearly; and quantisers, which are taken to be exact.
_UNCHANGED = ("copy", "cast", "to_host", "to_device", "quantize", "dequantize")
#: Stands among what a started operation reads where one of these buffers has changed since.
_RACED = ""
#: What nothing may read: what an earlier iteration left, and what a loop filled in part.
_EARLIER, _SOME = "earlier", "some"
_EXACT = ("quantize", "dequantize")
_MOVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "part")


class NotTypedError(Exception):
    """No clause serves at a place."""

    def __init__(self, why: str, place: Place | None) -> None:
        super().__init__(why)
        self.place = place


@dataclass(frozen=True, slots=True)
class Typed:
    """A value. ``uses``: of each group the number of the use that it comes from; of what has no groups, under no name. ``power``: of a
    number, that of the axis's degree in it. ``missing``: the loop of which one iteration's part is there, and ``alone`` if it has no other;
    empty if all is there. ``reads``: of what was started and not waited for, the buffers that may still be read."""

    kind: str
    uses: Mapping[str, int] = field(default_factory=dict)
    power: int = 0
    missing: str = ""
    alone: bool = True
    reads: frozenset[str] = frozenset()


_Env = dict[tuple[str, str], Typed]


@dataclass
class Walk:
    """One walk over a program, along one factor of one of its axes. ``clauses``: those of the rule, by what uses them."""

    program: Program
    axis: Axis
    factor: str
    clauses: Mapping[tuple[str, str], tuple[Clause, ...]]
    uses: list[Use] = field(default_factory=list)
    assumed: set[str] = field(default_factory=set)
    sent: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    waiting: list[tuple[tuple[str, int], int]] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    within: dict[str, str | None] = field(default_factory=dict)
    released: dict[tuple[str, str], str] = field(default_factory=dict)
    place: Place | None = None

    def derivation(self) -> Derivation:
        """The whole walk. Raises NotTypedError."""
        split = {s: self._split(s) for s in (WEIGHTS, OPTIMIZER)}
        self.split = split[WEIGHTS]
        placed = {s: {g: AxisType(SHARD if parts else REPLICATE) for g, parts in own.items()} for s, own in split.items()}
        env: _Env = {(s, g): Typed(s, {g: self._use(PLACED, (), lies)}) for s, own in placed.items() for g, lies in own.items()}
        self._body(self.program.body, env)
        self._delivered()
        ends = [(self._read(env, Ref(name=s, group=g)).uses[g], lies) for s, own in placed.items() for g, lies in own.items()]
        for number, wanted in ends:
            given = self.uses[number].gives
            if given.power or given.layout not in ((wanted.layout, ZERO) if wanted.layout == REPLICATE else (REPLICATE, SHARD, ZERO)):
                self._fail(f"a state ends as {given} on `{self.factor}`, and is placed {wanted}")
        return Derivation(axes=(self.factor,), uses=tuple(self.uses), ends=tuple(ends))

    def _delivered(self) -> None:
        """Tie what was received to what was sent."""
        for key, number in self.waiting:
            if key not in self.sent:
                self._fail(f"what comes along `{key[0]}` was never sent")
            self.uses[number] = Use(JOINED, tuple(self.sent[key]), self.uses[self.sent[key][0]].gives)

    def _split(self, state: str) -> dict[str, bool]:
        """Of each group whether a state lies in parts along the axis."""
        split = {}
        for group in (g for g in self.program.groups if g.name in self._having(state)):
            placed = next((p for p in self.program.placed if p.state == state and p.group in (None, group.name)), None)
            mode = dict(placed.modes).get(self.axis.name) if placed is not None else None
            if mode is not None and mode.transient:
                self._fail(f"no device holds the {state} between steps")
            split[group.name] = mode is not None and mode.split
        return split

    def _having(self, kind: str) -> tuple[str, ...]:
        """The groups of which there is a state."""
        return tuple(g.name for g in self.program.groups) if kind == WEIGHTS else self.program.trained

    def _fail(self, why: str) -> None:
        raise NotTypedError(why, self.place)

    def _use(self, clause: str, operands: tuple[int, ...], gives: AxisType, said: int = 0) -> int:
        self.uses.append(Use(clause, operands, gives, said))
        return len(self.uses) - 1

    def _apply(self, op: str, role: str, operands: tuple[int, ...], said: int = 0, only: tuple[str, ...] = ()) -> int:
        """The result of the clause that serves. ``only``: what the operation may be said to be."""
        types = tuple(self.uses[o].gives for o in operands)
        for clause in self.clauses.get((op, role), ()):
            gives = clause.result(types, said) if not clause.only or clause.only in only else None
            if gives is not None:
                self.assumed |= {"elementwise-optimizer"} if clause.only == "element by element" else set()
                return self._use(clause.name, operands, gives, said)
        shown = ", ".join(map(str, types))
        raise NotTypedError(f"no clause gives `{op}` of {shown or 'nothing'} where `{self.factor}` is {role} to it", self.place)

    # Statements.

    def _body(self, body: tuple[Stmt, ...], env: _Env) -> None:
        for stmt in body:
            self.place = stmt.place
            match stmt:
                case Assign():
                    self._assign(stmt, env)
                case Do():
                    self._do(stmt.call, env)
                case For():
                    self._loop(stmt, env)
                case If():
                    self._branch(stmt, env)

    def _assign(self, stmt: Assign, env: _Env) -> None:
        results = self._pair(stmt.value, env) if len(stmt.targets) == 2 else (self._value(stmt.value, env),)
        for target, value in zip(stmt.targets, results, strict=True):
            written = value
            if stmt.accumulate:
                written = self._sum(self._read(env, target), value)
            self._write(env, target, written)

    def _touch(self, env: _Env, name: str) -> None:
        """A buffer is written or freed: what was started, and may still read it, may read either value."""
        for key, value in env.items():
            if name in value.reads:
                env[key] = replace(value, reads=value.reads | {_RACED})

    def _write(self, env: _Env, target: Ref, value: Typed) -> None:
        self._touch(env, target.name)
        missing = ""
        if target.index is not None:
            if target.index.var is None or target.index.offset:
                self._fail("a part that no loop stands at is written")
            missing = target.index.var or ""
        if value.kind in _TENSORS:
            groups = [target.group] if target.group is not None else list(value.uses)
            if set(groups) - set(value.uses):
                self._fail(f"`{target.name}` is written with a group that the value does not have")
            for group in groups:
                one = replace(value, uses={group: value.uses[group]})
                old = env.get((target.name, group))
                whole = old is not None and not old.missing and old.kind == value.kind and self._alike(old, value, group)
                env[target.name, group] = one if whole else _part(old, one, missing)
        else:
            key = (target.name, target.group or "")
            env[key] = _part(env.get(key), value, missing)

    def _alike(self, old: Typed, new: Typed, group: str) -> bool:
        """Whether a part is written over a whole that lies as it does, or is zero."""
        before, after = self.uses[old.uses[group]].gives, self.uses[new.uses[group]].gives
        return before == after or before.layout == ZERO

    def _do(self, call: Call, env: _Env) -> None:
        match call:
            case Call(op="zero", args=(Ref() as ref,)) if ref.index is None:
                self._touch(env, ref.name)
                groups = [ref.group] if ref.group is not None else self._having(GRADIENTS)
                for group in groups:
                    env[ref.name, group] = Typed(GRADIENTS, {group: self._use(ZEROED, (), AxisType(ZERO))})
            case Call(op="free", args=(Ref() as ref,)):
                self._touch(env, ref.name)
                for key in [k for k in env if k[0] == ref.name and ref.group in (None, k[1])]:
                    if ref.index is None:
                        del env[key]
                    else:  # one part, which no later line of this iteration may read
                        self.released[key] = ref.index.var or ""
            case Call(op="send", args=(x,)):
                (axis,) = call.axes
                value = self._value(x, env)
                if self._over(axis) or value.kind != STREAM:
                    self._fail("a message along the axis itself, or of something other than a stream")
                self.sent.setdefault((axis, call.steps), []).append(value.uses[""])
            case _:
                self._fail(f"no clause speaks of `{call.op}`")

    def _over(self, *axes: str) -> bool:
        return self.factor in self.program.factors(*axes)

    def _loop(self, loop: For, env: _Env) -> None:
        """A loop: what it carries has to lie after an iteration as before it. What it fills part by part is whole after it."""
        wanted: dict[tuple[tuple[str, str], str], AxisType] = {}
        lost: set[tuple[str, str]] = set()  # what an iteration does not find as the one before it
        left: _Env = {}  # what an iteration makes, which parts of other iterations stand beside in the next
        while True:
            began = {k: v for k, v in env.items() if k not in lost}
            carried = {k: v for k, v in began.items() if v.uses}
            began = left | began
            mark = len(self.uses)
            self.released = {k: var for k, var in self.released.items() if var != loop.var}
            for key, value in carried.items():
                own = {g: self._use(CARRIED, (n,), wanted.get((key, g), self.uses[n].gives)) for g, n in value.uses.items()}
                began[key] = replace(value, uses=own)
            first = {key: began[key] for key in carried}
            self.loops.append(loop.var)
            self.within[loop.var] = loop.within
            self._body(loop.body, began)
            self.loops.pop()
            known = len(wanted)
            more = {k for k in first if k not in began or not self._carried(k, first[k], began[k], wanted)}
            made = {k: Typed(v.kind, missing=_EARLIER, alone=False, reads=v.reads) for k, v in began.items() if k not in env}
            if not more and known == len(wanted) and made.keys() <= left.keys():
                break
            lost |= more
            left |= made
            self._rewind(mark)
        gone = [k for k, var in self.released.items() if var == loop.var]
        before = set(env)
        self.released = {k: var for k, var in self.released.items() if var != loop.var}
        env.clear()
        left_over = {key: self._left(loop, value) for key, value in began.items() if key not in gone and key not in lost}
        env.update({k: replace(v, alone=k not in before) for k, v in left_over.items()})

    def _rewind(self, mark: int) -> None:
        """Forget what was made since."""
        del self.uses[mark:]
        self.waiting = [w for w in self.waiting if w[1] < mark]
        self.sent = {key: kept for key, numbers in self.sent.items() if (kept := [n for n in numbers if n < mark])}

    def _carried(self, key: tuple[str, str], before: Typed, after: Typed, wanted: dict[tuple[tuple[str, str], str], AxisType]) -> bool:
        """Tie what an iteration leaves to what the next begins with; False where these are not alike. ``wanted``: how what began as zero
        has to begin."""
        if (before.kind, set(before.uses), before.power, before.reads) != (after.kind, set(after.uses), after.power, after.reads):
            return False
        for group, number in before.uses.items():
            start, end = self.uses[number], self.uses[after.uses[group]].gives
            if end not in (start.gives, AxisType(ZERO)) and start.gives.layout != ZERO:
                return False
            if start.gives.layout == ZERO and end.layout != ZERO:
                wanted[key, group] = end
            self.uses[number] = Use(CARRIED, (*start.operands, after.uses[group]), start.gives)
        return True

    def _left(self, loop: For, value: Typed) -> Typed:
        """What a buffer is after a loop that filled it part by part: whole, or one part of an outer loop."""
        if value.missing != loop.var:
            return value
        outer = self.loops[-1] if self.loops and loop.within is not None else ""
        return replace(value, missing=_SOME if loop.start or loop.within not in (None, outer) else outer)

    def _branch(self, stmt: If, env: _Env) -> None:
        if self._over(stmt.axis):
            self._fail(f"devices of `{self.factor}` part ways")
        then, other = dict(env), dict(env)
        self._body(stmt.then, then)
        self._body(stmt.orelse, other)
        env.clear()
        for key in then.keys() & other.keys():
            one, two = then[key], other[key]
            if one == two or _EARLIER in (one.missing, two.missing):
                env[key] = two if two.missing == _EARLIER else one
                continue
            if (one.kind, set(one.uses), one.power, one.reads) != (two.kind, set(two.uses), two.power, two.reads):
                self._fail(f"`{key[0]}` is one thing on some devices and another on others")
            uses = {g: self._joined(one.uses[g], two.uses[g]) for g in one.uses}
            env[key] = replace(one, uses=uses, missing=one.missing or two.missing)

    def _joined(self, one: int, two: int) -> int:
        a, b = self.uses[one].gives, self.uses[two].gives
        if a != b and ZERO not in (a.layout, b.layout):
            self._fail(f"a value lies as {a} on some devices and as {b} on others")
        return self._use(JOINED, (one, two), b if a.layout == ZERO else a)

    # Expressions.

    def _value(self, expr: Expr, env: _Env) -> Typed:
        match expr:
            case Number():
                return Typed(NUMBER)
            case Ref():
                value = self._read(env, expr)
                if value.reads:
                    self._fail(f"`{expr.name}` is read, and was not waited for")
                return value
            case Binary():
                return self._binary(expr, env)
            case Call(op="start", args=(started,)):
                names = frozenset(e.name for e in expressions(started) if isinstance(e, Ref))
                return replace(self._value(started, env), reads=names)
            case Call(op="wait", args=(Ref() as handle,)) if (value := self._read(env, handle)).reads:
                if _RACED in value.reads:
                    self._fail(f"`{handle.name}` may have read a buffer after it changed")
                return replace(value, reads=frozenset())
        return _OPERATIONS.get(expr.op, _no_clause)(self, expr, [self._value(a, env) for a in expr.operands])

    def _read(self, env: _Env, ref: Ref) -> Typed:
        if self.program.axis(ref.name) is not None:
            return Typed(NUMBER, power=int(self._over(ref.name)))
        if ref.name == "microbatches":
            return Typed(NUMBER)
        if ref.name in self.loops:
            return Typed(BATCH)
        keys = [k for k in env if k[0] == ref.name and (ref.group is None or k[1] == ref.group)]
        values = [env[k] for k in keys]
        if not values:
            self._fail(f"`{ref.name}` is read, and not all of it was written")
        kind = values[0].kind
        if any(k in self.released for k in keys):
            self._fail(f"`{ref.name}` is read, and a part of it was freed")
        missing = {v.missing for v in values} - {"", *self.loops}
        if any(v.missing and not v.alone and not self._inside(ref, v.missing) for v in values):
            self._fail(f"`{ref.name}` is read, and parts of other iterations stand in it")
        whole = len(values) == len(self._having(kind)) or ref.group is not None if kind in _TENSORS else len(values) == 1
        if missing or not whole or any(v.kind != kind for v in values):
            self._fail(f"`{ref.name}` is read, and not all of it was written")
        if kind in _TENSORS:
            reads = frozenset[str]().union(*(v.reads for v in values))
            return Typed(kind, {k[1]: v.uses[k[1]] for k, v in zip(keys, values, strict=True)}, reads=reads)
        return replace(values[0], missing="", alone=True)

    def _inside(self, ref: Ref, loop: str) -> bool:
        """Whether what is read is within the part that an iteration of a loop stands at."""
        var = ref.index.var if ref.index is not None and not ref.index.offset else None
        while var is not None and var != loop:
            var = self.within.get(var)
        return var is not None

    def _binary(self, expr: Binary, env: _Env) -> Typed:
        left, right = self._value(expr.left, env), self._value(expr.right, env)
        match expr.op, left.kind, right.kind:
            case "*" | "/", "number", "number":
                return Typed(NUMBER, power=left.power + (right.power if expr.op == "*" else -right.power))
            case _, "number", "number" if not left.power and not right.power:
                return Typed(NUMBER)
            case "**", "number", "number" if not right.power and (exponent := constant(expr.right)) is not None:
                if exponent.denominator == 1:
                    return Typed(NUMBER, power=left.power * int(exponent))
            case "+", _, _ if NUMBER not in (left.kind, right.kind):
                return self._sum(left, right)
            case "*" | "/", _, "number" if left.kind != NUMBER:
                return self._scaled(left, right.power if expr.op == "*" else -right.power)
            case "*", "number", _:
                return self._scaled(right, left.power)
        raise NotTypedError(f"no clause speaks of `{expr.op}` of {left.kind} and {right.kind}", self.place)

    def _sum(self, left: Typed, right: Typed) -> Typed:
        if left.kind != right.kind or set(left.uses) != set(right.uses) or not left.uses:
            self._fail(f"{left.kind} and {right.kind} are added")
        return Typed(left.kind, {g: self._apply("+", "beside", (left.uses[g], right.uses[g])) for g in left.uses})

    def _scaled(self, value: Typed, power: int) -> Typed:
        if not value.uses:
            self._fail(f"{value.kind} is scaled")
        return Typed(value.kind, {g: self._apply("scale", "beside", (n,), power) for g, n in value.uses.items()})

    def _pair(self, expr: Expr, env: _Env) -> tuple[Typed, Typed]:
        """The two results of an operation."""
        if isinstance(expr, Call) and expr.op in ("forward", "update", "backward"):
            operands = [self._value(a, env) for a in expr.operands]
            if expr.op == "forward":
                return self._forward(operands)
            if expr.op == "update":
                return self._update(expr, operands)
            return self._backward(expr, operands), self._input(expr, operands)
        raise NotTypedError("no clause speaks of two results", self.place)

    # Operations.

    def _move(self, call: Call, operands: list[Typed]) -> Typed:
        """A collective, or a device's own part, of each group."""
        (value,) = operands
        if value.kind not in (*_TENSORS, STREAM):
            self._fail(f"`{call.op}` of {value.kind}")
        if not self._over(*call.axes):
            if call.op in ("all_reduce", "reduce_scatter") and call.choice("op") == "max":
                self._fail(f"`{call.op}` of the greatest is not linear")
            return Typed(value.kind, {g: self._apply("linear", "beside", (n,)) for g, n in value.uses.items()})
        if value.kind == STREAM and not self.axis.splits.matrices:
            self._fail(f"`{call.op}` of a stream over `{self.factor}`, whose devices have different samples")
        op = call.op
        if op in ("all_reduce", "reduce_scatter") and call.choice("op") != "sum":
            op = f"{op} {call.choice('op')}"
        if op == "broadcast":
            op = f"{op} {call.option('root') or ('owner' if value.kind in _TENSORS else '0')}"
        if op == "part" and call.choice("order") != "blocked":
            op = f"{op} {call.choice('order')}"
        return Typed(value.kind, {g: self._apply(op, "over", (n,)) for g, n in value.uses.items()})

    def _unchanged(self, call: Call, operands: list[Typed]) -> Typed:
        if not operands[0].uses:
            self._fail(f"`{call.op}` of {operands[0].kind}")
        self.assumed |= {"exact-quantizers"} if call.op in _EXACT else set()
        return operands[0]

    def _scale(self, _call: Call, operands: list[Typed]) -> Typed:
        value, by = operands
        if by.kind != NUMBER:
            self._fail("a value is scaled by something that is no product of degrees")
        return self._scaled(value, by.power)

    def _of_streams(self) -> str:
        """What the axis is to streams."""
        if self.axis.splits.samples:
            return "samples"
        if not self.axis.splits.matrices:
            self._fail(f"no clause speaks of an axis that splits the {self.axis.splits}")
        return "slices"

    def _data(self, _call: Call, _operands: list[Typed]) -> Typed:
        return Typed(STREAM, {"": self._apply("data", self._of_streams(), ())})

    def _loss(self, _call: Call, operands: list[Typed]) -> Typed:
        if operands[0].kind != STREAM:
            self._fail(f"`loss` of {operands[0].kind}")
        self.assumed |= {"separable-loss", "equal-token-counts"} if self.axis.splits.samples else set()
        return Typed(STREAM, {"": self._apply("loss", self._of_streams(), (operands[0].uses[""],))})

    def _recv(self, call: Call, _operands: list[Typed]) -> Typed:
        """What comes along another axis lies as what was sent; how, is put in where the walk ends. Until then it is like nothing."""
        (axis,) = call.axes
        if self._over(axis):
            self._fail("a message along the axis itself")
        key = (axis, -call.steps)
        number = self._use(JOINED, (), AxisType(ZERO))
        self.waiting.append((key, number))
        return Typed(STREAM, {"": number})

    def _role(self, weights: Typed, group: str, stream: int) -> tuple[str, tuple[str, ...]]:
        """What the axis is to a computation with a group, and what may be said of that."""
        declared = next(g for g in self.program.groups if g.name == group)
        by_token = len(weights.uses) == 1 < len(self.program.groups) and (group == NORM or bool(declared.experts))
        samples = self._of_streams() == "samples"
        if self.axis.name in declared.experts:
            if not samples and not by_token:
                self._fail(f"a whole block has experts over an axis that splits the {self.axis.splits}")
            return "experts", ()
        if samples:
            return "samples", ()
        if self.split[group]:
            return "slices" if len(weights.uses) == 1 and len(self.program.groups) > 1 else "slices of all groups", ()
        if self.uses[stream].gives.layout == SHARD:
            return "tokens", ("token by token",) if by_token else ()
        return "copies", ()

    def _computed(self, op: str, operands: list[Typed], kinds: tuple[str, ...]) -> dict[str, int]:
        """A computation with parameters, group by group."""
        weights, *others = operands
        if weights.kind != WEIGHTS or tuple(o.kind for o in others) != kinds:
            self._fail(f"`{op}` of {', '.join(o.kind for o in operands)}")
        numbers = tuple(o.uses[""] for o in others)
        made = {}
        for group, number in weights.uses.items():
            role, only = self._role(weights, group, numbers[0])
            made[group] = self._apply(op, role, (number, *numbers), only=only)
        return made

    def _one(self, made: Mapping[str, int]) -> int:
        """The stream that all groups make together."""
        first, *others = made.values()
        for other in others:
            first = self._joined(first, other)
        return first

    def _forward(self, operands: list[Typed]) -> tuple[Typed, Typed]:
        made = self._computed("forward", operands, (STREAM,))
        out = self._one(made)
        return Typed(STREAM, {"": out}), Typed(SAVED, {"": self._apply("keep", "beside", (out,))})

    def _output(self, _call: Call, operands: list[Typed]) -> Typed:
        if operands[0].kind != SAVED:
            self._fail(f"`output` of {operands[0].kind}")
        return Typed(STREAM, {"": self._apply("output", "beside", (operands[0].uses[""],))})

    def _backward(self, call: Call, operands: list[Typed]) -> Typed:
        if len(operands) < 3:
            return self._pass(call, operands)
        kinds = (SAVED, STREAM) if len(operands) == 3 else (SAVED, STREAM, STREAM)
        op = "backward_weight" if len(operands) == 3 else "backward_weight of"
        return self._of_trained(self._computed(op, operands, kinds))

    def _of_trained(self, made: Mapping[str, int]) -> Typed:
        """The gradients of the groups that have some."""
        return Typed(GRADIENTS, {g: n for g, n in made.items() if g in self.program.trained})

    def _input(self, _call: Call, operands: list[Typed]) -> Typed:
        return Typed(STREAM, {"": self._one(self._computed("backward_input", operands, (SAVED, STREAM)))})

    def _pass(self, call: Call, operands: list[Typed]) -> Typed:
        """A whole forward and backward pass over the device's own samples."""
        weights, *batch = operands
        if weights.kind != WEIGHTS or any(b.kind != BATCH for b in batch) or len(weights.uses) != len(self.program.groups):
            self._fail(f"`{call.op}` of {', '.join(o.kind for o in operands)}")
        self.assumed |= {"separable-loss", "equal-token-counts"} if self.axis.splits.samples else set()
        made = {}
        for group in self.program.groups:
            samples, experts = self._of_streams() == "samples", self.axis.name in group.experts
            role = "samples" if samples else "slices" if self.split[group.name] or experts else "copies"
            role = "experts" if samples and experts else role
            role = "shares" if role == "copies" and self.axis.name in group.partial else role
            made[group.name] = self._apply("pass", role, (weights.uses[group.name],))
        return self._of_trained(made)

    def _update(self, call: Call, operands: list[Typed]) -> tuple[Typed, Typed]:
        trained = [frozenset(o.uses) & frozenset(self.program.trained) for o in operands]
        if [o.kind for o in operands] != [WEIGHTS, OPTIMIZER, GRADIENTS] or len(set(trained)) != 1:
            self._fail(f"`{call.op}` of {', '.join(o.kind for o in operands)}")
        kinds = {dict(self.program.reference).get("optimizer"), *(g.update for g in self.program.groups)} - {None}
        other = bool(kinds - {"elementwise"})
        only = () if other or "elementwise-optimizer" in self.program.without else ("element by element",)
        made = {g: self._apply("update", "beside", tuple(o.uses[g] for o in operands), only=only) for g in operands[1].uses}
        return Typed(WEIGHTS, {**operands[0].uses, **made}), Typed(OPTIMIZER, dict(made))

    def _master(self, call: Call, operands: list[Typed]) -> Typed:
        if operands[0].kind != OPTIMIZER:
            self._fail(f"`{call.op}` of {operands[0].kind}")
        return Typed(WEIGHTS, {g: self._apply("master", "beside", (n,)) for g, n in operands[0].uses.items()})


def _part(old: Typed | None, value: Typed, missing: str) -> Typed:
    """A value as a part of a buffer, which may hold others; or as all of it."""
    if not missing:
        return replace(value, missing="")
    raced = frozenset() if old is None else old.reads & {_RACED}
    return replace(value, missing=missing, alone=old is None or (old.missing == missing and old.alone), reads=value.reads | raced)


def _no_clause(walk: Walk, call: Call, _operands: list[Typed]) -> Typed:
    raise NotTypedError(f"no clause speaks of `{call.op}`", walk.place)


_Operation = Callable[[Walk, Call, list[Typed]], Typed]
_OPERATIONS: Mapping[str, _Operation] = {
    **dict.fromkeys(_MOVES, Walk._move),
    **dict.fromkeys(_UNCHANGED, Walk._unchanged),
    "scale": Walk._scale,
    "data": Walk._data,
    "loss": Walk._loss,
    "recv": Walk._recv,
    "forward": lambda walk, _call, operands: walk._forward(operands)[0],
    "output": Walk._output,
    "backward": Walk._backward,
    "backward_weight": Walk._backward,
    "backward_input": Walk._input,
    "master": Walk._master,
}
