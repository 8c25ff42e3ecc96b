"""A block of a model as one process runs it: tensors with named dimensions, and real exchanges of the parts that it holds."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from placeproof.core.program import Assign, Binary, Call, Do, Expr, If, Number, Ref, Stmt, calls, statements
from placeproof.core.program.ir import Tensor as Declared
from placeproof.core.program.ops import OPS
from placeproof.measure import replay_functions as functions
from placeproof.measure.replay_arrays import Array, Content, Dual, added, changed, greatest, one_hot, together, value_of
from placeproof.measure.replay_file import Counterexample
from placeproof.measure.replay_mesh import Group, Mesh
from placeproof.measure.replay_numbers import Arithmetic, Numbers, stacked
from placeproof.measure.replay_step import COMPARE
from placeproof.measure.replay_values import NothingThereError, NotReplayedError

_OPERATORS: dict[str, Callable[[Content, Content], Content]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
#: What :meth:`placeproof.measure.replay_mesh.Mesh.meet` is told of an array.
ARRAY = 6


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
        names = [f"{tensor.name}{spot(dict(zip(tensor.dims, at, strict=True)))}" for at in _spots(places)]
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
        ones = [Fraction(dict(zip(array.dims, at, strict=True)) == dict(self.follow.place)) for at in _spots(array.places)]
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
        self.results.append(self._eval(call.args[0]))

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
            case "scale":
                return together(operator.mul, *operands)
            case "random":
                return self._number(self._key(call.axes))
            case "dropout":
                return self._masked(operands[0], operands[1].plain())
        return self._exchange(call, operands[0])

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
        spots = [sorted(zip(x.dims, at, strict=True)) for at in _spots(x.places)]
        factors = [random.Random(repr((self.found.seed, key, at))).choice((0, 2)) for at in spots]
        mask = Numbers.make(self.of, factors)
        shaped = Numbers(self.of, mask.data.reshape(*x.lengths.values(), *mask.data.shape[1:]))
        return x.with_content(x.content * self._plain(shaped))  # type: ignore[operator]

    # Exchanges. On one device they leave things as they are, and derivatives are followed there alone.

    def _exchange(self, call: Call, x: Array) -> Array:
        match call.op:
            case "all_gather":
                for axis in reversed(call.axes):
                    x = self._gathered(axis, x, call)
                return x
            case "all_to_all":
                return self._swapped(call, x)
            case "part":
                return self._own(call, x)
            case "all_reduce" | "reduce" | "broadcast" | "reduce_scatter":
                return self._combined(call, x)
        raise NotReplayedError(f"`{call.op}` of a tensor")

    def _own(self, call: Call, x: Array, at: Mapping[str, int] | None = None) -> Array:
        """A device's part along a dimension."""
        dim = call.option("dim")
        if dim is None or dim not in x.places or call.option("order", "blocked") != "blocked":
            raise NotReplayedError("this part of a tensor")
        for axis in call.axes:
            x = x.cut(dim, axis, (at or self.mesh.at)[axis], self.mesh.sizes[axis])
        return x

    def _combined(self, call: Call, x: Array) -> Array:
        group = self.mesh.group(call.axes)
        if group.size == 1:
            return self._own(call, x) if call.op == "reduce_scatter" else x
        mine = value_of(x.content)
        dims = self._alike(call, group, x)
        mine = mine.permuted([x.dims.index(d) for d in dims])
        root = self._first(call, group)
        op = call.option("op", "sum") or "sum"
        if call.op == "reduce_scatter":
            return self._scattered(call, group, x, mine, dims)
        if call.op == "broadcast":
            got = Numbers(self.of, self.mesh.spread(group, mine.data, root, call))
        elif call.op == "reduce":
            got = self.mesh.reduced(group, mine, op, call, root)
            got = got if self.mesh.rank == root else mine
        else:
            got = self.mesh.reduced(group, mine, op, call)
        return x.with_content(got.permuted([dims.index(d) for d in x.dims]))

    def _first(self, call: Call, group: Group) -> int:
        """The rank of the first device along the axes."""
        return min(zip(group.at, group.ranks, strict=True), key=lambda one: [one[0][a] for a in call.axes])[1]

    def _alike(self, call: Call, group: Group, x: Array, apart: str | None = None) -> list[str]:
        """The dimensions in an order that all devices of the group agree on; raises NothingThereError unless their shapes fit."""
        self.mesh.meet(group, call, ARRAY)
        known = list(self.found.sizes)
        mine = torch.tensor([len(x.places[d]) if d in x.places and d != apart else -1 for d in known])
        if any(not torch.equal(mine, other) for other in self.mesh.collect(group, mine, call)):
            raise NothingThereError(f"shapes do not fit: the devices of a group have others for `{call.op}`")
        return [d for d in known if d in x.places]

    def _scattered(self, call: Call, group: Group, x: Array, mine: Numbers, dims: list[str]) -> Array:
        """Each device's rows, filled up to the same length, in gloo's reduce-scatter."""
        whole = Array(places={d: x.places[d] for d in dims}, content=mine, cuts=x.cuts)
        parts = [self._own(call, whole, at) for at in group.at]
        dim = call.option("dim") or ""
        longest = max(len(p.places[dim]) for p in parts)
        rows = stacked([_filled(p, dim, longest) for p in parts])
        own = self._own(call, whole)
        got = Array(places={**own.places, dim: tuple(range(longest))}, content=self.mesh.scattered(group, rows, _op(call), call))
        got = got.kept(dim, range(len(own.places[dim])))
        back = self._own(call, x)
        return back.with_content(got.content.permuted([dims.index(d) for d in back.dims]))

    def _gathered(self, axis: str, x: Array, call: Call) -> Array:
        """The parts of all devices along an axis, one after the other."""
        group = self.mesh.group((axis,))
        cut = [d for d, cuts in x.cuts.items() if axis in cuts]
        if group.size > 1 and len(cut) != 1:
            raise NothingThereError(f"nothing to gather over {axis}")
        if not cut:
            return x
        dim = cut[0]
        if x.cuts[dim][-1] != axis:
            raise NotReplayedError("a gather of an outer part")
        cuts = {d: c[:-1] if d == dim else c for d, c in x.cuts.items()}
        cuts = {d: c for d, c in cuts.items() if c}
        if group.size == 1:
            return Array(places=x.places, content=x.content, cuts=cuts)
        dims = self._alike(call, group, x, apart=dim)
        places = self._all_places(group, x.places[dim], self.found.sizes[dim], call)
        ordered = Array(places={d: x.places[d] for d in dims}, content=value_of(x.content).permuted([x.dims.index(d) for d in dims]))
        longest = max(map(len, places))
        got = self.mesh.collected(group, _filled(ordered, dim, longest), call)
        which = dims.index(dim)
        parts = [g[(*[slice(None)] * which, slice(len(p)))].data for g, p in zip(got, places, strict=True)]
        joined = {**ordered.places, dim: tuple(p for part in places for p in part)}
        whole = Array(places=joined, content=Numbers(self.of, torch.cat(parts, dim=which)))
        content = whole.content.permuted([dims.index(d) for d in x.dims])
        return Array(places={d: joined[d] for d in x.dims}, content=content, cuts=cuts)

    def _swapped(self, call: Call, x: Array) -> Array:
        """Each device's piece along a new dimension, in gloo's all-to-all; the pieces that came, one after the other along the old one."""
        group = self.mesh.group(call.axes)
        cut = [d for d, cuts in x.cuts.items() if call.axes[0] in cuts]
        if group.size > 1 and len(cut) != 1:
            raise NothingThereError(f"nothing to gather over {call.axes[0]}")
        apart = group.size > 1 and (cut[0] == call.option("dim") or x.cuts[cut[0]][-1] != call.axes[0])
        if len(call.axes) != 1 or apart:
            raise NotReplayedError("this all-to-all of a tensor")
        mine = self._own(call, x)
        if not cut:
            return mine
        cuts = {d: c[:-1] if d == cut[0] else c for d, c in mine.cuts.items()}
        cuts = {d: c for d, c in cuts.items() if c}
        if group.size == 1:
            return Array(places=mine.places, content=mine.content, cuts=cuts)
        joined = self._pieces(call, group, x, cut[0])
        content = joined.content.permuted([joined.dims.index(d) for d in x.dims])
        return Array(places={d: joined.places[d] for d in x.dims}, content=content, cuts=cuts)

    def _pieces(self, call: Call, group: Group, x: Array, old: str) -> Array:
        """What the devices of the group have for this one, joined along the old dimension. Pieces travel filled up to the same shape."""
        dims, new = self._alike(call, group, x, apart=old), call.option("dim") or ""
        places = self._all_places(group, x.places[old], self.found.sizes[old], call)
        whole = Array(places={d: x.places[d] for d in dims}, content=value_of(x.content).permuted([x.dims.index(d) for d in dims]))
        pieces = [self._own(call, whole, at) for at in group.at]
        long, wide = max(map(len, places)), max(len(p.places[new]) for p in pieces)
        rows = stacked([_filled(p.with_content(_filled(p, old, long)), new, wide) for p in pieces])
        own, got = pieces[group.me], self.mesh.exchanged(group, rows, call)
        for_me = {new: slice(len(own.places[new]))}
        parts = [got[(j, *(slice(len(p)) if d == old else for_me.get(d, slice(None)) for d in dims))].data for j, p in enumerate(places)]
        joined = {**own.places, old: tuple(p for part in places for p in part)}
        return Array(places=joined, content=Numbers(self.of, torch.cat(parts, dim=dims.index(old))))

    def _all_places(self, group: Group, mine: Sequence[int], size: int, call: Call) -> list[tuple[int, ...]]:
        """Which places of a dimension each device of the group has; a part may be gathered twice, and be longer than the whole."""
        lengths = self.mesh.collect(group, torch.tensor([len(mine)]), call)
        longest = max(size, *(int(n) for n in lengths))
        row = torch.full((longest,), -1)
        row[: len(mine)] = torch.tensor(mine, dtype=torch.int64)
        return [tuple(p for p in other.tolist() if p >= 0) for other in self.mesh.collect(group, row, call)]


def _op(call: Call) -> str:
    return call.option("op", "sum") or "sum"


def _filled(array: Array, dim: str, length: int) -> Numbers:
    """The numbers with one dimension filled up by zeros."""
    data = value_of(array.content).data
    shape = list(data.shape)
    shape[array.dims.index(dim)] = length - len(array.places[dim])
    return Numbers(array.content.of, torch.cat([data, data.new_zeros(shape)], dim=array.dims.index(dim)))


def _spots(places: Mapping[str, Sequence[int]]) -> list[tuple[int, ...]]:
    """The places of every position, row by row."""
    found: list[tuple[int, ...]] = [()]
    for along in places.values():
        found = [(*at, place) for at in found for place in along]
    return found


def spot(at: Mapping[str, int]) -> str:
    """A place in a tensor, dimensions by name."""
    return "[" + ", ".join(f"{dim} {n}" for dim, n in sorted(at.items())) + "]"


def spots(array: Array) -> list[str]:
    """The names of the places of an array's numbers, row by row."""
    return [spot(dict(zip(array.dims, at, strict=True))) for at in _spots(array.places)]
