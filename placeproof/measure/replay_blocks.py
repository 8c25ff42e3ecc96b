"""A block of a model as one process runs it: tensors with named dimensions, and real exchanges of the parts that it holds."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from placeproof.core.program import Assign, Binary, Call, Do, Expr, For, If, Number, Ref, Stmt, calls, statements
from placeproof.core.program.ir import Tensor as Declared
from placeproof.core.program.ops import OPS
from placeproof.measure import replay_functions as functions
from placeproof.measure.replay_arrays import (
    Array,
    Content,
    Dual,
    added,
    block,
    changed,
    greatest,
    larger,
    one_hot,
    places_of,
    spot,
    together,
    value_of,
)
from placeproof.measure.replay_block_exchange import Exchanges
from placeproof.measure.replay_file import Counterexample
from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_numbers import Arithmetic, Numbers
from placeproof.measure.replay_step import COMPARE
from placeproof.measure.replay_values import NothingThereError, NotHomeError, NotReplayedError

_OPERATORS: dict[str, Callable[[Content, Content], Content]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Followed:
    """A derivative that is followed: by the element of ``buffer`` at ``place``, up to the result of that number."""

    result: int
    buffer: str
    place: Mapping[str, int]


def groups_of(found: Counterexample) -> list[frozenset[str]]:
    """The sets of axes along which the program exchanges; gathers go axis by axis."""
    sets = []
    for stmt in statements(found.program.body):
        for call in calls(stmt):
            if OPS[call.op].collective:
                sets += [frozenset(call.axes)] if call.op != "all_gather" else [frozenset((axis,)) for axis in call.axes]
    return list(dict.fromkeys(sets))


class BlockProcess:
    """The block's state in one process. ``follow``: a derivative, in a run on one device, where ``derivative`` holds it in the end: that of
    the result's tensor ``gradient_of``, weighted by ``at``."""

    def __init__(self, found: Counterexample, mesh: Mesh, of: Arithmetic, follow: Followed | None = None) -> None:
        self.found, self.mesh, self.of, self.follow = found, mesh, of, follow
        self.exchange = Exchanges(found.sizes, mesh, of)
        self.fine = found.flags.get("fine", False)
        self.results: list[Array] = []
        self.derivative: Numbers | None = None
        self.seeded = self._last_write() if follow is not None else None
        self.env = {t.name: self._initial(t) for t in found.program.tensors}
        if follow is not None and self.seeded is None:
            self._seed()

    def run(self) -> list[Array]:
        """Every statement in order; what it returns."""
        self._body(self.found.program.body)
        return self.results

    def _initial(self, tensor: Declared) -> Array:
        """The device's part of an input."""
        places = {d: tuple(range(self.found.sizes[d])) for d in tensor.dims}
        names = [f"{tensor.name}{spot(dict(zip(tensor.dims, at, strict=True)))}" for at in places_of(places)]
        if any(n not in self.found.numbers for n in names):
            raise NotReplayedError(f"the file does not hold all numbers of `{tensor.name}`")
        content = Numbers.make(self.of, [self.found.numbers[n] for n in names])
        shaped = content[0] if not places else Numbers(self.of, content.data.reshape(*map(len, places.values()), *content.data.shape[1:]))
        local = Array(places=places, content=self._plain(shaped), picks=tensor.picks)
        for axis, dim in tensor.split:
            local = local.cut(dim, axis, self.mesh.at[axis], self.mesh.sizes[axis])
        return local

    def _plain(self, numbers: Numbers) -> Content:
        """Numbers that do not depend on what is followed."""
        return numbers if self.follow is None else Dual(numbers, numbers * 0)

    # Derivatives.

    def _last_write(self) -> Stmt | None:
        """The last statement that writes the buffer before the result."""
        assert self.follow is not None
        written, seen = None, 0
        for stmt in self.found.program.body:
            if isinstance(stmt, Do) and stmt.call.op == "returns":
                if seen == self.follow.result:
                    return written
                seen += 1
            elif isinstance(stmt, Assign) and stmt.targets[0].name == self.follow.buffer:
                written = stmt
        return written

    def _seed(self) -> None:
        """From here on, numbers carry their derivative by one element."""
        assert self.follow is not None
        array = self.env[self.follow.buffer]
        ones = [Fraction(dict(zip(array.dims, at, strict=True)) == dict(self.follow.place)) for at in places_of(array.places)]
        value = value_of(array.content)
        slope = value.like(ones, *value.shape) if value.shape else value.like(ones)[0]
        self.env[self.follow.buffer] = array.with_content(Dual(value, slope))

    # Statements.

    def _body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            match stmt:
                case Assign(targets=(Ref(name=name),), value=value):
                    result = self._eval(value)
                    self.env[name] = together(operator.add, self._held(name), result) if stmt.accumulate else result
                    if stmt is self.seeded:
                        self._seed()
                case Do(call=Call(op="free", args=(Ref(name=name),))):
                    self.env.pop(name, None)
                case Do(call=Call(op="returns") as call):
                    self._returns(call)
                case If():
                    taken = COMPARE[stmt.op](Fraction(self.mesh.at[stmt.axis]), self._eval(stmt.bound).plain())
                    self._body(stmt.then if taken else stmt.orelse)
                case For(domain="rounds", within=axis):
                    for _ in range(self.mesh.sizes[axis or ""] - 1):
                        self._body(stmt.body)
                case _:
                    raise NotReplayedError("a statement of this kind in a block")

    def _returns(self, call: Call) -> None:
        if self.follow is not None and len(self.results) == self.follow.result:
            of, at = (self._held(call.option(option) or "") for option in ("gradient_of", "at"))
            weighted = together(operator.mul, of, at.with_content(self._plain(value_of(at.content)))).content
            assert isinstance(weighted, Dual)
            self.derivative = weighted.slope
            while self.derivative.shape:
                self.derivative = self.derivative.sum()
        result = self._eval(call.args[0])
        if not self._home(result):
            raise NotHomeError("what is returned holds a part of another device: it is not home from its ring")
        self.results.append(result)

    def _home(self, array: Array) -> bool:
        """Whether these are the device's own places of each dimension that is cut."""
        for dim, axes in array.cuts.items():
            own = range(self.found.sizes[dim])
            for axis in axes:
                own = block(own, self.mesh.at[axis], self.mesh.sizes[axis])
            if array.places[dim] != tuple(own):
                return False
        return True

    def _held(self, name: str) -> Array:
        if name in self.env:
            return self.env[name]
        if name in self.mesh.sizes:
            return self._number(Fraction(self.mesh.sizes[name]))
        raise NothingThereError(f"the buffer `{name}`, which this device never wrote")

    def _number(self, value: Fraction) -> Array:
        array = Array.number(self.of, value)
        return array.with_content(self._plain(value_of(array.content)))

    # Expressions.

    def _eval(self, expr: Expr) -> Array:
        match expr:
            case Number(value=value):
                return self._number(value)
            case Ref(name=name):
                return self._held(name)
            case Binary():
                return self._binary(expr.op, self._eval(expr.left), self._eval(expr.right))
        args = expr.args[1:] if expr.op in ("elementwise", "slope") else expr.args
        return self._call(expr, [self._eval(arg) for arg in args])

    def _binary(self, op: str, a: Array, b: Array) -> Array:
        if op != "**":
            return together(_OPERATORS[op], a, b)
        power = b.plain()
        if power.denominator != 1:
            raise NotReplayedError(f"the power {power}")
        return Array(places=a.places, content=a.content**power.numerator, cuts=a.cuts, loose=a.loose)

    def _call(self, call: Call, operands: list[Array]) -> Array:
        over = call.option("over") or ""
        match call.op:
            case "elementwise" | "slope":
                assert isinstance(call.args[0], Ref)
                return self._function(call.op, call.args[0].name, operands[0])
            case "contract":
                if any(over not in o.places for o in operands):
                    raise NotReplayedError(f"a contraction of `{over}`, which is not there")
                return together(operator.mul, *operands).reduced(over, added)
            case "total":
                return operands[0].reduced(over, added)
            case "largest":
                return operands[0].reduced(over, greatest)
            case "hot":
                assert operands[0].picks is not None
                hot = one_hot(operands[0], self.found.sizes[operands[0].picks], self.of)
                return hot.with_content(self._plain(value_of(hot.content)))
            case "copy":
                return operands[0]
            case "max":
                return together(larger, *operands)
            case "scale":
                return together(operator.mul, *operands)
            case "random":
                return self._number(self._key(call.axes))
            case "dropout":
                return self._masked(operands[0], operands[1].plain())
        return self.exchange(call, operands[0])

    def _function(self, op: str, name: str, x: Array) -> Array:
        if op == "slope":
            return x.with_content(self._plain(functions.slope(name, value_of(x.content), self.fine)))
        content = changed(x.content, lambda n: functions.value(name, n, self.fine), lambda n: functions.slope(name, n, self.fine))
        return x.with_content(content)

    def _key(self, axes: Sequence[str]) -> Fraction:
        """A key that depends on the coordinates along some axes (docs/reference/prove-json.md)."""
        folded = tuple(n if a in axes else 0 for a, n in self.mesh.at.items())
        return Fraction(random.Random(repr((self.found.seed, folded))).randrange(1_000_000))

    def _masked(self, x: Array, key: Fraction) -> Array:
        """Each number times a factor that depends on the key and on its place."""
        spots = [sorted(zip(x.dims, at, strict=True)) for at in places_of(x.places)]
        factors = [random.Random(repr((self.found.seed, key, at))).choice((0, 2)) for at in spots]
        mask = Numbers.make(self.of, factors)
        shaped = Numbers(self.of, mask.data.reshape(*x.lengths.values(), *mask.data.shape[1:]))
        return x.with_content(x.content * self._plain(shaped))  # type: ignore[operator]
