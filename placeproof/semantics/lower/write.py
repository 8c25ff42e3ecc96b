"""Short names for writing programs in code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import reduce

from placeproof.programs import FIRST_UNIT, Assign, Binary, Call, Do, Expr, For, If, Index, Number, Ref, Stmt


def num(value: int) -> Number:
    """An integer."""
    return Number(value=Fraction(value))


def ref(name: str, group: str | None = None, index: str | None = None, offset: int = 0) -> Ref:
    """A buffer, or the part of it that a loop variable names, or the first unit's (:data:`FIRST_UNIT`)."""
    if index == FIRST_UNIT:
        return Ref(name=name, group=group, index=Index(var=None))
    return Ref(name=name, group=group, index=Index(var=index, offset=offset) if index is not None else None)


def end(name: str, offset: int) -> Ref:
    """The first (0) or last (-1) part of a buffer."""
    return Ref(name=name, index=Index(var=None, offset=offset))


def of(source: Expr, group: str | None) -> Expr:
    """The elements of one group of a buffer, or the whole of it (None)."""
    return replace(source, group=group) if group is not None and isinstance(source, Ref) else source


def call(op: str, *args: Expr, axes: Iterable[str] = (), **options: str) -> Call:
    """An operation."""
    return Call(op=op, args=args, axes=tuple(axes), options=tuple(sorted(options.items())))


def let(target: Ref | tuple[Ref, ...], value: Expr, *, add: bool = False) -> Assign:
    """``target = value`` or ``target += value``."""
    return Assign(targets=target if isinstance(target, tuple) else (target,), value=value, accumulate=add)


def do(op: str, *args: Expr, axes: Iterable[str] = (), **options: str) -> Do:
    """An operation for its effect."""
    return Do(call=call(op, *args, axes=axes, **options))


def infix(op: str, *operands: Expr) -> Expr:
    """``first op second op ...``, from the left."""
    return reduce(lambda left, right: Binary(op=op, left=left, right=right), operands)


def loop(var: str, domain: str, body: Iterable[Stmt], *, within: str | None = None, reverse: bool = False, start: int = 0) -> For:
    """A loop over parts of the model."""
    return For(var=var, domain=domain, body=tuple(body), within=within, reverse=reverse, start=start)


def branch(axis: str, op: str, bound: Expr, then: Iterable[Stmt], orelse: Iterable[Stmt] = ()) -> If:
    """A branch on the rank along an axis."""
    return If(axis=axis, op=op, bound=bound, then=tuple(then), orelse=tuple(orelse))
