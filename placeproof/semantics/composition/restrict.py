"""A step on some axes of its mesh alone: what it is where the others have one device each."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

from placeproof.core.mesh import Axis
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Program, Ref, Stmt
from placeproof.programs.ir import constant, own_expressions, statements
from placeproof.programs.ops import COMPARE

_ONE = Number(value=Fraction(1))


def restricted(program: Program, axes: Collection[str], names: Mapping[str, str] = MappingProxyType({})) -> Program:
    """The program on the axes of these names alone, under other ``names``. Every other axis has one device, whose collectives leave things
    as they are, and whose messages go nowhere. Raises ValueError where one device would wait for itself."""
    return _Restriction(program, frozenset(axes), _names(program, names)).program()


def alike(program: Program, without: Collection[str]) -> tuple[tuple[Axis, ...], ...]:
    """The axes, but for some, in groups of those that a program uses alike, so that it is the same on each alone but for their names."""
    uses: dict[str, list[object]] = {name: [] for a in program.axes for name in (a.name, *a.factors)}
    for name, use in _mentions(program):
        if name in uses:
            uses[name].append(use)
    groups: dict[object, list[Axis]] = {}
    for axis in (a for a in program.axes if a.name not in without):
        own = tuple((n == axis.name, use) for n in dict.fromkeys((axis.name, *axis.factors)) for use in uses[n])
        groups.setdefault((axis.splits, axis.degree, axis.inner, own), []).append(axis)
    return tuple(tuple(group) for group in groups.values())


def _mentions(program: Program) -> Iterator[tuple[str, object]]:
    """Every name that may be an axis's, and how it is used: the same of two axes where they may change places."""
    for p in program.placed:
        yield from ((axis, (p.state, p.group, mode.symbol)) for axis, mode in p.modes)
    for g in program.groups:
        yield from ((axis, (g.name, "partial")) for axis in g.partial)
        yield from ((axis, (g.name, "whole")) for axis in g.whole)
        yield from ((axis, (g.name, "experts")) for axis in g.experts)
    numbers = itertools.count()
    for stmt in statements(program.body):
        if isinstance(stmt, If):
            yield stmt.axis, next(numbers)
        if not isinstance(stmt, For):
            for own in own_expressions(stmt):
                yield from _mentioned(own, next(numbers), 1, numbers)


def _mentioned(expr: Expr, where: int, power: int, numbers: Iterator[int]) -> Iterator[tuple[str, object]]:
    match expr:
        case Ref(name=name):
            yield name, (where, power)
        case Binary(op="*" | "/" as op, left=left, right=right):  # factors of a product may change places
            yield from _mentioned(left, where, power, numbers)
            yield from _mentioned(right, where, power if op == "*" else -power, numbers)
        case Binary(left=left, right=right):
            yield from _mentioned(left, next(numbers), 1, numbers)
            yield from _mentioned(right, next(numbers), 1, numbers)
        case Call(axes=axes, args=args):
            over = next(numbers)
            yield from ((axis, over) for axis in axes)
            for arg in args:
                yield from _mentioned(arg, next(numbers), 1, numbers)


def _names(program: Program, names: Mapping[str, str]) -> dict[str, str]:
    """What axes and their factors are called, where that is something else."""
    renamed: dict[str, str] = {}
    for axis in (a for a in program.axes if a.name in names):
        other = replace(axis, name=names[axis.name])
        renamed |= dict(zip((axis.name, axis.outer_name, axis.inner_name), (other.name, other.outer_name, other.inner_name), strict=True))
    return renamed


@dataclass(frozen=True)
class _Restriction:
    whole: Program
    kept: frozenset[str]
    names: Mapping[str, str]

    def _named(self, name: str) -> str:
        return self.names.get(name, name)

    def program(self) -> Program:
        whole = self.whole
        placed = tuple(replace(p, modes=tuple((self._named(a), m) for a, m in p.modes if not self._gone(a))) for p in whole.placed)
        groups = tuple(
            replace(
                g,
                partial=tuple(self._named(a) for a in g.partial if not self._gone(a)),
                whole=tuple(self._named(a) for a in g.whole if not self._gone(a)),
                experts=tuple(self._named(a) for a in g.experts if not self._gone(a)),
            )
            for g in whole.groups
        )
        axes = tuple(replace(a, name=self._named(a.name)) for a in whole.axes if a.name in self.kept)
        return replace(whole, axes=axes, placed=placed, groups=groups, body=self._body(whole.body))

    def _gone(self, name: str) -> bool:
        axis = self.whole.axis(name)
        return axis is not None and axis.name not in self.kept

    def _body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(kept for stmt in body for kept in self._stmt(stmt))

    def _stmt(self, stmt: Stmt) -> tuple[Stmt, ...]:
        match stmt:
            case Assign(targets=targets):
                value = self._expr(stmt.value)
                same = len(targets) == 1 and value == targets[0] and not stmt.accumulate
                return () if same else (replace(stmt, value=value),)
            case Do(call=Call(op="send", axes=(axis,))) if self._gone(axis):
                return ()
            case Do():
                axes = tuple(map(self._named, stmt.call.axes))
                return (replace(stmt, call=replace(stmt.call, args=tuple(map(self._expr, stmt.call.args)), axes=axes)),)
            case For():
                return (replace(stmt, body=self._body(stmt.body), in_flight=None, hops=None),)
            case If() if self._gone(stmt.axis):
                bound = constant(self._expr(stmt.bound))
                if bound is None:
                    raise ValueError(f"nothing says which way one device of `{stmt.axis}` goes")
                return self._body(stmt.then if COMPARE[stmt.op](0, bound) else stmt.orelse)
        return (replace(stmt, axis=self._named(stmt.axis), then=self._body(stmt.then), orelse=self._body(stmt.orelse)),)

    def _expr(self, expr: Expr) -> Expr:
        match expr:
            case Ref() if self._gone(expr.name):
                return _ONE
            case Ref(name=name) if name in self.names:
                return replace(expr, name=self.names[name])
            case Binary():
                left, right = self._expr(expr.left), self._expr(expr.right)
                if right == _ONE and expr.op in "*/":
                    return left
                return right if left == _ONE and expr.op == "*" else replace(expr, left=left, right=right)
            case Call(op="recv", axes=(axis,)) if self._gone(axis):
                raise ValueError(f"one device of `{axis}` waits for a message")
            case Call(op="start" | "wait", args=(inner,)):  # one device waits for nobody; that nothing races is for others to see
                return self._expr(inner)
            case Call(axes=axes) if axes and all(self._gone(a) for a in axes):
                return self._expr(expr.args[0])
            case Call(op="scale", args=(x, factor)):
                by = self._expr(factor)
                return self._expr(x) if by == _ONE else replace(expr, args=(self._expr(x), by))
            case Call():
                axes = tuple(self._named(a) for a in expr.axes if not self._gone(a))
                return replace(expr, args=tuple(map(self._expr, expr.args)), axes=axes)
        return expr
