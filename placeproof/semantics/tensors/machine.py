"""A program over tensors, statement by statement, on all devices of a mesh at once, or on one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from random import Random

import numpy as np

from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Ref, Resolved, Stmt, assigned, statements
from placeproof.programs.ir import Tensor, returned
from placeproof.programs.ops import COMPARE, OPS
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.recorded import HERE, PLAIN
from placeproof.semantics.tensors.arrays import Arrays, Held
from placeproof.semantics.tensors.groups import Groups
from placeproof.semantics.tensors.numbers import LONG, require_short
from placeproof.semantics.tensors.setup import FaultError, NotComputedError

#: What a tensor of the header holds: ``[position...]`` of the whole.
Begin = Callable[[Tensor], Array]


@dataclass(frozen=True, eq=False, kw_only=True)
class Output:
    """What a `returns` gave. ``derivative``: what a gradient should have been, where derivatives are followed."""

    call: Call
    value: Held
    derivative: Held | None = None

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.call.place.line if self.call.place else 0

    @property
    def name(self) -> str:
        """What is returned, in words."""
        (arg,), by = self.call.args, self.call.option("by")
        return f"`{arg.name}`" if isinstance(arg, Ref) else f"the gradient by `{by}`" if by else "the result"


def kind(call: Call) -> tuple[str | None, ...]:
    """What a `returns` claims: a result, or a gradient of it by something."""
    return tuple(call.option(name) for name in ("gradient_of", "by", "at"))


def in_order(program: Resolved, outputs: Sequence[Output]) -> list[Output]:
    """What another program returned, each where this one returns the same kind. Raises NotComputedError where one lacks a kind."""
    left, matched = list(outputs), list[Output]()
    for call in returned(program):
        alike = next((o for o in left if kind(o.call) == kind(call)), None)
        if alike is None:
            break
        matched.append(alike)
        left.remove(alike)
    if left or len(matched) != len(returned(program)):
        raise NotComputedError("what is returned is not what one device returns")
    return matched


class Machine:
    """A run. ``here``: the one device that is run, which meets others in ``exchange``; else all of the mesh are. ``follow``: gradients are
    compared with derivatives, on one device."""

    def __init__(
        self,
        program: Resolved,
        arrays: Arrays,
        sizes: Mapping[str, int],
        begin: Begin,
        *,
        seed: int = 1,
        follow: Sequence[Call] = (),
        groups: Groups | None = None,
        name: str = "",
    ) -> None:
        if any(a.inner is not None for a in program.axes):
            raise NotComputedError("an axis with sub-groups")
        self.program, self.arrays, self.sizes, self.seed = program, arrays, sizes, seed
        self.groups = groups or Groups(arrays)
        self._name = name
        self.everyone: Array = np.ones(arrays.shape, dtype=bool)
        self.active = self.everyone
        self.stmt: Stmt | None = None
        self.outputs: list[Output] = []
        self.env: dict[str, list[tuple[Array, Held]]] = {}
        self._rows, self._sources = 1, _sources(program, follow)
        self._rows_of: dict[tuple[int, str], int] = {}
        for tensor in program.tensors:
            x = arrays.whole(begin(tensor), {d: sizes[d] for d in tensor.dims}, tensor.picks)
            for axis, dim in tensor.split:
                x = arrays.part(x, dim, (axis,))
            self._write(tensor.name, x)
        self._seed(0)

    def run(self) -> list[Output]:
        """Every statement in order. Raises FaultError, NotComputedError, ZeroDivisionError."""
        HERE.device, HERE.line, HERE.text = self._name, None, "the beginning"
        try:
            self._body(self.program.body)
        except FaultError as fault:
            fault.line = self.stmt.place.line if self.stmt is not None and self.stmt.place else 0
            raise
        return self.outputs

    # Buffers: what several devices wrote at different statements is several pieces.

    def _write(self, name: str, value: Held) -> None:
        require_short(self.arrays.field, value.data.flat, LONG)
        self._free(name)
        self.env[name] = [(self.active, value), *self.env.get(name, ())]

    def _free(self, name: str) -> None:
        left = [(where & ~self.active, held) for where, held in self.env.pop(name, ())]
        if any(where.any() for where, _ in left):
            self.env[name] = [(where, held) for where, held in left if where.any()]

    def read(self, name: str) -> Held:
        """What the devices that are active hold. Raises FaultError where one has nothing."""
        pieces = self.env.get(name, [])
        if pieces and pieces[0][0] is self.everyone:
            return pieces[0][1]
        pieces = [(where & self.active, held) for where, held in pieces]
        pieces = [(where, held) for where, held in pieces if where.any()]
        if not pieces and name in self.arrays.degrees:
            return self.arrays.number([self.arrays.degrees[name]])
        missing = self.active & ~np.any([self.active & False, *(where for where, _ in pieces)], axis=0)
        if missing.any():
            if all(name != t.name for t in assigned(self.program.body)):
                raise NotComputedError(f"`{name}`, which nobody wrote")
            raise FaultError(f"nothing is at '{name}', which a device never wrote", missing)
        merged = pieces[0][1]
        for where, piece in pieces[1:]:
            merged = self.arrays.merged(where, piece, merged)
        return merged

    # Derivatives.

    def _seed(self, written: int) -> None:
        """From here on, numbers carry their derivatives by the elements of what a statement wrote, if a gradient is by that."""
        for name in sorted({n for last, n in self._sources.values() if last == written}):
            x, f = self.read(name), self.arrays.field
            shape = x.data.shape[1 : x.data.ndim - f.extra]
            count = prod(shape)
            ones = f.array(np.eye(count, dtype=int).reshape(-1).tolist(), (count, *shape))
            self._rows_of[written, name] = self._rows
            self._write(name, replace(x, data=np.concatenate([x.data, f.zeros((self._rows - len(x.data), *shape)), ones])))
            self._rows += count

    def _derivative(self, call: Call, of: Held, by: Held, at: Held) -> Held | None:
        """The sum over what is derived, times the adjoint, of each derivative by an element."""
        first, f = self._rows_of.get(self._sources.get(id(call), (0, "")), 0), self.arrays.field
        if not first:
            return None
        shape = by.data.shape[1:]
        count = prod(shape[: len(shape) - f.extra])
        rows = np.concatenate([of.data[:1], of.data[first : first + count]])
        derivative = self.arrays.binary("*", replace(of, data=rows), replace(at, data=at.data[:1]), self.active)
        for dim in derivative.dims:
            derivative = self.arrays.total(derivative, dim)
        return replace(by, data=(derivative.data[1:] if len(derivative.data) > 1 else f.zeros((count,))).reshape(1, *shape))

    def _named(self, name: str) -> Held:
        if name not in self.env:
            raise NotComputedError("a gradient of something unknown")
        return self.read(name)

    # Statements.

    def _body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.stmt = stmt
            if self.arrays.field.exact and stmt.place:
                HERE.line, HERE.text = stmt.place.line, stmt.place.text.strip()
            self._statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Assign(targets=(Ref(name=name),), value=value):
                result = self._eval(value)
                added = stmt.accumulate and name in self.env  # the first thing that is added to nothing is all of it
                self._write(name, self.arrays.binary("+", self.read(name), result, self.active) if added else result)
                self._seed(id(stmt))
            case Do(call=Call(op="free", args=(Ref(name=name),))):
                self._free(name)
            case Do(call=Call(op="returns") as call):
                self._returns(call)
            case If():
                self._branch(stmt)
            case For(domain="rounds"):
                if any(isinstance(s, Do) and s.call.op == "returns" for s in statements(stmt.body)):
                    raise NotComputedError("`returns` in a loop")
                for _ in range(self.arrays.degrees[stmt.within or ""] - 1):
                    self._body(stmt.body)
            case _:
                raise NotComputedError("a statement of this kind")

    def _branch(self, stmt: If) -> None:
        bound, before = self._plain(stmt.bound), self.active
        taken = np.array([COMPARE[stmt.op](int(n), bound) for n in self.arrays.at[stmt.axis].flat], dtype=bool)
        taken = taken.reshape(self.arrays.at[stmt.axis].shape)
        for body, where in ((stmt.then, before & taken), (stmt.orelse, before & ~taken)):
            self.active = where
            if where.any():
                self._body(body)
        self.active = before

    def _plain(self, expr: Expr) -> Fraction:
        """A number that stands in the text, or follows from the mesh."""
        match expr:
            case Number(value=value):
                return value
            case Ref(name=name) if name in self.arrays.degrees and name not in self.env:
                return Fraction(self.arrays.degrees[name])
            case Binary(op=op, left=left, right=right) if op != "**" or self._plain(right).denominator == 1:
                return Fraction(PLAIN[op](self._plain(left), self._plain(right)))
        raise NotComputedError("a number that devices compute, where the text has to say one")

    def _returns(self, call: Call) -> None:
        if self.active is not self.everyone:
            raise NotComputedError("`returns` under a condition")
        value = self._eval(call.args[0])
        self._home(value)
        derivative = None
        if call.option("gradient_of") is not None:
            of, at, by = (self._named(call.option(o) or "") for o in ("gradient_of", "at", "by"))
            if set(of.dims) != set(at.dims) or set(by.dims) != set(value.dims):
                raise NotComputedError("a gradient of another shape")
            derivative = self._derivative(call, of, by, at)
        self.outputs.append(Output(call=call, value=value, derivative=derivative))

    def _home(self, value: Held) -> None:
        """Every device holds its own part of each dimension that is cut. Raises FaultError."""
        arrays = self.arrays
        for dim, axes in value.split.items():
            own = arrays.whole(arrays.field.zeros((self.sizes[dim],)), {dim: self.sizes[dim]}, None)
            mine, present = arrays.part(own, dim, axes).places[dim].of, value.places[dim].of
            if mine is present:
                continue
            longest = max(mine.shape[-1], present.shape[-1])
            wide = [np.pad(p, [(0, 0)] * (p.ndim - 1) + [(0, longest - p.shape[-1])], constant_values=-1) for p in (mine, present)]
            wrong = (wide[0] != wide[1]).any(-1)
            if wrong.any():
                raise FaultError("what is returned holds a part of another device: it is not home from its ring", wrong)

    # Expressions.

    def _eval(self, expr: Expr) -> Held:
        match expr:
            case Number(value=value):
                return self.arrays.number([value])
            case Ref(name=name):
                return self.read(name)
            case Binary(op="**", left=left, right=right):
                return self.arrays.power(self._eval(left), self._plain(right))
            case Binary(op=op, left=left, right=right):
                return self.arrays.binary(op, self._eval(left), self._eval(right), self.active)
            case Call():
                args = expr.args[1:] if expr.op in ("elementwise", "slope") else expr.args
                return self._call(expr, [self._eval(a) for a in args])

    def _call(self, call: Call, operands: Sequence[Held]) -> Held:
        arrays, over = self.arrays, call.option("over") or ""
        match call.op:
            case "elementwise" | "slope":
                assert isinstance(call.args[0], Ref)
                return arrays.function(call.op, call.args[0].name, operands[0])
            case "contract":
                if any(over not in v.dims for v in operands):
                    raise NotComputedError(f"a reduction of `{over}`, which is not there")
                return arrays.total(arrays.binary("*", operands[0], operands[1], self.active), over)
            case "total":
                return arrays.total(operands[0], over)
            case "largest":
                return arrays.largest(operands[0], over)
            case "hot":
                return arrays.hot(operands[0], self.sizes)
            case "copy":
                return operands[0]
            case "max" | "scale":
                return arrays.binary("max" if call.op == "max" else "*", operands[0], operands[1], self.active)
            case "random":
                return self._keys(call.axes, call.choice("draw"))
            case "dropout":
                return arrays.masked(operands[0], operands[1], lambda *what: Random(repr((self.seed, *what))).choice((0, 2)))
        if OPS[call.op].collective:
            self._together(call)
        elif call.op != "part":
            raise NotComputedError(f"`{call.op}` in a program over tensors")
        return self.groups(call, operands[0], self.active)

    def _keys(self, axes: Sequence[str], draw: str) -> Held:
        """A key that depends on the coordinates along some axes, and on the draw."""
        shape = tuple(n if a in axes else 1 for a, n in zip(self.arrays.axes, self.arrays.shape, strict=True))
        keys = []
        for at in np.ndindex(*shape):
            folded = tuple(int(self.arrays.at[a].flat[n]) if a in axes else 0 for a, n in zip(self.arrays.axes, at, strict=True))
            keys.append(Random(repr((self.seed, int(draw), folded))).randrange(1_000_000))
        return self.arrays.number(keys, shape)

    def _together(self, call: Call) -> None:
        """The devices of a group are all at this statement. Raises FaultError."""
        along = tuple(self.arrays.axes.index(a) for a in call.axes)
        alone = self.active.any(along, keepdims=True) & ~self.active.all(along, keepdims=True)
        if alone.any():
            raise FaultError("devices of one group meet in different collectives", alone & self.everyone)


def _sources(program: Resolved, follow: Sequence[Call]) -> dict[int, tuple[int, str]]:
    """For each gradient that is followed, what it is by: the statement that wrote the buffer last (0 where it began so), and its name."""
    written: dict[str, Stmt] = {}
    sources: dict[int, tuple[int, str]] = {}
    for stmt in program.body:
        written |= {t.name: stmt for t in assigned((stmt,))}
        if isinstance(stmt, Do) and (by := stmt.call.option("by")) is not None and any(stmt.call is c for c in follow):
            last = written.get(by)
            if isinstance(last, If | For):
                raise NotComputedError("a derivative by what is written in a loop or under a condition")
            sources[id(stmt.call)] = (0 if last is None else id(last), by)
    return sources
