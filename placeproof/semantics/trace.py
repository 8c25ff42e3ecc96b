"""The pass that gives every operation of a step program its values: see :mod:`placeproof.semantics.values`."""

from __future__ import annotations

from dataclasses import replace

from placeproof.core.states import STATES
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Index, Number, Ref, Resolved, Stmt, statements, walked
from placeproof.programs.ops import DOMAINS
from placeproof.semantics.results import result_of, second_of, sum_of
from placeproof.semantics.values import Access, Event, Kind, Trace, Value, placed_value

_SCALAR = Value(kind=Kind.SCALAR)
_TURN = ("loss", "backward", "backward_input", "backward_weight")


def trace(program: Resolved) -> Trace:
    """Walk a well-formed program once, each loop body once, and return its operations and buffer accesses in order."""
    walk = _Walk(program)
    walk.body(program.body)
    return walk.trace


class _Walk:
    def __init__(self, program: Resolved) -> None:
        self.program = program
        self.trace = Trace(program=program)
        self.env: dict[str, Value] = {}
        self.written_in: dict[str, tuple[For, ...]] = {}
        self.loops: list[For] = []
        self.branches: list[tuple[If, bool]] = []
        self.phase = "forward"
        self.stmt: Stmt | None = None
        self.at = 0
        self.root_apart = any(isinstance(s, For) and s.start for s in statements(program.body))

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.at += 1
            self.stmt = stmt
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Assign():
                self._assign(stmt)
            case Do(call=call):
                self._do(call)
            case For():
                if stmt.domain == "microbatches":
                    self.phase = "forward"
                self.loops.append(stmt)
                self.body(stmt.body)
                self.loops.pop()
            case If():
                self._branch(stmt)

    def _branch(self, stmt: If) -> None:
        before = dict(self.env)
        self.branches.append((stmt, True))
        self.body(stmt.then)
        self.branches[-1] = (stmt, False)
        then, self.env = self.env, dict(before)
        self.body(stmt.orelse)
        self.branches.pop()
        written = [s for s in stmt.orelse if isinstance(s, Assign) and isinstance(s.value, Call) and s.value.op == "recv"]
        received = {t.name for s in written for t in s.targets} & set(then)
        self.env = then | {name: value for name, value in self.env.items() if name not in received}

    def _do(self, call: Call) -> None:
        if call.op in ("free", "zero") and call.args and isinstance(call.args[0], Ref):
            self._note(call.args[0], self._lookup(call.args[0]), write=call.op == "zero", freed=call.op == "free")
            return
        self._eval(call)

    def _assign(self, stmt: Assign) -> None:
        value = self._eval(stmt.value)
        for position, target in enumerate(stmt.targets):
            one = value
            if position and isinstance(stmt.value, Call):
                one = second_of(stmt.value, self.trace.events[-1].operands, value, target, self.program)
            self._note(target, one, write=True, accumulate=stmt.accumulate)
            self._store(target, one)

    def _store(self, target: Ref, value: Value) -> None:
        if target.index is not None:
            self.written_in[target.name] = tuple(self.loops)
        named = value.index if self.root_apart and value.index is not None and value.index.var is None else None
        whole = replace(value, index=named) if target.index is None else replace(value, part=None, index=None)
        if target.group is not None:
            before = self.env.get(target.name)
            if before is None and target.name in STATES:
                before = placed_value(self.program, target.name)
            whole = (before or replace(whole, pieces=())).with_group(target.group, whole)
        self.env[target.name] = whole

    def _note(self, ref: Ref, value: Value, *, write: bool, accumulate: bool = False, freed: bool = False) -> None:
        assert self.stmt is not None
        self.trace.accesses.append(
            Access(
                name=ref.name,
                write=write,
                at=self.at,
                stmt=self.stmt,
                loops=tuple(self.loops),
                value=value,
                indexed=self._domain(ref),
                group=ref.group,
                offset=ref.index.offset if ref.index is not None and ref.index.var is not None else 0,
                accumulate=accumulate,
                freed=freed,
            )
        )

    def _domain(self, ref: Ref) -> str | None:
        if ref.index is None:
            return None
        return next((loop.domain for loop in reversed(self.loops) if loop.var == ref.index.var), "units")

    def _lookup(self, ref: Ref) -> Value:
        value = self._whole(ref)
        domain = self._domain(ref) or self._filled_within(ref)
        if domain == "microbatches":
            return value
        if domain is None and self._fills_the_first_unit(ref):
            return replace(value, part="units", index=Index(var=None))
        return replace(value, part=domain, index=ref.index) if domain is not None else value

    def _filled_within(self, ref: Ref) -> str | None:
        """A buffer that an inner loop fills part by part is, as a whole, the part of the loop around both (``bucket[k]``)."""
        if ref.index is not None or ref.name in STATES:
            return None
        filled = self.written_in.get(ref.name, ())
        shared = [a for a, b in zip(filled, self.loops, strict=False) if a is b and a.domain != "microbatches"]
        return shared[-1].domain if shared and len(shared) < len([lp for lp in filled if lp.domain != "microbatches"]) else None

    def _fills_the_first_unit(self, ref: Ref) -> bool:
        """Whether loops within the first unit, now over, have filled a buffer part by part."""
        filled = self.written_in.get(ref.name, ())
        over = not any(a is b for a, b in zip(filled, self.loops, strict=False) if a.domain != "microbatches")
        return ref.index is None and ref.name not in STATES and over and walked(filled) == "first"

    def _whole(self, ref: Ref) -> Value:
        value = self.env.get(ref.name)
        if value is None and ref.name in STATES:
            value = placed_value(self.program, ref.name)
        if value is None:
            return _SCALAR
        return value.group(ref.group) if ref.group is not None else value

    def _eval(self, expr: Expr) -> Value:
        match expr:
            case Number():
                return _SCALAR
            case Ref():
                if expr.name in DOMAINS or self.program.axis(expr.name) is not None:
                    return _SCALAR
                value = self._lookup(expr)
                if expr.name in STATES or expr.name in self.env:
                    self._note(expr, value, write=False)
                return value
            case Binary():
                left, right = self._eval(expr.left), self._eval(expr.right)
                self.trace.arithmetic.append((expr, left, right))
                return sum_of(left, right)
            case Call():
                return self._call(expr)

    def _call(self, call: Call) -> Value:
        operands = tuple(self._eval(a) for a in call.operands)
        if call.op in _TURN and self.phase == "forward":
            self.phase = "backward"
        if call.op in ("update", "update_with", "momentum", "line_sums", "tensor_norms"):
            self.phase = "update"
        result = result_of(call, operands, self.program)
        assert self.stmt is not None
        self.trace.events.append(
            Event(
                stmt=self.stmt,
                call=call,
                operands=operands,
                result=result,
                loops=tuple(self.loops),
                branches=tuple(self.branches),
                phase=self.phase,
            )
        )
        return result
