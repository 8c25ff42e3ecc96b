"""Walking a program once, for any device: statements change the environment of symbolic values."""

from __future__ import annotations

from dataclasses import replace

from placeproof.core.symbols import info
from placeproof.programs import FIRST_UNIT, Assign, Binary, Call, Do, Expr, For, If, Number, Ref, Resolved, Stmt
from placeproof.programs.ir import Index as PartIndex
from placeproof.programs.ir import expressions
from placeproof.programs.ops import DOMAINS, OPS
from placeproof.prove.terms import ZERO, Poly, Var, constant, fn, inverse, power, product, size, symbol
from placeproof.semantics.encode import batches
from placeproof.semantics.encode.branches import Condition, condition, joined
from placeproof.semantics.encode.buffers import merged, restricted, units_of
from placeproof.semantics.encode.context import Context, NoMeaningError
from placeproof.semantics.encode.exchange import coordinates, exchange
from placeproof.semantics.encode.local import compute_here
from placeproof.semantics.encode.loops import loop, placeholder
from placeproof.semantics.encode.messages import Messages
from placeproof.semantics.encode.reference import Reference
from placeproof.semantics.encode.scope import Scope, edge, loop_variable, shifted
from placeproof.semantics.encode.values import (
    Apart,
    Batch,
    Handle,
    Pair,
    Parts,
    Piece,
    Region,
    Scalar,
    Stream,
    Tensor,
    Value,
    Whole,
    bodies,
    both,
)
from placeproof.semantics.encode.world import World

Env = dict[str, Value]

#: What leaves a value as it is, wherever it lies.
_STORED = ("copy", "to_host", "to_device")


class Walk:
    """One symbolic run of the program's step."""

    def __init__(self, ctx: Context, messages: Messages) -> None:
        self.ctx: Context = ctx
        self.messages = messages
        self.world: World = ctx.world
        self.program: Resolved = ctx.world.program
        self.reference = Reference(ctx.world)
        self.env: Env = {}
        self.mixed: set[str] = set()
        #: What an iteration leaves for the next one alone.
        self.ahead: set[str] = set()
        #: Axis factors along which what a loop carries is equal on all devices.
        self.alike: dict[str, frozenset[str]] = {}
        self.kept = self.program.kept_by_batch
        self.whole = Region(domain="stage", index=ctx.world.stage)
        for state in ("parameters", "optimizer", "gradients"):
            self.env[state] = self._initial(state)

    # What devices begin with.

    def placed(self, state: str, group: str) -> frozenset[tuple[str, str]]:
        """The axis factors along which a device holds only its own part of a state."""
        split = self.world.split_axes(state, group)
        if self.world.stages is not None and self.world.stages not in split:
            split = (*split, self.world.stages)
        return frozenset((f, "blocked") for f in self.world.factors(split))

    def _initial(self, state: str) -> Tensor:
        pieces = {}
        for group in self.world.groups if state == "parameters" else self.world.program.trained:
            held = self.placed(state, group)
            body = self._first(group) if state == "parameters" else self.world.omega(group)
            if state == "gradients":
                body = self.ctx.unknown_of(group)
            pieces[group] = Piece(body=self.ctx.owned(group, body, held), held=held)
        return Tensor(pieces=pieces, region=self.whole)

    def _first(self, group: str) -> Poly:
        if "equal-initial-states" not in self.world.options.without:
            return self.world.theta(group)
        held = {f for f, _ in self.placed("parameters", group)}
        at = {f: self.world.rank(f, 0) if f in held else c for f, c in self.world.here.items()}
        return self.world.initial(group, at)

    # Statements.

    def body(self, body: tuple[Stmt, ...], scope: Scope) -> None:
        """Run statements in order."""
        for stmt in body:
            self.statement(stmt, scope)

    def statement(self, stmt: Stmt, scope: Scope) -> None:
        """Run one statement."""
        self.ctx.place = stmt.place
        match stmt:
            case Assign():
                self._assign(stmt, scope)
            case Do(call=call):
                self._do(call, scope)
            case If():
                self._branch(stmt, scope)
            case For():
                loop(self, stmt, scope)

    def _assign(self, stmt: Assign, scope: Scope) -> None:
        late = batches.shifted(self, stmt)
        value = batches.all_but_one(self, stmt, scope) if late else self.eval(stmt.value, scope, results=len(stmt.targets))
        for target, one in zip(stmt.targets, value if isinstance(value, tuple) else (value,), strict=True):
            new = self._added(target, one, scope) if stmt.accumulate else one
            for index in () if late else self._beside(stmt.value, target):
                new = self._where_there(index, new, target, scope)
            if isinstance(new, Whole | Handle) and self._of_a_unit_by_number(stmt.value, target):
                held = self.ctx.unknown_like(new.result if isinstance(new, Handle) else new)
                new = replace(new, result=held) if isinstance(new, Handle) else held
            self._store(target, new, scope)

    def _beside(self, expr: Expr, target: Ref) -> set[PartIndex]:
        """The parts of other iterations that an expression reads, save the one that is written."""
        return {i for i in self._parts(expr, target) if i.var is not None and i.offset}

    def _parts(self, expr: Expr, target: Ref) -> set[PartIndex]:
        """The parts of buffers that an expression reads, save the one that is written."""
        read = (e.index for e in expressions(expr) if isinstance(e, Ref) and e.name not in self.kept)
        return {i for i in read if i is not None and i != target.index}

    def _of_a_unit_by_number(self, expr: Expr, target: Ref) -> bool:
        """Whether a buffer that is there already is written from the second unit, say: with one unit it keeps what it holds."""
        return target.name in self.env and any(i.var is None and i.offset not in (0, -1) for i in self._parts(expr, target))

    def _where_there(self, index: PartIndex, new: Value, target: Ref, scope: Scope) -> Value:
        """What a statement writes that reads another iteration's part: where there is none, it does nothing."""
        handle = new if isinstance(new, Handle) else None
        value = handle.result if handle is not None else new
        found = scope.find(index.var) if index.var is not None else None
        if found is None or not isinstance(value, Tensor | Stream | Scalar):
            return new
        loop, variable = found
        if isinstance(value, Tensor) and value.region.index == shifted(variable, index.offset):  # no real part's, at the end
            return new if handle is not None or target.name in self.ahead else self.ctx.unknown_tensor(value)
        if index.offset == -1 and loop.start == 1 and not loop.within:
            return new
        before = self.env.get(target.name)
        if handle is not None:
            return replace(handle, result=self.ctx.unknown_like(value))
        if abs(index.offset) > 1 or loop.within is not None or type(before) is not type(value):
            return self.ctx.unknown_like(value)
        end = edge(-1 if index.offset > 0 else 0, self.whole, variable.sort)
        there = self.read(target, scope)
        kept = joined(self.ctx, (variable, end, False), value, there)
        return kept if isinstance(kept, type(value)) else self.ctx.unknown_like(value)

    def _added(self, target: Ref, value: Value, scope: Scope) -> Value:
        before = self.env.get(target.name)
        missing = isinstance(before, Tensor) and target.group is not None and target.group not in before.pieces
        if before is None or missing or (target.name in self.kept and not batches.known(self, target, scope)):
            first = self.ctx.batch is not None or (self.ctx.loops and target.index is None)
            own = [v for _, v in scope.to(target.index.var)] if target.index is not None else []  # each walks its parts once
            loops = tuple(v for v in self.ctx.loops if v not in own or v.sort == self.world.batch)
            held = placeholder(self, target.name, value, loops) if first and target.name not in self.kept else None
            if held is None:
                return value
            self.ctx.from_zero.add(target.name)  # what nothing has written yet counts as zero when the first iteration adds to it
        else:
            held = self.read(target, scope)
        return self._arithmetic("+", held, value, target)

    def _store(self, target: Ref, value: Value, scope: Scope) -> None:
        name, before = target.name, self.env.get(target.name)
        self._race(name)
        if name in self.kept:
            self.env[name] = batches.stored(target, value, scope)
            return
        if isinstance(value, Tensor):
            if isinstance(before, Parts):
                raise NoMeaningError(f"`{name}` is activations in one part and parameters, or gradients, in another", target.place)
            self.env[name] = merged(self, target, value, before, scope)
        elif isinstance(value, Handle):
            ahead = target.index is not None and target.index.offset != 0
            self.env[name] = replace(value, own=before if ahead and isinstance(before, Handle) else None)
        elif target.index is None and target.group is None:
            self.env[name] = value
        else:
            found = scope.find(target.index.var) if target.index is not None and target.index.var else None
            parts = dict(before.by_key) if isinstance(before, Parts) else {}
            over = units_of(self, target, scope) if found is not None else ""
            if not isinstance(value, Whole):
                raise NoMeaningError(f"`{name}` would hold parts of parts", target.place)
            if found is not None and target.index is not None and target.index.offset:
                raise NoMeaningError(f"`{name}` is written for another part than that of this iteration", target.place)
            if over == "all":
                parts = {k: held for k, held in parts.items() if k[0] != target.group}
            parts[Parts.key(target, over)] = (found[0] if found else None, value)
            self.env[name] = Parts(by_key=parts)

    def _race(self, name: str) -> None:
        """A started collective whose operand is written or freed may read either value."""
        for other, held in self.env.items():
            handle = held.value if isinstance(held, Apart) else held
            if isinstance(handle, Handle):
                raced = handle.racing(name)
                self.env[other] = replace(held, value=raced) if isinstance(held, Apart) else raced

    def _do(self, call: Call, scope: Scope) -> None:
        if call.op == "send":
            self.messages.send(self.ctx, call, self.whole_of(call.args[0], scope))
        elif call.op == "zero" and isinstance(call.args[0], Ref):
            ref = call.args[0]
            value = self.read(ref, scope)
            self._store(ref, value.map(lambda _: ZERO) if isinstance(value, Tensor | Stream | Scalar) else value, scope)
        elif call.op == "free" and isinstance(call.args[0], Ref):
            self._race(call.args[0].name)
            if call.args[0].index is None and call.args[0].group is None:
                self.env.pop(call.args[0].name, None)

    # Branches.

    def _branch(self, stmt: If, scope: Scope) -> None:
        where = condition(self.world, stmt, self.scalar(stmt.bound, scope))
        if isinstance(where, bool):
            self.body(stmt.then if where else stmt.orelse, scope)
            return
        before, path, conditions = dict(self.env), dict(self.ctx.path), self.ctx.conditions
        self._on_path(where, True)
        self.body(stmt.then, scope)
        then, self.env, self.ctx.path, self.ctx.conditions = self.env, dict(before), dict(path), conditions
        self._on_path(where, False)
        self.body(stmt.orelse, scope)
        self.ctx.path, self.ctx.conditions = path, conditions
        merged: Env = {}
        for name in dict.fromkeys((*then, *self.env)):
            a, b = then.get(name), self.env.get(name)
            merged[name] = a if a is b and a is not None else self._joined(where, a, b)
        self.env = merged

    def _joined(self, where: Condition, a: Value | None, b: Value | None) -> Value:
        """What a buffer holds after a branch. Where one side alone wrote it, devices of the other side have nothing there."""
        if a is not None and b is not None:
            self.messages.joined(self.ctx, where, a, b)
            return joined(self.ctx, where, a, b)
        known = a if a is not None else b
        assert known is not None
        if not isinstance(known, Tensor | Stream | Scalar):
            return Apart(where=(*where[:2], where[2] is (a is not None)), value=known)
        other = self.ctx.unknown_like(known)
        return joined(self.ctx, where, known, other) if a is not None else joined(self.ctx, where, other, known)

    def _on_path(self, where: Condition, taken: bool) -> None:
        left, right, positive = where
        self.ctx.conditions = (*self.ctx.conditions, (left, right, positive is taken))
        if positive is taken and isinstance(left, Var):
            self.ctx.path = {**self.ctx.path, left.name: right}

    # Expressions.

    def scalar(self, expr: Expr, scope: Scope) -> Poly:
        """The value of an expression that is a number."""
        value = self.eval(expr, scope)
        if not isinstance(value, Scalar):
            raise NoMeaningError("a number is needed here", expr.place)
        return value.body

    def whole_of(self, expr: Expr, scope: Scope) -> Whole:
        """The value of an operand."""
        value = self.eval(expr, scope)
        if not isinstance(value, Whole):
            raise NoMeaningError("an operation reads a buffer of parts as a whole", expr.place)
        return value

    def eval(self, expr: Expr, scope: Scope, results: int = 1) -> Value | Pair:
        """The value of an expression."""
        match expr:
            case Number(value=value):
                return Scalar(body=constant(value))
            case Ref():
                return self.read(expr, scope)
            case Binary():
                left, right = self.whole_of(expr.left, scope), self.whole_of(expr.right, scope)
                return self._arithmetic(expr.op, left, right, expr)
            case Call():
                return self._call(expr, scope, results)

    def _arithmetic(self, op: str, left: Value, right: Value, at: Expr) -> Value:
        if any(isinstance(v, Scalar) and v.of_tensors is not None for v in (left, right)):
            raise NoMeaningError("arithmetic with norms of tensors", at.place)
        if (alike := both(left, right, lambda a, b: self._numbers(op, a, b, at))) is not None:
            return alike
        match left, right:
            case ((Tensor() | Stream()), Scalar()):
                return left.map(lambda body: self._numbers(op, body, right.body, at))
            case Scalar(), (Tensor() | Stream()) if op in ("+", "*", "-"):
                return right.map(lambda body: self._numbers(op, left.body, body, at))
            case Stream(), Stream():  # of tokens that lie otherwise
                return self.ctx.unknown_stream(left.held)
            case Tensor(), Tensor() if set(left.pieces) == set(right.pieces):  # of another part of the model
                return self.ctx.unknown_tensor(left)
        raise NoMeaningError(f"`{op}` between values of these kinds", at.place)

    def _numbers(self, op: str, left: Poly, right: Poly, at: Expr) -> Poly:
        match op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return product(left, right)
            case "/":
                if not right.terms:
                    raise NoMeaningError("division by zero", at.place)
                if right.number is None:
                    self.ctx.divisors.append(right)
                return product(left, inverse(right))
        if right.number is None or right.number.denominator != 1:
            raise NoMeaningError("a power needs a whole number as its exponent", at.place)
        if right.number < 0 and left.number is None:
            self.ctx.divisors.append(left)
        return power(left, int(right.number))

    # Reading buffers.

    def read(self, ref: Ref, scope: Scope) -> Value:
        """The value of a buffer, or of the part and group of it that a reference names."""
        if ref.name not in self.env:
            return self._name(ref, scope)
        value = self.env[ref.name]
        if isinstance(value, Apart):
            if value.where not in self.ctx.conditions:
                raise NoMeaningError(f"`{ref.name}` is read by devices that did not write it", ref.place)
            value = value.value
        if ref.name in self.kept:
            return batches.read(self.world, value, ref, scope)
        if isinstance(value, Handle) and value.own is not None and ref.index is not None and not ref.index.offset:
            return value.own
        if isinstance(value, Parts):
            return self._part_of(value, ref, scope)
        if isinstance(value, Tensor):
            return self._tensor(value, ref, scope)
        return value

    def _name(self, ref: Ref, scope: Scope) -> Value:
        loop = scope.find(ref.name)
        if loop is not None:
            return Batch(index=loop[1])
        if ref.name == "microbatches":
            return Scalar(body=size(self.world.batch))
        if self.program.axis(ref.name) is not None:
            return Scalar(body=self.world.degree(ref.name))
        if ref.name in DOMAINS:
            return Scalar(body=size(self.world.loop_sort(ref.name)))
        try:
            info(ref.name)
        except KeyError:
            raise NoMeaningError(f"`{ref.name}` holds something else in each iteration", ref.place) from None
        return Scalar(body=symbol(ref.name))

    def _part_of(self, value: Parts, ref: Ref, scope: Scope) -> Value:
        found = scope.find(ref.index.var) if ref.index is not None and ref.index.var else None
        over = units_of(self, ref, scope) if found is not None else ""
        if (key := Parts.key(ref, over)) not in value.by_key:
            key = Parts.key(ref, "all")
        if key not in value.by_key:
            raise NoMeaningError(f"`{ref.name}` was not written like this", ref.place)
        wrote, held = value.by_key[key]
        offset = ref.index.offset if ref.index is not None else 0
        if wrote is None and found is None:
            return held
        if wrote is None or found is None or offset or wrote.domain != found[0].domain:
            return self.ctx.unknown_stream()
        return held.replaced({loop_variable(self.world, wrote).name: found[1]})

    def _tensor(self, value: Tensor, ref: Ref, scope: Scope) -> Tensor:
        pieces = value.pieces
        group = value.group
        if ref.group is not None:
            if ref.group not in pieces:
                raise NoMeaningError(f"`{ref.name}` holds nothing of group `{ref.group}`", ref.place)
            pieces, group = {ref.group: pieces[ref.group]}, ref.group
        if (over := units_of(self, ref, scope)) != "all":
            pieces = {g: replace(p, body=restricted(self, p.body, over)) for g, p in pieces.items()}
        return Tensor(pieces=pieces, region=self.region(value.region, ref, scope), group=group)

    def region(self, whole: Region, ref: Ref, scope: Scope) -> Region:
        """The region that a reference names within that of a buffer."""
        index = ref.index
        if index is None:
            return whole
        if index.var is None:
            return self.named(whole, index.offset)
        found = scope.find(index.var)
        if found is None or found[0].domain == "microbatches":
            return whole
        loop, variable = found
        if scope.around(whole, loop):
            return Region(domain=loop.domain, index=shifted(variable, index.offset))
        if not index.offset and whole == Region(domain=loop.domain, index=variable):
            return whole
        return Region(domain=loop.domain, index=fn("another part than", (variable,), variable.sort))

    def named(self, whole: Region, number: int) -> Region:
        """The region of a unit named by a number: from the start, or from the end where it is negative."""
        return Region(domain="units", index=edge(number, whole, self.world.loop_sort("units")))

    def around(self, stmt: For, scope: Scope) -> Region:
        """The region that a loop walks over: the whole stage, its first unit, or the part of the loop around."""
        if stmt.within == FIRST_UNIT:
            return self.named(self.whole, 0)
        loop = scope.find(stmt.within) if stmt.within is not None else None
        return self.whole if loop is None else Region(domain=loop[0].domain, index=loop[1])

    # Operations.

    def _call(self, call: Call, scope: Scope, results: int) -> Value | Pair:
        if call.op == "start":
            inner = call.args[0]
            # what is computed is computed now; a buffer is read while the collective runs
            reads = frozenset(e.name for e in (inner.args if isinstance(inner, Call) else ()) if isinstance(e, Ref))
            return Handle(result=self.whole_of(inner, scope), reads=reads)
        if call.op == "wait":
            return self._wait(call, scope)
        if call.op == "recv":
            return self.messages.receive(self.ctx, call)
        skipped = {"elementwise": (1,), "quantize": (0,), "cast": (0,)}.get(call.op)
        operands = [self.whole_of(a, scope) for i, a in enumerate(call.args) if skipped is None or i in skipped]
        of_tensors = [isinstance(o, Scalar) and o.of_tensors is not None for o in operands]
        directed = call.op == "update_with" and isinstance(operands[-1], Tensor)
        takes = call.op == "update_with" or (call.op == "tensor_norms" and len(operands) > 3)
        if takes != any(of_tensors) and not (directed or OPS[call.op].collective or call.op in _STORED):
            raise NoMeaningError(f"`{call.op}` of what are no norms of tensors, or norms where numbers are needed", call.place)
        if OPS[call.op].collective:
            self._warn_redundant(call, operands[0])
            return exchange(self.ctx, call, operands[0])
        return compute_here(self, call, operands, results)

    def _warn_redundant(self, call: Call, value: Whole) -> None:
        """Copying what is equal everywhere is harmless, and worth a word."""
        if call.op not in ("broadcast", "all_gather") or not isinstance(value, Tensor | Stream | Scalar):
            return
        names = {v.name for v in coordinates(self.world, call)}
        if names and not any(body.free & names for body in bodies(value)):
            axes = ", ".join(call.axes)
            self.ctx.warnings.append((f"`{call.op}` over {axes} copies what is equal on all its devices: it is redundant", call.place))

    def _wait(self, call: Call, scope: Scope) -> Value:
        """The result of a started collective; nobody knows it if its operand was written meanwhile."""
        handle = self.eval(call.args[0], scope)
        if not isinstance(handle, Handle):
            raise NoMeaningError("`wait` needs the handle of a started collective", call.place)
        if not handle.raced:
            return handle.result
        result = handle.result
        return self.ctx.unknown_tensor(result) if isinstance(result, Tensor) else self.ctx.unknown_stream()
