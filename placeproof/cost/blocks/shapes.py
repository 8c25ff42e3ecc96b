"""What a device holds in a program over tensors, statement by statement: dimensions, which of them are split, what is a partial sum.

This reads the same text as the proof does and computes nothing. Where the text means nothing (operands that do not fit, a dimension
that is not there), it refuses with the place; whether the program is right is for the proof to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from placeproof.core.diagnostics import Diagnostic, InputError, Place
from placeproof.programs import POSITIONS, Assign, Binary, Call, Do, Expr, For, Number, Program, Ref, Stmt
from placeproof.programs.ir import Tensor, adjoints
from placeproof.programs.ops import COLLECTIVES, ROUNDS

#: Dimensions that are split -> the axes that split them, the outermost first.
Split = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Held:
    """A value on one device. Without dimensions it is a number; values are told apart by identity.

    ``split``: the dimensions of which the device has only its part. ``partial``: the axes over which the device's numbers are only
    summands. ``loose``: dimensions along which nothing is stored; ``dense``: those of them along which there is something everywhere.
    ``picks``: the dimension along which its elements are positions.
    ``name`` and ``line`` say where it was made (empty for what has no name). ``view``: the value whose storage it only reads.
    ``data``: it depends on an activation. ``incoming``: it depends on a gradient that comes in. ``backward``: it was made in backward.
    """

    dims: tuple[str, ...] = ()
    split: Split = field(default_factory=dict)
    partial: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    dense: frozenset[str] = frozenset()
    picks: str | None = None
    name: str = ""
    line: int = 0
    view: Held | None = None
    data: bool = False
    incoming: bool = False
    backward: bool = False

    @property
    def stored(self) -> Held:
        """The value that it is a view of, or itself."""
        return self if self.view is None else self.view.stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A collective: what goes in, as far as it is stored, and what comes out on one device."""

    call: Call
    before: Held
    after: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One statement: the named values that it reads, the collectives in it in order, and what its expression gives.

    ``backward``: whether it stands at or after the first statement that depends on a gradient that comes in. ``rounds``: the axis in
    whose ring it stands: it is then done once for each other device.
    """

    stmt: Assign | Do
    reads: tuple[Held, ...]
    sent: tuple[Sent, ...]
    result: Held
    backward: bool
    rounds: str | None = None


def lines(program: Program) -> tuple[Line, ...]:
    """Every statement of a program over tensors. Raises InputError where it is none, branches or loops, or where shapes do not fit."""
    walk = _Walk(program)
    return tuple(line for stmt in program.body for line in walk.statement(stmt))


def inputs(program: Program) -> dict[str, Held]:
    """The tensors of the header, as a device holds them. Raises InputError where none of them is an activation."""
    if not program.tensors:
        _refuse("this program declares no tensor, so it is no block of a model", None)
    seeds = adjoints(program)
    found = {t.name: _declared(t, t.name in seeds) for t in program.tensors}
    if not any(h.data for h in found.values()):
        _refuse(
            "no tensor of this program is an activation: none has a dimension along which samples or tokens lie",
            program.tensors[0].place,
            "call these dimensions " + ", ".join(f"`{d}`" for d in sorted(POSITIONS)),
        )
    return found


def _declared(tensor: Tensor, adjoint: bool) -> Held:
    split: dict[str, tuple[str, ...]] = {}
    for axis, dim in tensor.split:
        split[dim] = (*split.get(dim, ()), axis)
    line = tensor.place.line if tensor.place else 0
    renames = tensor.picks in POSITIONS  # says which position another one is: a way to call a dimension otherwise
    data = not POSITIONS.isdisjoint(tensor.dims) and not adjoint and not renames
    return Held(dims=tensor.dims, split=split, picks=tensor.picks, name=tensor.name, line=line, data=data, incoming=adjoint)


def _refuse(message: str, place: Place | None, help: str | None = None) -> NoReturn:
    raise InputError([Diagnostic(code="PP309", message=message, place=place, help=help)])


class _Walk:
    """One walk over a program."""

    def __init__(self, program: Program) -> None:
        for axis in program.axes:
            if axis.inner is not None:
                _refuse(f"axis `{axis.name}` has sub-groups, which programs over tensors do not speak of", None)
        self.program = program
        self.env = inputs(program)
        self.seeds = adjoints(program)
        self.backward = False
        self.reads: list[Held] = []
        self.sent: list[Sent] = []

    def statement(self, stmt: Stmt) -> tuple[Line, ...]:
        """The next statement, or those of a ring's round."""
        if isinstance(stmt, For) and stmt.domain == ROUNDS:
            return tuple(replace(self.line(one), rounds=stmt.within) for one in stmt.body)
        return (self.line(stmt),)

    def line(self, stmt: Stmt) -> Line:
        """A statement by itself."""
        if not isinstance(stmt, Assign | Do):
            _refuse("what a block costs is read off statements that every device runs once, in order", stmt.place)
        self.reads, self.sent = [], []
        value = self._computed(stmt)
        seed = isinstance(stmt, Assign) and stmt.targets[0].name in self.seeds
        self.backward = self.backward or value.incoming or seed
        if isinstance(stmt, Assign):
            value = self._named(stmt, value, seed)
        return Line(stmt=stmt, reads=tuple(self.reads), sent=tuple(self.sent), result=value, backward=self.backward)

    def _computed(self, stmt: Assign | Do) -> Held:
        if isinstance(stmt, Do):
            if stmt.call.op == "free":
                return Held()
            return self._value(stmt.call.args[0]) if stmt.call.op == "returns" else self._call(stmt.call)
        target = stmt.targets[0]
        if len(stmt.targets) != 1 or target.group is not None or target.index is not None:
            _refuse("an assignment in a program over tensors has one plain target", stmt.place)
        value = self._value(stmt.value)
        return _joined(self._value(target), value, stmt.place) if stmt.accumulate else value

    def _named(self, stmt: Assign, value: Held, seed: bool) -> Held:
        """The value under its name; what has a name already gets a second one."""
        name = stmt.targets[0].name
        if not value.name:
            line = stmt.place.line if stmt.place else 0
            # A view of what has no name is all that holds it.
            view = value.view if value.stored.name else None
            value = replace(value, name=name, line=line, view=view, incoming=value.incoming or seed, backward=self.backward)
        self.env[name] = value
        return value

    # Expressions.

    def _value(self, expr: Expr) -> Held:
        match expr:
            case Number():
                return Held()
            case Ref():
                return self._read(expr)
            case Binary(left=left, right=right):
                return _joined(self._value(left), self._value(right), expr.place)
            case Call():
                return self._call(expr)

    def _read(self, ref: Ref) -> Held:
        held = self.env.get(ref.name)
        if held is not None and ref.group is None and ref.index is None:
            self.reads.append(held)
            return held
        if self.program.axis(ref.name) is None:
            _refuse(f"`{ref.name}` is no tensor here", ref.place)
        return Held()

    def _call(self, call: Call) -> Held:
        functional = call.op in ("elementwise", "slope")
        operands = [self._value(a) for a in (call.args[1:] if functional else call.args)]
        if functional and call.args[0] == Ref(name="stop") and call.op == "elementwise":
            return operands[0]
        if call.op not in _RULES:
            _refuse(f"`{call.op}` means nothing in a program over tensors", call.place)
        result = _RULES[call.op](call, operands)
        if call.op in COLLECTIVES:
            self.sent.append(Sent(call=call, before=_stored(operands[0]), after=result))
        return result


def _stored(value: Held) -> Held:
    """As far as it takes room: nothing is sent along dimensions along which nothing is stored."""
    return replace(value, dims=tuple(d for d in value.dims if d not in value.loose - value.dense))


# What operations make of what they are given.


def _like(value: Held, **changes: object) -> Held:
    """A new value of the same shape, but for the changes."""
    return replace(value, **{"name": "", "line": 0, "view": None, "backward": False, **changes})  # type: ignore[arg-type]


def _joined(a: Held, b: Held, place: Place | None) -> Held:
    """Arithmetic of two values, aligned by the names of their dimensions."""
    for value in (a, b):
        if value.picks is not None:
            _refuse("positions are no numbers; `hot(...)` makes numbers of them", place)
    dims = (*a.dims, *(d for d in b.dims if d not in a.dims))
    split: dict[str, tuple[str, ...]] = {}
    for value in (a, b):
        for dim in (d for d in value.dims if d not in value.loose):
            axes = value.split.get(dim, ())
            if split.setdefault(dim, axes) != axes:
                _refuse(f"one operand has all of `{dim}` and the other a part of it: their shapes do not fit", place)
    return Held(
        dims=dims,
        split={d: s for d, s in split.items() if s},
        partial=a.partial | b.partial,
        loose=frozenset(d for d in dims if all(d in v.loose for v in (a, b) if d in v.dims)),
        dense=a.dense | b.dense,
        data=a.data or b.data,
        incoming=a.incoming or b.incoming,
    )


def _reduced(value: Held, dim: str, place: Place | None, *, summed: bool = True) -> Held:
    """Without one dimension; a sum over what is split is a partial sum, and a sum over positions has all that they pick."""
    if dim not in value.dims:
        _refuse(f"there is no dimension `{dim}` to reduce", place)
    partial = value.partial | frozenset(value.split.get(dim, ())) if summed else value.partial
    dims = tuple(d for d in value.dims if d != dim)
    split = {d: s for d, s in value.split.items() if d != dim}
    dense = value.dense | (value.loose if summed and dim in POSITIONS else frozenset())
    return _like(value, dims=dims, split=split, partial=partial, loose=value.loose - {dim}, dense=dense - {dim})


def _each(call: Call, operands: list[Held]) -> Held:
    return _like(operands[0])


def _total(call: Call, operands: list[Held]) -> Held:
    return _reduced(operands[0], call.option("over") or "", call.place)


def _largest(call: Call, operands: list[Held]) -> Held:
    return _reduced(operands[0], call.option("over") or "", call.place, summed=False)


def _random(call: Call, operands: list[Held]) -> Held:
    return Held()


def _contract(call: Call, operands: list[Held]) -> Held:
    a, b = operands
    dim = call.option("over") or ""
    if dim not in a.dims or dim not in b.dims:
        _refuse(f"`contract` sums over a dimension of both operands, and `{dim}` is not", call.place)
    result = _reduced(_joined(a, b, call.place), dim, call.place)
    for new, old in ((a, b), (b, a)):
        if _renames(new, dim, old):
            return replace(result, view=old)
    return result


def _renames(hot: Held, dim: str, value: Held) -> bool:
    """Whether `contract(hot(p), x, over=dim)` only calls a dimension of positions otherwise: one position for all samples."""
    picked = hot.stored.picks == dim and dim in POSITIONS and len(hot.dims) == 2
    return picked and set(hot.dims) & set(value.dims) == {dim} and dim not in value.split


def _hot(call: Call, operands: list[Held]) -> Held:
    (picks,) = operands
    if picks.picks is None:
        _refuse("`hot` takes positions: a tensor that is declared with `picks=`", call.place)
    along = picks.picks or ""
    return _like(picks, dims=(*picks.dims, along), loose=frozenset({along}), picks=None, view=picks)


def _scaled(call: Call, operands: list[Held]) -> Held:
    return _joined(operands[0], operands[1], call.place)


def _moved(call: Call, operands: list[Held]) -> Held:
    """A reduction over axes, or a copy from one device: the same elements, whole."""
    (value,) = operands
    for dim, axes in value.split.items():
        if apart := [a for a in call.axes if a in axes]:
            _refuse(f"`{call.op}` over `{apart[0]}` of parts: each device has other elements along `{dim}`", call.place)
    added_up = call.op not in ("broadcast", "reduce") and call.choice("op") != "max"
    return _like(value, partial=value.partial - frozenset(call.axes) if added_up else value.partial)


def _part(call: Call, operands: list[Held]) -> Held:
    (value,) = operands
    dim = call.option("dim") or ""
    if dim not in value.dims or any(a in value.split.get(dim, ()) for a in call.axes):
        _refuse(f"`{call.op}` needs `dim=`, a dimension of its operand that is not split over its axes", call.place)
    split = {**value.split, dim: (*value.split.get(dim, ()), *call.axes)}
    return _like(value, split=split, loose=value.loose - {dim})


def _scattered(call: Call, operands: list[Held]) -> Held:
    return _part(call, [_moved(call, operands)])


def _gathered(call: Call, operands: list[Held]) -> Held:
    (value,) = operands
    split = dict(value.split)
    for axis in reversed(call.axes):
        dims = [d for d, axes in split.items() if axes[-1:] == (axis,)]
        if len(dims) != 1:
            _refuse(f"`{call.op}` over `{axis}` of what is not split over it (last)", call.place)
        split[dims[0]] = split[dims[0]][:-1]
    return _like(value, split={d: s for d, s in split.items() if s})


def _swapped(call: Call, operands: list[Held]) -> Held:
    """Whole along the dimension that the axis splits, and split along another."""
    if len(call.axes) != 1:
        _refuse("`all_to_all` of a tensor is over one axis", call.place)
    (value,) = operands
    dim = call.option("dim") or ""
    if dim not in value.dims or call.axes[0] in value.split.get(dim, ()):
        _refuse("`all_to_all` needs `dim=`, a dimension of its operand that is not split over its axis", call.place)
    return _part(call, [_gathered(call, operands)])


_RULES: dict[str, Callable[[Call, list[Held]], Held]] = {
    "contract": _contract,
    "total": _total,
    "largest": _largest,
    "hot": _hot,
    "elementwise": _each,
    "slope": _each,
    "copy": _each,
    "scale": _scaled,
    "max": _scaled,
    "dropout": _scaled,
    "random": _random,
    "all_reduce": _moved,
    "broadcast": _moved,
    "reduce": _moved,
    "shift": _each,
    "reduce_scatter": _scattered,
    "all_gather": _gathered,
    "all_to_all": _swapped,
    "part": _part,
}
