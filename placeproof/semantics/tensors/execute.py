"""A tensor program walked on one mesh: what each `returns` gives, as terms."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Ref, Stmt
from placeproof.programs.ir import Tensor, statements
from placeproof.programs.ops import COMPARE
from placeproof.prove.terms import Poly, app, by_cases, choose, constant, fn, same
from placeproof.prove.terms.nodes import Sort
from placeproof.semantics.encode.branches import Condition, condition
from placeproof.semantics.encode.context import NoMeaningError, written_out
from placeproof.semantics.layouts.layout import in_words
from placeproof.semantics.tensors.compute import Local, no_slope
from placeproof.semantics.tensors.exchange import EXCHANGES, exchange
from placeproof.semantics.tensors.lemmas import Lemma, arbitrary, mentioned
from placeproof.semantics.tensors.ring import Ring
from placeproof.semantics.tensors.values import Edge, Picks, Space, Value, dimension


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Returned:
    """One `returns`: the value, and for a gradient also what is derived, by what, and the adjoint that it begins with."""

    call: Call
    name: str
    value: Value
    #: The tensors of the header that are, as they came in, what it is by and the adjoint.
    given: tuple[str | None, str | None] = (None, None)
    of: Value | None = None
    by: Value | None = None
    at: Value | None = None


class SymbolicRun:
    """One walk over a program. ``names``: those whose values are lemmas; ``lemmas``: what stands behind them."""

    def __init__(self, space: Space, names: frozenset[str] = frozenset()) -> None:
        self.space, self.names = space, names
        self.lemmas: dict[str, Lemma] = {}
        self.local = Local(space)
        self.begun = {t.name: self._declared(t) for t in space.program.tensors}
        self.env: dict[str, Value | Picks] = dict(self.begun)
        self.returned: list[Returned] = []
        self._inside = 0

    def all(self) -> list[Returned]:
        """Walk the whole program."""
        self.body(self.space.program.body)
        return self.returned

    def reads(self, value: Value) -> frozenset[str]:
        """The tensors of the header that a value is computed from."""
        return mentioned(value.body.key, self.lemmas) & self.begun.keys()

    def _declared(self, tensor: Tensor) -> Value | Picks:
        """A tensor of the header: the same elements on every device that has them."""
        split, at = tensor.split_dims, [dimension(d) for d in tensor.dims]
        if tensor.picks is not None:
            sort: Sort = dimension(tensor.picks).sort
            return Picks(index=fn(f"in.{tensor.name}", at, sort), picks=tensor.picks, dims=frozenset(tensor.dims), split=split)
        return Value(body=app(f"in.{tensor.name}", *at), dims=frozenset(tensor.dims), split=split)

    # Statements.

    def body(self, body: tuple[Stmt, ...]) -> None:
        """Statements in order."""
        for stmt in body:
            with written_out(stmt):
                self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Assign():
                self._assign(stmt)
            case Do(call=Call(op="free", args=(Ref(name=name),))):
                self.env.pop(name, None)
            case Do(call=Call(op="returns") as call):
                self._returns(call)
            case Do(call=call):
                raise NoMeaningError(f"`{call.op}` in a program over tensors", call.place)
            case If():
                self._branch(stmt)
            case For(domain="rounds"):
                if any(isinstance(s, Do) and s.call.op == "returns" for s in statements(stmt.body)):
                    raise NoMeaningError("`returns` in a loop", stmt.place)
                if not self.space.single:  # one device has no other to hear from
                    Ring(self, stmt).run()
            case _:
                raise NoMeaningError("a loop in a program over tensors", stmt.place)

    def _assign(self, stmt: Assign) -> None:
        if len(stmt.targets) != 1 or stmt.targets[0].group is not None or stmt.targets[0].index is not None:
            raise NoMeaningError("an assignment in a program over tensors has one plain target", stmt.place)
        name = stmt.targets[0].name
        value = self._any(stmt.value)
        if stmt.accumulate and name in self.env:  # the first thing that is added to nothing is all of it
            value = self.local.binary("+", self._value(stmt.targets[0]), _numeric(value, stmt.value), stmt.place)
        if isinstance(value, Value) and isinstance(stmt.value, Ref):
            value = value.moved(value.body)  # another buffer: a derivative by it follows its own uses
        if name in self.names and isinstance(value, Value):
            self.lemmas[name] = Lemma(value, stmt.place)
            value = arbitrary(name, value, stmt)
        self.env[name] = value

    def _returns(self, call: Call) -> None:
        if self._inside:
            raise NoMeaningError("`returns` under a condition", call.place)
        (arg,) = call.args
        value = self._value(arg)
        if value.turns:  # it holds parts of another device, which are not what it should return
            value = value.moved(self.space.unknown(value.dims), turns={})
        by_name = call.option("by")
        name = f"`{arg.name}`" if isinstance(arg, Ref) else f"the gradient by `{by_name}`" if by_name else "the result"
        named = [call.option(o) for o in ("gradient_of", "by", "at")]
        if not any(named):
            self.returned.append(Returned(call=call, name=name, value=value))
            return
        if not all(named):
            raise NoMeaningError("a gradient is `returns(x, gradient_of=y, by=x, at=dy)`", call.place)
        of, by, at = (self._value(Ref(name=n or "", place=call.place)) for n in named)
        for what, shape, counterpart, other in ((f"the gradient by `{by_name}`", value, by_name, by), (f"`{named[2]}`", at, named[0], of)):
            if shape.dims != other.dims:
                raise NoMeaningError(f"{what} has {in_words(shape.dims)}, and `{counterpart}` has {in_words(other.dims)}", call.place)
        begun = {id(v): n for n, v in self.begun.items()}
        given = begun.get(id(by)), begun.get(id(at))
        self.returned.append(Returned(call=call, name=name, value=value, given=given, of=of, by=by, at=at))

    def _branch(self, stmt: If) -> None:
        where, before = self._condition(stmt, self._value(stmt.bound).body), dict(self.env)
        self._inside += 1
        if isinstance(where, bool):
            self.body(stmt.then if where else stmt.orelse)
        else:
            self.body(stmt.then)
            then, self.env = self.env, before
            self.body(stmt.orelse)
            other = self.env
            self.env = {n: j for n in then.keys() & other.keys() if (j := _joined(where, then[n], other[n])) is not None}
        self._inside -= 1

    def _condition(self, stmt: If, bound: Poly) -> Condition | bool:
        if self.space.single:  # the rank of one device is 0
            if bound.number is None:
                raise NoMeaningError("a condition compares a rank with a number", stmt.place)
            return bool(COMPARE[stmt.op](0, bound.number))
        last = self.space.world.size(stmt.axis) - constant(1)
        if stmt.op in ("==", "!=") and bound.terms and bound != last:
            raise NoMeaningError("a condition on a device that is neither the first nor the last: there may be none", stmt.place)
        return condition(self.space.world, stmt, bound)

    # Expressions.

    def _any(self, expr: Expr) -> Value | Picks:
        if isinstance(expr, Ref) and isinstance(picks := self.env.get(expr.name), Picks):
            return picks
        return self._value(expr)

    def _value(self, expr: Expr) -> Value:
        match expr:
            case Number(value=value):
                return Value(body=constant(value))
            case Ref():
                return self._read(expr)
            case Binary(op=op, left=left, right=right):
                return self.local.binary(op, self._value(left), self._value(right), expr.place)
            case Call():
                return self._call(expr)

    def _read(self, ref: Ref) -> Value:
        if ref.group is not None or ref.index is not None:
            raise NoMeaningError("a part of a buffer in a program over tensors", ref.place)
        if ref.name in self.env:
            return _numeric(self.env[ref.name], ref)
        if self.space.program.axis(ref.name) is None:
            raise NoMeaningError(f"`{ref.name}` is no tensor here", ref.place)
        return Value(body=self.space.world.degree(ref.name))

    def _call(self, call: Call) -> Value:
        local, place = self.local, call.place
        dim = call.option("over") or ""
        match call:
            case Call(op=op, args=(x,)) if op in EXCHANGES:
                return exchange(self.space, call, self._value(x))
            case Call(op="contract", args=(a, b)):
                return local.contract(self._value(a), self._value(b), dim, place)
            case Call(op="total", args=(x,)):
                return local.total(self._value(x), dim, place)
            case Call(op="largest", args=(x,)):
                return local.largest(self._value(x), dim, place)
            case Call(op="max", args=(a, b)):
                return local.binary("max", self._value(a), self._value(b), place)
            case Call(op="elementwise", args=(Ref(name=f), x)):
                return local.elementwise(f, self._value(x), place)
            case Call(op="slope", args=(Ref(name=f), x)):
                return local.slope(f, self._value(x), place)
            case Call(op="hot", args=(x,)) if isinstance(picks := self._any(x), Picks) and picks.picks not in picks.dims:
                return local.hot(picks)
            case Call(op="copy", args=(x,)):
                value = self._value(x)
                return value.moved(value.body)
            case Call(op="scale", args=(x, factor)):
                return local.scale(self._value(x), self._value(factor), place)
            case Call(op="dropout", args=(x, key)):
                return local.dropout(self._value(x), self._value(key), place)
            case Call(op="random", axes=axes):
                world = self.space.world
                folded = (world.here[f] if f in axes else world.rank(f, 0) for f in world.sorts)
                return Value(body=app(f"random.{call.choice('draw')}", *folded))
        raise NoMeaningError(f"`{call.op}` in a program over tensors", place)


def _numeric(value: Value | Picks, at: Expr) -> Value:
    if isinstance(value, Picks):
        raise NoMeaningError("positions are no numbers; `hot(...)` makes numbers of them", at.place)
    return value


def _joined(where: Condition, then: Value | Picks, other: Value | Picks) -> Value | Picks | None:
    """What a buffer holds after a branch, where both sides leave the same shape."""
    if then is other:
        return then
    if isinstance(then, Picks) or isinstance(other, Picks):
        return None
    if then.dims != other.dims or not then.cut_alike(other):
        return None
    left, right, positive = where
    first, second = (then.body, other.body) if positive else (other.body, then.body)
    body = by_cases(lambda p: p, choose(same(left, right), first, second))
    edges = tuple(Edge(side, lambda adjoint: no_slope(adjoint, "if", None)) for side in (then, other))
    return replace(then, body=body, edges=edges)
