"""Programs over tensors, run as the manual says: device by device, every device with the elements that it holds and no others.

Written from the documentation alone (`docs/reference/step-programs.md`, "Programs over tensors", and the table of operations), without the
code that proves, to be compared with it. Numbers are doubles: `exp`, `log` and `reciprocal` are what they are, and every other function is
a smooth one drawn for its name, so that two results which are equal as real numbers agree to many digits, and others differ. A derivative
is taken with an imaginary step, which loses no digits.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from manual_tensors import (
    OPERATORS,
    Device,
    Everywhere,
    Mesh,
    T,
    UndecidedError,
    WrongError,
    cut,
    function,
    over,
    spread,
    together,
)

from placeproof.programs import Program
from placeproof.programs.ir import Assign, Binary, Call, Do, Expr, For, If, Number, Ref, Stmt, Tensor, statements

STEP = 1e-40
COMPARE = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Run:
    """One run of a program on a mesh. ``watch`` is called with what is returned, by the number of the statement."""

    def __init__(self, program: Program, mesh: Mesh, seed: int, nudge: tuple[int, str, np.ndarray] | None = None) -> None:
        self.program, self.mesh, self.seed, self.nudge = program, mesh, seed, nudge
        self.env: dict[str, Everywhere] = {}
        self.written: dict[str, int] = {}
        self.returned: dict[int, Everywhere] = {}
        self.at_return: dict[int, tuple[dict[str, Everywhere], dict[str, int]]] = {}
        self.active = mesh.devices()
        self.looping = 0
        for t in program.tensors:
            self.write(t.name, self.given(t), -1)

    def given(self, t: Tensor) -> Everywhere:
        """A tensor of the header: the same numbers on every mesh, of which each device has its part."""
        rng = np.random.default_rng([self.seed, zlib.crc32(t.name.encode())])
        shape = [self.mesh.sizes[d] for d in t.dims]
        data = rng.integers(self.mesh.sizes[t.picks], size=shape) if t.picks else rng.normal(scale=0.6, size=shape)
        found: Everywhere = {}
        for device in self.mesh.devices():
            x = T(dict.fromkeys(t.dims, ()), np.asarray(data), picks=t.picks)
            for axis, dim in t.split:
                if self.mesh.degrees[axis] > 1:
                    x = cut(self.mesh, device, x, dim, (*x.dims[dim], (axis, 0)))
            found[device] = x
        return found

    def write(self, name: str, value: Everywhere, number: int) -> None:
        if self.nudge is not None and self.nudge[:2] == (number, name):
            value = {d: replace(x, data=x.data + 1j * STEP * self.nudge[2]) for d, x in value.items() if x is not None}
        self.env[name] = self.env.get(name, {}) | {d: value[d] for d in self.active}
        self.written[name] = number

    # Statements, numbered as they stand.

    def run(self) -> None:
        self.block(self.program.body, 0)

    def block(self, body: Sequence[Stmt], number: int) -> int:
        for stmt in body:
            number = self.statement(stmt, number)
        return number

    def statement(self, stmt: Stmt, number: int) -> int:
        match stmt:
            case Assign(targets=(Ref(name=name, group=None, index=None),)):
                value = self.value(stmt.value)
                if stmt.accumulate:
                    value = (
                        self.each(lambda d, a, b: together(self.mesh, d, "+", a, b), self.read(name), value) if name in self.env else value
                    )
                self.write(name, value, number)
            case Do(call=Call(op="returns")):
                self.returns(stmt.call, number)
            case For(domain="rounds") if stmt.within in self.mesh.degrees:
                self.looping += 1
                for _ in range(self.mesh.degrees[stmt.within] - 1):
                    self.block(stmt.body, number + 1)
                self.looping -= 1
                return number + 1 + len(list(statements(stmt.body)))
            case If():
                return self.branch(stmt, number + 1)
            case _:
                raise UndecidedError("a statement of steps")
        return number + 1

    def branch(self, stmt: If, number: int) -> int:
        bound = self.value(stmt.bound)
        before = self.active
        there = {d for d in before if (b := bound[d]) is not None and COMPARE[stmt.op](self.mesh.at(d, stmt.axis), b.data.real)}
        for inside, body in ((there, stmt.then), (set(before) - there, stmt.orelse)):
            self.active = [d for d in before if d in inside]
            number = self.block(body, number)
        self.active = before
        return number

    def returns(self, call: Call, number: int) -> None:
        if self.looping or len(self.active) < len(self.mesh.devices()):
            raise UndecidedError("`returns` in a loop or a branch")
        value = self.value(call.args[0])
        for x in value.values():
            if x is None:
                raise WrongError("a device returns what it does not have")
            if any(away for layout in x.dims.values() for _, away in layout):
                raise WrongError("a part that is not home is returned")
        self.returned[number] = value
        self.at_return[number] = (dict(self.env), dict(self.written))

    # Expressions, on all devices at once.

    def each(self, what: Callable[..., T], *operands: Everywhere) -> Everywhere:
        """Device by device; of nothing, nothing is made."""
        found: Everywhere = {}
        for d in self.active:
            given = [o.get(d) for o in operands]
            found[d] = None if any(x is None for x in given) else what(d, *given)
        return found

    def read(self, name: str) -> Everywhere:
        if name in self.env:
            return self.env[name]
        if name in self.mesh.degrees:
            return {d: T({}, np.array(float(self.mesh.degrees[name]))) for d in self.active}
        raise UndecidedError(f"`{name}` is nothing")

    def value(self, expr: Expr) -> Everywhere:
        match expr:
            case Number():
                return {d: T({}, np.array(float(expr.value))) for d in self.active}
            case Ref(name=name, group=None, index=None):
                return self.read(name)
            case Binary(op="**", right=Number(value=power)):
                exponent = int(power) if power.denominator == 1 else float(power)
                return self.each(lambda d, x: replace(x, data=x.data**exponent), self.value(expr.left))
            case Binary(op=op) if op in OPERATORS:
                return self.each(lambda d, a, b: together(self.mesh, d, op, a, b), self.value(expr.left), self.value(expr.right))
            case Call():
                return self.call(expr)
            case _:
                raise UndecidedError("an expression of steps")

    def call(self, call: Call) -> Everywhere:
        match call.op:
            case "elementwise" | "slope":
                assert isinstance(call.args[0], Ref)
                name, slope = call.args[0].name, call.op == "slope"
                return self.each(lambda d, x: replace(x, data=function(name, self.seed, x.data, slope)), self.numbers(call.args[1]))
            case "contract":
                dim = dict(call.options).get("over")
                a, b = self.numbers(call.args[0]), self.numbers(call.args[1])
                if any(x is not None and dim not in x.dims for o in (a, b) for x in o.values()):
                    raise UndecidedError("`contract` over a dimension that is not of both")
                return self.each(lambda d, a, b: over(together(self.mesh, d, "*", a, b), dim, "total"), a, b)
            case "total" | "largest":
                return self.each(lambda d, x: over(x, dict(call.options).get("over"), call.op), self.value(call.args[0]))
            case "max" | "scale":
                a, b = self.value(call.args[0]), self.value(call.args[1])
                if call.op == "scale" and any(x is not None and x.dims for x in b.values()):
                    raise UndecidedError("a factor with dimensions")
                op = "max" if call.op == "max" else "*"
                return self.each(lambda d, a, b: together(self.mesh, d, op, a, b), a, b)
            case "hot":
                return self.each(lambda d, x: self.hot(x), self.value(call.args[0]))
            case "copy":
                return self.value(call.args[0])
            case _:
                return self.collective(call)

    def numbers(self, expr: Expr) -> Everywhere:
        value = self.value(expr)
        if any(x is not None and x.picks for x in value.values()):
            raise UndecidedError("arithmetic with positions")
        return value

    def hot(self, x: T) -> T:
        if x.picks is None or x.picks in x.dims:
            raise UndecidedError("`hot` of what are no positions")
        data = x.data[..., None] == np.arange(self.mesh.sizes[x.picks])
        return T(x.dims | {x.picks: ()}, data.astype(float), frozenset({x.picks}))

    # Collectives.

    def collective(self, call: Call) -> Everywhere:
        if call.op not in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "shift", "broadcast", "reduce", "part"):
            raise UndecidedError(f"`{call.op}` of a tensor")
        value = self.value(call.args[0])
        axes = tuple(a for a in call.axes if self.degree(a) > 1)
        if not axes:
            return value
        if call.op != "part" and any(not set(self.mesh.group(d, axes)) <= set(self.active) for d in self.active):
            raise WrongError("not every device enters a collective")
        return getattr(self, call.op)(call, value, axes)

    def degree(self, axis: str) -> int:
        if axis not in self.mesh.degrees:
            raise UndecidedError(f"`{axis}` is a factor of an axis")
        return self.mesh.degrees[axis]

    def sums(self, call: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        """Of each device the sum, mean or greatest of its group, of elements that all of them have."""
        found: Everywhere = {}
        for d in self.active:
            xs = [value.get(o) for o in self.mesh.group(d, axes)]
            if any(x is None for x in xs):
                found[d] = None
                continue
            first = xs[0]
            if any(axis in axes for layout in first.dims.values() for axis, _ in layout) or any(x.dims != first.dims for x in xs):
                raise WrongError("devices combine different elements")
            if first.picks:
                raise UndecidedError("arithmetic with positions")
            all_ = np.stack([spread(x, first.dims) for x in xs])
            op = dict(call.options).get("op", "sum")
            found[d] = T(first.dims, all_.sum(0) if op == "sum" else all_.mean(0) if op == "mean" else all_.real.max(0), first.bends)
        return found

    def all_reduce(self, call: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        return self.sums(call, value, axes)

    def reduce_scatter(self, call: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        return self.part(call, self.sums(call, value, axes), axes)

    def reduce(self, call: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        root = self.root(call)
        return {d: x if all(self.mesh.at(d, a) == root for a in axes) else None for d, x in self.sums(call, value, axes).items()}

    def root(self, call: Call) -> int:
        if not (text := dict(call.options).get("root", "0") or "0").isdigit():
            raise UndecidedError("parts from their owners")
        return int(text)

    def broadcast(self, call: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        root, found = self.root(call), {}
        for d in self.active:
            (source,) = [o for o in self.mesh.group(d, axes) if all(self.mesh.at(o, a) == root for a in axes)] or [None]
            x = None if source is None else value.get(source)
            if x is not None and any(axis in axes for layout in x.dims.values() for axis, _ in layout):
                raise WrongError("a part of the root is sent as if it were everybody's")
            found[d] = x
        return found

    def part(self, call: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        def own(d: Device, x: T) -> T:
            for axis, dim in zip(axes, said_dims(call, axes), strict=True):
                if dim not in x.dims:
                    raise UndecidedError("a part without its dimension")
                if any(axis == other for other, _ in x.dims[dim]):
                    raise UndecidedError("a part of a part")
                x = cut(self.mesh, d, x, dim, (*x.dims[dim], (axis, 0)))
            return x

        return self.each(own, value)

    def shift(self, call: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        (axis,), by = axes, int(dict(call.options).get("by", "1") or "1")
        n, k, degree = list(self.mesh.degrees).index(axis), by, self.mesh.degrees[axis]
        found: Everywhere = {}
        for d in self.active:
            x = value.get((*d[:n], (d[n] - k) % degree, *d[n + 1 :]))
            if x is not None:
                dims = {m: tuple((a, (w + k) % degree if a == axis else w) for a, w in layout) for m, layout in x.dims.items()}
                x = replace(x, dims=dims)
            found[d] = x
        return found

    def all_gather(self, _: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        for axis in reversed(axes):
            value = {d: self.joined(d, value, axis) for d in self.active}
        return value

    def joined(self, device: Device, value: Everywhere, axis: str) -> T | None:
        xs = {o: value.get(o) for o in self.mesh.group(device, [axis])}
        mine = xs[device]
        if mine is None or any(x is None for x in xs.values()):
            return None
        where = [d for d, layout in mine.dims.items() if any(a == axis for a, _ in layout)]
        if len(where) != 1 or (mine.dims[where[0]][-1] != (axis, 0)):
            raise UndecidedError("`all_gather` of what is not split by the axis, at last and by one dimension")
        (dim,) = where
        after = mine.dims[dim][:-1]
        place = {p: n for n, p in enumerate(self.mesh.held(device, dim, after))}
        n = list(mine.dims).index(dim)
        shape = [*mine.data.shape]
        shape[n] = len(place)
        data = np.zeros(shape, mine.data.dtype)
        for o, x in xs.items():
            index = [place[p] for p in self.mesh.held(o, dim, x.dims[dim])]
            data[(slice(None),) * n + (index,)] = spread(x, mine.dims)
        return replace(mine, dims=mine.dims | {dim: after}, data=data)

    def all_to_all(self, call: Call, value: Everywhere, axes: Sequence[str]) -> Everywhere:
        own = dict(zip(axes, said_dims(call, axes), strict=True))
        if any(x is not None and any(a == axis for axis, dim in own.items() for a, _ in x.dims.get(dim, ())) for x in value.values()):
            raise UndecidedError("`all_to_all` along the same dimension")
        return self.part(call, self.all_gather(call, value, axes), axes)


def said_dims(call: Call, axes: Sequence[str]) -> list[str]:
    """The dimension that is said for each axis: `dim` names one for all, or one each."""
    dims = (dict(call.options).get("dim") or "").split()
    dims = dims * len(axes) if len(dims) == 1 else dims
    if len(dims) != len(axes):
        raise UndecidedError("a part without its dimension")
    return dims
