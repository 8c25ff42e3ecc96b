"""How micro-batches flow through the stages: what a schedule's closed forms say, as expressions of a step program.

The order of micro-batches changes nothing in what is trained, so that a schedule decides two numbers of the program alone: of how many
micro-batches the first device keeps activations, and how often a micro-batch is handed on between devices.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce

from placeproof.core.diagnostics import Diagnostic, InputError
from placeproof.core.mesh import SPLITS, Axis, axis_order
from placeproof.core.strategy import Strategy
from placeproof.programs import Binary, Expr, Number
from placeproof.schedules import Schedule, form, is_own, kept_at_most, messages, slots
from placeproof.semantics.lower.write import call, num, ref
from placeproof.semantics.scheduled import Numbers, chunks_of, name_of, numbers_of, schedule_of

_OPS: Mapping[type[ast.operator], tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: ("+", lambda a, b: a + b),
    ast.Sub: ("-", lambda a, b: a - b),
    ast.Mult: ("*", lambda a, b: a * b),
    ast.Div: ("/", lambda a, b: a / b),
}


def flow(strategy: Strategy, stages: str) -> tuple[Expr, Expr | None]:
    """How the micro-batches of a strategy that was found usable (:func:`placeproof.semantics.scheduled.problems`) flow along an axis.

    First, micro-batches of which the first device keeps the activations of all its layers, or as much in those of some. Of schedules that
    put gradients of weights off, activations count in full until those are computed. Second, how often a micro-batch is handed on to
    another device, and its gradient back; None where that is once for each neighbour. All closed forms of messages are proportional to the
    micro-batches. Raises InputError (PP122) where a closed form cannot be said in a step program.
    """
    at = numbers_of(strategy)
    if at is not None and is_own(name_of(strategy)):
        return _by_order(schedule_of(strategy), at)
    try:
        return _by_forms(strategy, stages)
    except InputError:
        if at is None:
            raise
        return _by_order(schedule_of(strategy), at)


def _by_order(schedule: Schedule, at: Numbers) -> tuple[Expr, Expr | None]:
    """The two numbers as the order gives them, for numbers of devices and micro-batches."""
    kept = kept_at_most(slots(schedule, at.devices, at.batches, at.chunks)[0])
    sent = Fraction(messages(schedule, p=at.devices, m=at.batches, v=at.chunks), 2 * at.batches)
    return Number(value=kept / at.chunks), None if at.chunks == schedule.copies else Number(value=sent)


def _by_forms(strategy: Strategy, stages: str) -> tuple[Expr, Expr | None]:
    """The two numbers by closed forms."""
    schedule, chunks = schedule_of(strategy), chunks_of(strategy)

    def closed(what: str, known: Mapping[str, Expr]) -> Expr:
        closed_form = form(schedule, what)
        if closed_form is None:
            help = f"say the numbers, `pp(4, microbatches=8, schedule={name_of(strategy)})`"
            help += f", or add a form of its {what} to the file" if is_own(name_of(strategy)) else ""
            raise InputError([replace(_cannot(schedule, f"no closed form of its {what} is known"), help=help)])
        return said(closed_form.form.tree, {"p": ref(stages), "v": num(chunks), **known}, schedule)

    peak = closed("peak", {"d": num(0), "M_B": num(1), "M_W": num(1), "m": ref("microbatches")})
    in_flight = _over(peak, Fraction(1, chunks))  # a device's layers are so many chunks
    if chunks == schedule.copies:  # each copy is a pipeline of its own, with one chunk on a device
        return in_flight, None
    return in_flight, _over(closed("messages", {"m": num(1)}), Fraction(1, 2))


def one_copy_each(strategy: Strategy) -> Strategy:
    """A strategy whose schedule holds the model twice as two pipelines, each with one copy and half of the micro-batches.

    A device then stands for two: one for each copy, with samples of its own. They are told apart along an axis of two, which splits the
    batch, so that gradients are added up along it; that two of its devices are one machine changes nothing in what is trained. The
    schedule's micro-batches are those of both copies, a program's those of one.
    """
    stages = next((a for a in strategy.axes if a.splits.stages), None)
    copies = 1 if stages is None else schedule_of(strategy).copies
    if stages is None or copies == 1:
        return strategy
    copy = Axis(name=f"{stages.name}_copy", splits=SPLITS["batch"], degree=copies)
    count = strategy.schedule.microbatches
    schedule = replace(strategy.schedule, microbatches=count // copies if isinstance(count, int) else count)
    return replace(strategy, axes=tuple(sorted((*strategy.axes, copy), key=axis_order)), schedule=schedule)


def _cannot(schedule: Schedule, why: str) -> Diagnostic:
    message = f"the schedule `{schedule.name}` cannot be written as a step program: {why}"
    help = f"say the numbers, `pp(4, microbatches=8, schedule={schedule.name})`, or derive it for a model, `--model`"
    return Diagnostic(code="PP122", message=message, help=help)


def said(tree: ast.expr, known: Mapping[str, Expr], schedule: Schedule) -> Expr:
    """An expression of a schedule's file as one of a step program, which has no division that rounds down. Raises InputError (PP122)."""
    match tree:
        case ast.Constant(value=int() as value):
            return num(value)
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.UnaryOp(operand=one):
            return _joined(ast.Mult, num(-1), said(one, known, schedule))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPS:
            return _joined(type(op), said(left, known, schedule), said(right, known, schedule))
        case ast.Call(func=ast.Name(id=extreme), args=parts):
            return _extreme(extreme, [said(part, known, schedule) for part in parts])
    raise InputError([_cannot(schedule, f"it has no `{ast.unparse(tree)}`")])


def _joined(op: type[ast.operator], left: Expr, right: Expr) -> Expr:
    """Two expressions joined, with what is plainly 0 or 1 left out."""
    sign, meaning = _OPS[op]
    a, b = _number(left), _number(right)
    if a is not None and b is not None:
        return Number(value=meaning(a, b))
    if (sign in "+-" and b == 0) or (sign in "*/" and b == 1):
        return left
    if (sign == "+" and a == 0) or (sign == "*" and a == 1):
        return right
    if (sign == "*" and 0 in (a, b)) or (sign == "-" and left == right):
        return num(0)
    if sign == "*" and b is not None:
        left, right = right, left
    return Binary(op=sign, left=left, right=right)


def _extreme(name: str, parts: list[Expr]) -> Expr:
    """The least or the greatest; micro-batches stand first, as in 1F1B's `min(microbatches, pp)`."""
    ordered = sorted(dict.fromkeys(parts), key=lambda e: e != ref("microbatches"))
    return reduce(lambda first, second: call(name, first, second), ordered)


def _over(expr: Expr, share: Fraction) -> Expr:
    """An expression times a number, which goes into a product where it divides the number that is there."""
    match expr:
        case Number(value=value):
            return Number(value=value * share)
        case Binary(op="*", left=left, right=right):
            for one, other in ((left, right), (right, left)):
                inner = _number(one)
                if inner is not None and (inner * share).denominator == 1:
                    return _joined(ast.Mult, Number(value=inner * share), other)
            if isinstance(left, Binary):
                return _joined(ast.Mult, _over(left, share), right)
    return _joined(ast.Div, _joined(ast.Mult, num(share.numerator), expr), num(share.denominator))


def _number(expr: Expr) -> Fraction | None:
    return expr.value if isinstance(expr, Number) else None
