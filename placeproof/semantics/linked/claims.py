"""What a block claims of the gradients of its weights: over which axes they are sums of what each device finds.

A lowered block adds them up itself: ``returns(all_reduce(g, tp), by=gain)`` is what is proved of it. In a linked program the step does
that, once, with what data parallelism leaves to add up: there the claim is ``returns(g, by=gain, partial="tp")``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from placeproof.models.programs import weights
from placeproof.programs import Call, Do, Expr, Program, Stmt


def left_partial(program: Program) -> Program:
    """The program with the sums of gradients of its weights taken last, as its claims read in a linked program."""

    def last(call: Call) -> Call:
        inner, axes = _without_sum(call.args[0])
        return replace(call, args=(Call(op="all_reduce", args=(inner,), axes=axes),)) if axes else call

    return _changed(program, last)


def partial(program: Program) -> dict[str, tuple[str, ...]]:
    """Weights of a block -> the axes over which its gradient is the sum of what devices find."""
    return {call.option("by") or "": _without_sum(call.args[0])[1] for call in _claims(program)}


def without_sums(program: Program) -> Program:
    """The program as its claims are printed: ``partial="tp"`` instead of a sum."""

    def printed(call: Call) -> Call:
        inner, axes = _without_sum(call.args[0])
        return replace(call, args=(inner,), options=tuple(sorted((*call.options, ("partial", " ".join(axes)))))) if axes else call

    return _changed(program, printed)


def with_sums(program: Program) -> Program:
    """The same the other way round."""

    def summed(call: Call) -> Call:
        axes = (call.option("partial") or "").split()
        options = tuple(o for o in call.options if o[0] != "partial")
        return replace(call, args=(Call(op="all_reduce", args=call.args, axes=tuple(axes)),), options=options) if axes else call

    return _changed(program, summed)


def own_sums(program: Program) -> Iterator[Call]:
    """Claims of a text as it is written that end with a sum over devices, which is the step's to take."""
    return (call for call in _claims(program) if _without_sum(call.args[0])[1])


def _claims(program: Program) -> Iterator[Call]:
    own = {w.name for w in weights(program)}
    for stmt in program.body:
        if isinstance(stmt, Do) and stmt.call.op == "returns" and stmt.call.option("by") in own:
            yield stmt.call


def _changed(program: Program, change: Callable[[Call], Call]) -> Program:
    claims = {id(call) for call in _claims(program)}

    def one(stmt: Stmt) -> Stmt:
        return replace(stmt, call=change(stmt.call)) if isinstance(stmt, Do) and id(stmt.call) in claims else stmt

    return replace(program, body=tuple(map(one, program.body)))


def _without_sum(expr: Expr) -> tuple[Expr, tuple[str, ...]]:
    """An expression without the sum over devices that is taken last, or last but for a part of it; and its axes."""
    match expr:
        case Call(op="all_reduce", args=(inner,), axes=axes) if expr.choice("op") == "sum":
            return inner, axes
        case Call(op="part", args=(first,)):
            inner, axes = _without_sum(first)
            return replace(expr, args=(inner,)), axes
    return expr, ()
