"""The result of each operation, as a value: operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from placeproof.collectives import CONVERSIONS, AxisLayout
from placeproof.programs import Call, Program, Ref
from placeproof.semantics.values import Kind, Piece, Value, in_own_width

#: An operation, with the values of its operands, to the value of its result.
Rule: TypeAlias = Callable[[Call, tuple[Value, ...], Program], Value]


def result_of(call: Call, operands: tuple[Value, ...], program: Program) -> Value:
    """What an operation makes of its operands."""
    return RESULTS[call.op](call, operands, program)


def _number(_call: Call, _operands: tuple[Value, ...], _program: Program) -> Value:
    return Value(kind=Kind.SCALAR)


def _unchanged(_call: Call, operands: tuple[Value, ...], _program: Program) -> Value:
    return operands[0] if operands else Value(kind=Kind.SCALAR)


def _laid(layout: AxisLayout) -> Rule:
    return lambda call, operands, program: operands[0].laid(program.factors(*call.axes), layout)


def _forward(_: Call, operands: tuple[Value, ...], program: Program) -> Value:
    return _computed(operands[0], operands[1] if len(operands) > 1 else plain_stream(program), program)


def _backward(_: Call, operands: tuple[Value, ...], program: Program) -> Value:
    return _gradient(operands[0], operands[2] if len(operands) > 2 else plain_stream(program), program)


def _narrowed(call: Call, operands: tuple[Value, ...], _: Program) -> Value:
    width = call.args[1]
    return operands[0].wide(width.name if isinstance(width, Ref) else "")


def plain_stream(program: Program) -> Value:
    """A device's own samples: split over axes that split the batch or the sequence, full copies over the others."""
    split = tuple(f for a in program.axes if a.splits.samples for f in a.factors)
    return Value(kind=Kind.STREAM).laid(split, AxisLayout.SHARD)


def _computed(w: Value, x: Value, program: Program) -> Value:
    """A block's output: a partial sum over axes that split its matrices. Of experts, to whom tokens are sent, a device gets its own."""
    groups = [g for g in program.groups if g.name in {piece.group for piece in w.pieces}]
    sent = set.intersection(*({*g.experts} for g in groups)) if groups else set()
    split = tuple(a.name for a in program.axes if a.splits.partial and a.name not in sent and AxisLayout.SHARD in w.on(a.name))
    return replace(x, kind=Kind.STREAM, part=None, index=None).wide("").laid(split, AxisLayout.PARTIAL)


def _gradient(w: Value, dx: Value, program: Program) -> Value:
    """The gradient of parameters that are trained: a partial sum over axes whose devices see different samples or parts of a sequence."""
    pieces = tuple(_gradient_piece(piece, dx, program) for piece in w.pieces if piece.group in program.trained or not piece.group)
    return Value(kind=Kind.GRADIENTS, pieces=pieces, part=w.part, index=w.index).wide("")


def _gradient_piece(w: Piece, dx: Value, program: Program) -> Piece:
    own = {axis for g in program.groups if g.name == w.group for axis in g.experts}  # a device has its own experts' gradient, whole
    factors = [(axis.splits, f) for axis in program.axes if axis.name not in own for f in axis.factors]
    split = [f for of, f in factors if of.matrices and AxisLayout.SHARD in dx.on(f) and w.on(f) is not AxisLayout.SHARD]
    return w.laid((*(f for of, f in factors if of.samples), *split), AxisLayout.PARTIAL)


def _output(saved: Value, program: Program) -> Value:
    stream = plain_stream(program)
    for axis in program.axes:
        if axis.splits.matrices:
            stream = stream.laid((axis.name,), saved.on(axis.name)[0])
    return stream


def _update(_: Call, operands: tuple[Value, ...], program: Program) -> Value:
    """New parameters, valid where both the optimizer state and the gradient are owned; those that are frozen stay as they are."""
    parameters, *owners = operands[:3]
    frozen = {g.name for g in program.groups if g.frozen}
    pieces = tuple(piece if piece.group in frozen else _owned_piece(piece, tuple(owners)) for piece in parameters.pieces)
    return in_own_width(replace(parameters, kind=Kind.PARAMETERS, pieces=pieces, host=owners[0].host), program)


def _momentum(_call: Call, operands: tuple[Value, ...], _program: Program) -> Value:
    """What is made of state and gradient, where both are owned."""
    optimizer, gradients = operands
    pieces = tuple(_owned_piece(piece, (optimizer,)) for piece in gradients.pieces)
    return replace(gradients, kind=Kind.MOMENTUM, pieces=pieces, host=optimizer.host).wide("")


def _exchanged(call: Call, operands: tuple[Value, ...], program: Program) -> Value:
    """Parts; of states, whole matrices where these are exchanged."""
    whole = program.factors(*call.axes) if call.option("order") == "matrices" else ()
    return replace(operands[0], pieces=tuple(replace(piece, whole=whole) for piece in operands[0].pieces))


def _line_sums(_call: Call, operands: tuple[Value, ...], program: Program) -> Value:
    pieces = tuple(line_sums(piece, program) for piece in operands[0].pieces)
    return replace(operands[0], kind=Kind.SUMS, pieces=pieces).wide("")


def _tensor_norms(_call: Call, operands: tuple[Value, ...], program: Program) -> Value:
    """Numbers of each tensor, which are on the device wherever the states lie."""
    parameters, optimizer, gradients = operands[:3]
    pieces = tuple(line_sums(_owned_piece(piece, (parameters, optimizer)), program) for piece in gradients.pieces)
    return replace(gradients, kind=Kind.NORMS, pieces=pieces, host=False).wide("")


def line_sums(piece: Piece, program: Program) -> Piece:
    """How sums along rows and columns, or over tensors, lie: partial where a device has parts, of its own where it has whole ones."""
    group = next((g for g in program.groups if g.name == piece.group), program.groups[0])
    own = {*program.factors(*group.whole, *group.experts), *(f for a in program.axes if a.splits.stages for f in a.factors)}
    return piece.laid(tuple(f for f in piece.axes(AxisLayout.SHARD) if f not in own), AxisLayout.PARTIAL)


def _owned_piece(piece: Piece, owners: tuple[Value, ...]) -> Piece:
    for owner in owners:
        match = next((p for p in owner.pieces if p.group == piece.group), next(iter(owner.pieces), None))
        if match is not None:  # nothing is owned of what is frozen, which is refused as a kind
            piece = piece.laid(match.axes(AxisLayout.SHARD), AxisLayout.SHARD)
    return piece


def second_of(call: Call, operands: tuple[Value, ...], result: Value, target: Ref, program: Program) -> Value:
    """The value of the second target of an operation with two."""
    match call.op, operands:
        case "forward", (w, *x):
            return _saved(w, x[0] if x else result, target, program)
        case "backward", _:
            return operands[2] if len(operands) > 2 else Value(kind=Kind.STREAM)
        case (("update" | "update_with"), (_, optimizer, *_)):
            return optimizer
    return result


def sum_of(left: Value, right: Value) -> Value:
    """A sum of tensors: partial where one of them is, group by group."""
    if left.kind is Kind.SCALAR:
        return right
    if right.kind is Kind.SCALAR:
        return left
    pieces = []
    for piece in left.pieces:
        others = [p for p in right.pieces if p.group == piece.group] or right.pieces
        pieces.append(piece.laid(tuple(a for p in others for a in p.axes(AxisLayout.PARTIAL)), AxisLayout.PARTIAL))
    return replace(left, pieces=tuple(pieces))


def _saved(w: Value, x: Value, target: Ref, program: Program) -> Value:
    """What forward keeps: split with the computation inside a parallel region, as its input outside one."""
    split = (*x.pieces[0].axes(AxisLayout.SHARD), *(a.name for a in program.axes if a.splits.compute and AxisLayout.SHARD in w.on(a.name)))
    return Value(kind=Kind.SAVED, pieces=(Piece(group=target.group or "").laid(split, AxisLayout.SHARD),), part=w.part)


#: The operations over states and samples; those over tensors alone make nothing of states. What changes a layout on an axis is a row of the
#: table of collectives.
RESULTS: Mapping[str, Rule] = {conversion.op: _laid(conversion.after) for conversion in CONVERSIONS} | {
    **dict.fromkeys(("reduce", "broadcast"), _laid(AxisLayout.REPLICATE)),
    **dict.fromkeys(("recv", "data"), lambda _call, _operands, program: plain_stream(program)),
    **dict.fromkeys(("backward", "backward_weight", "backward_with"), _backward),
    **dict.fromkeys(("update", "update_with"), _update),
    **dict.fromkeys(("quantize", "cast"), _narrowed),
    **dict.fromkeys(("statistics", "tokens", "count", "square_norm", "found_inf"), _number),
    **dict.fromkeys(("sqrt", "clip_factor", "rescale", "random", "min", "max"), _number),
    "all_to_all": _exchanged,
    **dict.fromkeys(("send", "tied_reduce", "start", "wait"), _unchanged),
    **dict.fromkeys(("copy", "loss", "dropout", "scale", "zero", "stale", "free", "orthogonalize"), _unchanged),
    **dict.fromkeys(("shift", "contract", "total", "largest", "hot", "slope", "returns"), _unchanged),
    "forward": _forward,
    "backward_input": lambda _, operands, program: _computed(operands[0], operands[2], program),
    "output": lambda _, operands, program: _output(operands[0], program),
    "momentum": _momentum,
    "line_sums": _line_sums,
    "tensor_norms": _tensor_norms,
    "master": lambda _call, operands, _program: replace(operands[0], kind=Kind.PARAMETERS),
    "dequantize": lambda _call, operands, program: in_own_width(operands[0], program),
    "to_host": lambda _call, operands, _program: replace(operands[0], host=True),
    "to_device": lambda _call, operands, _program: replace(operands[0], host=False),
    "elementwise": lambda _call, operands, _program: operands[-1],
}
