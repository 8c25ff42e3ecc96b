"""What a device holds in a program over tensors, statement by statement: dimensions, which of them are split, what is a partial sum.

This reads the same text as the proof does and computes nothing. Where the text means nothing (operands that do not fit, a dimension
that is not there), it refuses with the place; whether the program is right is for the proof to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from placeproof.core.diagnostics import Place, refuse
from placeproof.core.remembered import remembered
from placeproof.programs import POSITIONS, Assign, Binary, Call, Do, Expr, For, Number, Program, Ref, Stmt
from placeproof.programs.ir import adjoints
from placeproof.programs.ops import COLLECTIVES, ROUNDS
from placeproof.semantics.layouts.layout import Layout, Source, declared
from placeproof.semantics.layouts.operations import MisfitError, arithmetic, renames, result


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BlockValue:
    """A value of a block on one device; values are told apart by identity.

    ``name`` and ``line`` say where it was made (empty for what has no name). ``view``: the value whose storage it only reads.
    ``backward``: it was made in backward.
    """

    layout: Layout
    name: str = ""
    line: int = 0
    view: BlockValue | None = None
    backward: bool = False

    @property
    def stored(self) -> BlockValue:
        """The value that it is a view of, or itself."""
        return self if self.view is None else self.view.stored

    @property
    def data(self) -> bool:
        """Whether it depends on an activation."""
        return Source.ACTIVATION in self.layout.sources

    @property
    def incoming(self) -> bool:
        """Whether it depends on a gradient that comes in."""
        return Source.GRADIENT in self.layout.sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A collective: what goes in, as far as it is stored, and what comes out on one device."""

    call: Call
    before: Layout
    after: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One statement: the named values that it reads, the collectives in it in order, and what its expression gives.

    ``backward``: whether it stands at or after the first statement that depends on a gradient that comes in. ``rounds``: the axis in
    whose ring it stands: it is then done once for each other device.
    """

    stmt: Assign | Do
    reads: tuple[BlockValue, ...]
    sent: tuple[Sent, ...]
    result: BlockValue
    backward: bool
    rounds: str | None = None


@remembered
def lines(program: Program) -> tuple[Line, ...]:
    """Every statement of a program over tensors. Raises InputError where it is none, branches or loops, or where shapes do not fit."""
    walk = _Walk(program)
    return tuple(line for stmt in program.body for line in walk.statement(stmt))


def inputs(program: Program) -> dict[str, BlockValue]:
    """The tensors of the header, as a device holds them. Raises InputError where there is none."""
    if not program.tensors:
        _refuse("this program declares no tensor, so it is no block of a model", None)
    seeds = adjoints(program)
    return {
        t.name: BlockValue(layout=declared(t, adjoint=t.name in seeds), name=t.name, line=t.place.line if t.place else 0)
        for t in program.tensors
    }


def require_activations(program: Program) -> None:
    """Raise InputError where no tensor of the header is an activation."""
    if not any(value.data for value in inputs(program).values()):
        _refuse(
            "no tensor of this program is an activation: none has a dimension along which samples or tokens lie",
            program.tensors[0].place,
            "call these dimensions " + ", ".join(f"`{d}`" for d in sorted(POSITIONS)),
        )


def _refuse(message: str, place: Place | None, help: str | None = None) -> NoReturn:
    refuse("PP309", message, place=place, help=help)


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
        self.reads: list[BlockValue] = []
        self.sent: list[Sent] = []

    def statement(self, stmt: Stmt) -> tuple[Line, ...]:
        """The next statement, or those of a ring's round."""
        if isinstance(stmt, For) and stmt.domain == ROUNDS:
            return tuple(replace(self.line(inner), rounds=stmt.within) for inner in stmt.body)
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

    def _computed(self, stmt: Assign | Do) -> BlockValue:
        if isinstance(stmt, Do):
            if stmt.call.op == "free":
                return BlockValue(layout=Layout())
            return self._value(stmt.call.args[0]) if stmt.call.op == "returns" else self._call(stmt.call)
        target = stmt.targets[0]
        if len(stmt.targets) != 1 or target.group is not None or target.index is not None:
            _refuse("an assignment in a program over tensors has one plain target", stmt.place)
        value = self._value(stmt.value)
        return _arithmetic(self._value(target), value, stmt.place) if stmt.accumulate else value

    def _named(self, stmt: Assign, value: BlockValue, seed: bool) -> BlockValue:
        """The value under its name; what has a name already gets a second one."""
        name = stmt.targets[0].name
        if not value.name:
            layout = replace(value.layout, sources=value.layout.sources | {Source.GRADIENT}) if seed else value.layout
            # A view of what has no name is all that holds it.
            view = value.view if value.stored.name else None
            value = BlockValue(layout=layout, name=name, line=stmt.place.line if stmt.place else 0, view=view, backward=self.backward)
        self.env[name] = value
        return value

    # Expressions.

    def _value(self, expr: Expr) -> BlockValue:
        match expr:
            case Number():
                return BlockValue(layout=Layout())
            case Ref():
                return self._read(expr)
            case Binary(left=left, right=right):
                return _arithmetic(self._value(left), self._value(right), expr.place)
            case Call():
                return self._call(expr)

    def _read(self, ref: Ref) -> BlockValue:
        value = self.env.get(ref.name)
        if value is not None and ref.group is None and ref.index is None:
            self.reads.append(value)
            return value
        if self.program.axis(ref.name) is None:
            _refuse(f"`{ref.name}` is no tensor here", ref.place)
        return BlockValue(layout=Layout())

    def _call(self, call: Call) -> BlockValue:
        functional = call.op in ("elementwise", "slope")
        operands = [self._value(a) for a in (call.args[1:] if functional else call.args)]
        if call.op == "elementwise" and call.args[0] == Ref(name="stop"):
            return operands[0]
        try:
            layout = result(call, [v.layout for v in operands])
        except MisfitError as misfit:
            _refuse(str(misfit), call.place)
        if call.op in COLLECTIVES:
            before = operands[0].layout
            stored = replace(before, dims=tuple(filter(before.stored, before.dims)))  # nothing is sent along what is not stored
            self.sent.append(Sent(call=call, before=stored, after=layout))
        return BlockValue(layout=layout, view=_view(call, operands))


def _arithmetic(a: BlockValue, b: BlockValue, place: Place | None) -> BlockValue:
    try:
        return BlockValue(layout=arithmetic(a.layout, b.layout))
    except MisfitError as misfit:
        _refuse(str(misfit), place)


def _view(call: Call, operands: Sequence[BlockValue]) -> BlockValue | None:
    """The operand that the result is another name of, or can be computed from on the spot."""
    if call.op == "hot":
        return operands[0]
    if call.op != "contract":
        return None
    a, b = operands
    return next((old for new, old in ((a, b), (b, a)) if renames(new.layout, call.option("over") or "", old.layout)), None)
