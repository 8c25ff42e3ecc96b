"""A step on some axes of its mesh alone: what it is where the others have one device each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction

from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Program, Ref, Stmt
from placeproof.programs.ir import constant
from placeproof.programs.ops import COMPARE

_ONE = Number(value=Fraction(1))


def restricted(program: Program, axes: Collection[str]) -> Program:
    """The program on the axes of these names alone. Every other axis has one device, whose collectives leave things as they are, and whose
    messages go nowhere."""
    return _Restriction(program, frozenset(axes)).program()


@dataclass(frozen=True)
class _Restriction:
    whole: Program
    kept: frozenset[str]

    def program(self) -> Program:
        whole = self.whole
        placed = tuple(replace(p, modes=tuple((a, m) for a, m in p.modes if not self._gone(a))) for p in whole.placed)
        groups = tuple(
            replace(
                g,
                partial=tuple(a for a in g.partial if not self._gone(a)),
                experts=None if g.experts is None or self._gone(g.experts) else g.experts,
            )
            for g in whole.groups
        )
        axes = tuple(a for a in whole.axes if a.name in self.kept)
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
                return (replace(stmt, call=replace(stmt.call, args=tuple(map(self._expr, stmt.call.args)))),)
            case For():
                return (replace(stmt, body=self._body(stmt.body), in_flight=None, hops=None),)
            case If() if self._gone(stmt.axis):
                bound = constant(self._expr(stmt.bound))
                if bound is None:
                    raise ValueError(f"nothing says which way one device of `{stmt.axis}` goes")
                return self._body(stmt.then if COMPARE[stmt.op](0, bound) else stmt.orelse)
        return (replace(stmt, then=self._body(stmt.then), orelse=self._body(stmt.orelse)),)

    def _expr(self, expr: Expr) -> Expr:
        match expr:
            case Ref() if self._gone(expr.name):
                return _ONE
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
                return replace(expr, args=tuple(map(self._expr, expr.args)), axes=tuple(a for a in expr.axes if not self._gone(a)))
        return expr
