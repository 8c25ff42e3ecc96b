"""The devices of a run: arrays of numbers, and what each statement makes of them on all devices at once."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from placeproof.core.diagnostics import Place
from placeproof.core.program import Assign, Binary, Call, Do, Expr, For, If, Number, Program, Ref, Stmt, statements
from placeproof.semantics.tensors.arrays import FaultError, Local, aligned, joined_labels
from placeproof.semantics.tensors.numbers import Dual, NotComputedError, any_key, drawn, masked, value_and_slope

Device = tuple[int, ...]
Everywhere = dict[Device, Local]

_COMPARE: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Dual, Dual], Dual]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": lambda a, b: a.power(b.value),
    "max": lambda a, b: a if a.value >= b.value else b,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a `returns` gave on each device; of a gradient, also what it is of and the adjoint."""

    call: Call
    name: str
    locals: Everywhere
    of: Local | None = None
    at: Local | None = None

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.call.place.line if self.call.place else 0


class Machine:
    """A run on one mesh. ``follow``: the number of a `returns`, and the buffer whose derivatives are followed up to it."""

    def __init__(
        self,
        program: Program,
        degrees: dict[str, int],
        sizes: dict[str, int],
        seed: int,
        *,
        fine: bool = False,
        follow: tuple[int, str] | None = None,
    ) -> None:
        if any(a.inner is not None for a in program.axes):
            raise NotComputedError("an axis with sub-groups")
        self.program, self.degrees, self.sizes, self.seed, self.fine = program, degrees, sizes, seed, fine
        self.axes = list(degrees)
        self.devices: list[Device] = list(itertools.product(*(range(n) for n in degrees.values())))
        self.outputs: list[Output] = []
        self.follow = follow
        self.seeded = self._last_write(follow) if follow is not None else None
        self.env: dict[Device, dict[str, Local]] = {d: {} for d in self.devices}
        for tensor in program.tensors:
            whole = self._whole(tensor.name, tensor.dims, tensor.picks)
            for device in self.devices:
                local = whole
                for axis, dim in tensor.split:
                    local = local.cut(dim, axis, device[self.axes.index(axis)], degrees[axis])
                self.env[device][tensor.name] = local
        if follow is not None and self.seeded is None:
            self._seed(follow[1])

    def run(self) -> list[Output]:
        """Every statement in order."""
        self._body(self.program.body, self.devices)
        return self.outputs

    def _whole(self, name: str, dims: tuple[str, ...], picks: str | None) -> Local:
        labels = {d: tuple(range(self.sizes[d])) for d in dims}

        def number(*at: int) -> Dual:
            if picks is not None:
                return Dual(drawn(self.seed, "pick", name, at) * 7 % self.sizes[picks])
            return Dual(drawn(self.seed, name, at))

        return Local.filled(labels, number, picks=picks)

    # Derivatives.

    def _last_write(self, follow: tuple[int, str]) -> Stmt | None:
        """The last statement that writes a buffer before a `returns`; it must not stand under a condition."""
        number, name = follow
        found: Stmt | None = None
        seen = 0
        for stmt in self.program.body:
            if isinstance(stmt, Do) and stmt.call.op == "returns":
                if seen == number:
                    return found
                seen += 1
            elif isinstance(stmt, Assign) and stmt.targets[0].name == name:
                found = stmt
            elif isinstance(stmt, If | For) and any(isinstance(s, Assign) and s.targets[0].name == name for s in statements((stmt,))):
                raise NotComputedError("a derivative by what is written in a loop or under a condition")
        return found

    def _seed(self, name: str) -> None:
        """From here on, numbers carry their derivatives by the buffer's elements."""
        for device in self.devices:
            local = self.env[device][name]
            self.env[device][name] = local.map_at(lambda place, n: Dual(n.value, {place: Fraction(1)}))

    # Statements.

    def _body(self, body: tuple[Stmt, ...], active: list[Device]) -> None:
        for stmt in body:
            match stmt:
                case Assign(targets=(Ref(name=name),), value=value):
                    result = self._eval(value, active)
                    if stmt.accumulate:
                        result = {d: self._binary("+", self.env[d][name], result[d], stmt.place) for d in active}
                    for device in active:
                        self.env[device][name] = result[device]
                    if stmt is self.seeded:
                        self._seed(name)
                case Do(call=Call(op="free", args=(Ref(name=name),))):
                    for device in active:
                        self.env[device].pop(name, None)
                case Do(call=Call(op="returns") as call):
                    self._returns(call, active)
                case If():
                    self._branch(stmt, active)
                case For(domain="rounds"):
                    for _ in range(self.degrees[stmt.within or ""] - 1):
                        self._body(stmt.body, active)
                case _:
                    raise NotComputedError("a statement of this kind")

    def _branch(self, stmt: If, active: list[Device]) -> None:
        bounds = self._eval(stmt.bound, active)
        at = self.axes.index(stmt.axis)
        taken = [d for d in active if _COMPARE[stmt.op](Fraction(d[at]), bounds[d].number.value)]
        self._body(stmt.then, taken)
        self._body(stmt.orelse, [d for d in active if d not in taken])

    def _returns(self, call: Call, active: list[Device]) -> None:
        if active != self.devices:
            raise NotComputedError("`returns` under a condition")
        values = self._eval(call.args[0], active)
        if any(not self._home(device, values[device]) for device in active):
            raise FaultError("what is returned holds a part of another device: it is not home from its ring", call.place)
        of = at = None
        if call.option("gradient_of") is not None:
            first = self.env[self.devices[0]]
            names = [call.option(o) or "" for o in ("gradient_of", "at", "by")]
            if any(n not in first for n in names):
                raise NotComputedError("a gradient of something unknown")
            of, at, by = (first[n] for n in names)
            if set(of.dims) != set(at.dims) or set(by.dims) != set(values[self.devices[0]].dims):
                raise NotComputedError("a gradient of another shape")
        arg = call.args[0]
        by_name = call.option("by")
        name = f"`{arg.name}`" if isinstance(arg, Ref) else f"the gradient by `{by_name}`" if by_name else "the result"
        self.outputs.append(Output(call=call, name=name, locals=values, of=of, at=at))

    def _home(self, device: Device, value: Local) -> bool:
        """Whether a device holds its own part of each dimension that is cut."""
        for dim, cuts in value.cuts.items():
            own = Local(labels={dim: tuple(range(self.sizes[dim]))}, data={(i,): Dual(Fraction(0)) for i in range(self.sizes[dim])})
            for axis in cuts:
                own = own.cut(dim, axis, device[self.axes.index(axis)], self.degrees[axis])
            if own.labels[dim] != value.labels[dim]:
                return False
        return True

    # Expressions.

    def _eval(self, expr: Expr, active: Sequence[Device]) -> Everywhere:
        match expr:
            case Number(value=value):
                return {d: Local.scalar(value) for d in active}
            case Ref(name=name):
                return {d: self._read(d, name) for d in active}
            case Binary(op=op, left=left, right=right):
                a, b = self._eval(left, active), self._eval(right, active)
                return {d: self._binary(op, a[d], b[d], expr.place) for d in active}
            case Call():
                return self._call(expr, active)

    def _read(self, device: Device, name: str) -> Local:
        if name in self.env[device]:
            return self.env[device][name]
        if name in self.degrees:
            return Local.scalar(Fraction(self.degrees[name]))
        raise NotComputedError(f"`{name}`, which this device never wrote")

    def _binary(self, op: str, a: Local, b: Local, place: Place | None) -> Local:
        left, right, labels = aligned(a, b, place)
        loose = frozenset(d for d in labels if all(d in v.loose for v in (a, b) if d in v.dims))
        apply = _ARITHMETIC[op]
        cuts = {d: (a.cuts.get(d) or b.cuts.get(d) or ()) for d in labels}
        result = Local.at_positions(labels, lambda at: apply(left(at), right(at)))
        return replace(result, loose=loose, cuts={d: c for d, c in cuts.items() if c})

    def _call(self, call: Call, active: Sequence[Device]) -> Everywhere:
        args = call.args[1:] if call.op in ("elementwise", "slope") else call.args
        operands = [self._eval(a, active) for a in args]
        over = call.option("over") or ""
        match call.op:
            case "elementwise" | "slope":
                assert isinstance(call.args[0], Ref)
                return {d: _function(call.op, call.args[0].name, operands[0][d], self.fine) for d in active}
            case "contract":
                pairs = {d: self._binary("*", self._has(operands[0][d], over), self._has(operands[1][d], over), call.place) for d in active}
                return {d: v.reduced(over, _added) for d, v in pairs.items()}
            case "total":
                return {d: self._has(operands[0][d], over).reduced(over, _added) for d in active}
            case "largest":
                return {d: self._has(operands[0][d], over).reduced(over, _largest) for d in active}
            case "hot":
                return {d: operands[0][d].hot(self.sizes) for d in active}
            case "copy":
                return operands[0]
            case "max":
                return {d: self._binary("max", operands[0][d], operands[1][d], call.place) for d in active}
            case "scale":
                return {d: self._binary("*", operands[0][d], operands[1][d], call.place) for d in active}
            case "random":
                return {d: Local.scalar(any_key(self.seed, self._folded(d, call.axes))) for d in active}
            case "dropout":
                return {d: self._masked(operands[0][d], operands[1][d].number.value) for d in active}
        return self._exchange(call, operands[0], active)

    @staticmethod
    def _has(x: Local, dim: str) -> Local:
        if dim not in x.dims:
            raise NotComputedError(f"a reduction of `{dim}`, which is not there")
        return x

    def _folded(self, device: Device, axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(c if a in axes else 0 for a, c in zip(self.axes, device, strict=True))

    def _masked(self, x: Local, key: Fraction) -> Local:
        return x.map_at(lambda place, n: n * Dual(masked(self.seed, key, sorted(place))))

    # Messages.

    def _groups(self, axes: tuple[str, ...], active: Sequence[Device]) -> Iterable[list[Device]]:
        """Devices that differ along some axes alone, in the order of their ranks."""
        groups: dict[Device, list[Device]] = {}
        for device in active:
            rest = tuple(-1 if a in axes else c for a, c in zip(self.axes, device, strict=True))
            groups.setdefault(rest, []).append(device)
        for group in groups.values():
            yield sorted(group, key=lambda d: [d[self.axes.index(a)] for a in axes])

    def _exchange(self, call: Call, x: Everywhere, active: Sequence[Device]) -> Everywhere:
        result = dict(x)
        if call.op in ("all_reduce", "reduce_scatter", "reduce"):
            for group in self._groups(call.axes, active):
                combined = _combined([x[d] for d in group], call.option("op", "sum") or "sum", call.place)
                total = x[group[0]].with_numbers(combined)
                for device in group if call.op != "reduce" else [_root(call, group)]:  # a branch may leave dimensions in another order
                    result[device] = x[device].with_numbers(joined_labels(total, x[device], call.place))
        elif call.op == "broadcast":
            for group in self._groups(call.axes, active):
                for device in group:
                    result[device] = x[device].with_numbers(joined_labels(x[_root(call, group)], x[device], call.place))
        elif call.op == "shift":
            by = int(call.option("by", "1") or "1")
            for group in self._groups(call.axes, active):
                for n, device in enumerate(group):
                    result[device] = x[group[(n - by) % len(group)]]
        elif call.op == "all_gather":
            for axis in reversed(call.axes):
                result = self._gathered(axis, result, active, call.place)
        elif call.op == "all_to_all":
            return self._swapped(call, x, active)
        elif call.op != "part":
            raise NotComputedError(f"`{call.op}`")
        if call.op in ("part", "reduce_scatter"):
            return {d: self._own(call, result[d], d) for d in active}
        return result

    def _own(self, call: Call, x: Local, device: Device) -> Local:
        dim = call.option("dim")
        if dim is None or dim not in x.dims or call.option("order", "blocked") != "blocked":
            raise NotComputedError("this part")
        for axis in call.axes:
            x = x.cut(dim, axis, device[self.axes.index(axis)], self.degrees[axis])
        return x

    def _gathered(self, axis: str, x: Everywhere, active: Sequence[Device], place: Place | None) -> Everywhere:
        result = {}
        for group in self._groups((axis,), active):
            dims = [d for d, cuts in x[group[0]].cuts.items() if axis in cuts]
            if len(group) > 1 and len(dims) != 1:
                raise FaultError(f"nothing to gather over {axis}", place)
            if dims and x[group[0]].cuts[dims[0]][-1] != axis:
                raise NotComputedError("a gather of an outer part")
            for device in group:
                result[device] = x[device] if not dims else Local.gathered([x[d] for d in group], dims[0], place)
        return result

    def _swapped(self, call: Call, x: Everywhere, active: Sequence[Device]) -> Everywhere:
        """Each device cuts what it has along a new dimension, and sends every device of its group one piece."""
        result = {}
        for group in self._groups(call.axes, active):
            cut = [d for d, cuts in x[group[0]].cuts.items() if call.axes[0] in cuts]
            if len(group) > 1 and len(cut) != 1:
                raise FaultError(f"nothing to gather over {call.axes[0]}", call.place)
            apart = len(group) > 1 and (cut[0] == call.option("dim") or x[group[0]].cuts[cut[0]][-1] != call.axes[0])
            if len(call.axes) != 1 or apart:
                raise NotComputedError("this all-to-all")
            for device in group:
                pieces = [self._own(call, x[sender], device) for sender in group]
                result[device] = Local.gathered(pieces, cut[0], call.place) if cut else pieces[0]
        return result


def _root(call: Call, group: list[Device]) -> Device:
    """The device whose value counts."""
    root = call.option("root", "0") or "0"
    if len(group) == 1:  # where collectives do nothing
        return group[0]
    if root == "owner":
        raise NotComputedError("a root for each part")
    if int(root) >= len(group):
        raise FaultError(f"no device is number {root}", call.place)
    return group[int(root)]


def _function(op: str, name: str, x: Local, fine: bool) -> Local:
    def at(n: Dual) -> Dual:
        value, slope = value_and_slope(name, n.value, fine)
        if op == "slope":  # whose own derivative nobody knows
            return Dual(slope, {("slope of", object()): Fraction(1)} if n.by else {})
        return n.chained(value, slope)

    return x.map_at(lambda _, n: at(n))


def _added(numbers: list[Dual]) -> Dual:
    result = Dual(Fraction(0))
    for n in numbers:
        result = result + n
    return result


def _largest(numbers: list[Dual]) -> Dual:
    if not numbers:
        raise NotComputedError("the greatest of nothing")
    return max(numbers, key=lambda n: n.value)


def _combined(locals_: list[Local], op: str, place: Place | None) -> dict[tuple[int, ...], Dual]:
    """Position by position; devices whose arrays have other shapes have nothing to add."""
    first = locals_[0]
    columns = [joined_labels(v, first, place) for v in locals_]
    result = {}
    for at in first.data:
        numbers = [c[at] for c in columns]
        combined = _largest(numbers) if op == "max" else _added(numbers)
        result[at] = combined / Dual(Fraction(len(numbers))) if op == "mean" else combined
    return result
