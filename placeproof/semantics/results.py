"""The result of each operation, as a value: operation by operation."""

from __future__ import annotations

from dataclasses import replace

from placeproof.collectives import Layout
from placeproof.programs import Call, Program, Ref
from placeproof.semantics.values import Kind, Piece, Value

_NUMBERS = ("statistics", "tensor_norms", "tokens", "square_norm", "sqrt", "clip_factor", "found_inf", "rescale", "random", "min", "max")


def result_of(call: Call, operands: tuple[Value, ...], program: Program) -> Value:
    """What an operation makes of its operands; one without a case here returns its first operand unchanged."""
    first = operands[0] if operands and call.op not in _NUMBERS else Value(kind=Kind.SCALAR)
    match call.op:
        case "all_reduce" | "reduce" | "broadcast" | "all_gather":
            return first.laid(program.factors(*call.axes), Layout.REPLICATE)
        case "reduce_scatter" | "part":
            return first.laid(program.factors(*call.axes), Layout.SHARD)
        case "recv" | "data":
            return plain_stream(program)
        case "forward":
            return _computed(first, operands[1] if len(operands) > 1 else plain_stream(program), program)
        case "backward" | "backward_weight" | "backward_with":
            return _gradient(first, operands[2] if len(operands) > 2 else plain_stream(program), program)
        case "backward_input":
            return _computed(first, operands[2], program)
        case "output":
            return _output(first, program)
        case "update" | "update_with":
            return _update(*operands[:3])
        case "master":
            return replace(first, kind=Kind.PARAMETERS)
        case "quantize" | "cast":
            width = call.args[1]
            return first.wide(width.name if isinstance(width, Ref) else "")
        case "dequantize":
            return first.wide("")
        case "to_host" | "to_device":
            return replace(first, host=call.op == "to_host")
        case "elementwise":
            return operands[-1]
    return first


def plain_stream(program: Program) -> Value:
    """A device's own samples: split over axes that split the batch or the sequence, full copies over the others."""
    split = tuple(f for a in program.axes if a.splits.samples for f in a.factors)
    return Value(kind=Kind.STREAM).laid(split, Layout.SHARD)


def _computed(w: Value, x: Value, program: Program) -> Value:
    """A block's output: a partial sum over axes that split its matrices."""
    split = tuple(a.name for a in program.axes if a.splits.partial and Layout.SHARD in w.on(a.name))
    return replace(x, kind=Kind.STREAM, part=None, index=None).wide("").laid(split, Layout.PARTIAL)


def _gradient(w: Value, dx: Value, program: Program) -> Value:
    """The parameters' gradient: a partial sum over axes whose devices see different samples or parts of a sequence."""
    pieces = tuple(_gradient_piece(piece, dx, program) for piece in w.pieces)
    return Value(kind=Kind.GRADIENTS, pieces=pieces, part=w.part, index=w.index).wide("")


def _gradient_piece(w: Piece, dx: Value, program: Program) -> Piece:
    own = {g.experts for g in program.groups if g.name == w.group}  # a device has its own experts' gradient, whole
    factors = [(axis.splits, f) for axis in program.axes if axis.name not in own for f in axis.factors]
    split = [f for of, f in factors if of.name == "hidden" and Layout.SHARD in dx.on(f) and w.on(f) is not Layout.SHARD]
    return w.laid((*(f for of, f in factors if of.samples), *split), Layout.PARTIAL)


def _output(saved: Value, program: Program) -> Value:
    stream = plain_stream(program)
    for axis in program.axes:
        if axis.splits.name == "hidden":
            stream = stream.laid((axis.name,), saved.on(axis.name)[0])
    return stream


def _update(parameters: Value, optimizer: Value, gradients: Value) -> Value:
    """New parameters, valid where both the optimizer state and the gradient are owned."""
    pieces = tuple(_owned_piece(piece, (optimizer, gradients)) for piece in parameters.pieces)
    return replace(parameters, kind=Kind.PARAMETERS, pieces=pieces, host=optimizer.host).wide("")


def _owned_piece(piece: Piece, owners: tuple[Value, ...]) -> Piece:
    for owner in owners:
        match = next((p for p in owner.pieces if p.group == piece.group), owner.pieces[0])
        piece = piece.laid(match.axes(Layout.SHARD), Layout.SHARD)
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
        pieces.append(piece.laid(tuple(a for p in others for a in p.axes(Layout.PARTIAL)), Layout.PARTIAL))
    return replace(left, pieces=tuple(pieces))


def _saved(w: Value, x: Value, target: Ref, program: Program) -> Value:
    """What forward keeps: split with the computation inside a parallel region, as its input outside one."""
    split = (*x.pieces[0].axes(Layout.SHARD), *(a.name for a in program.axes if a.splits.compute and Layout.SHARD in w.on(a.name)))
    return Value(kind=Kind.SAVED, pieces=(Piece(group=target.group or "").laid(split, Layout.SHARD),), part=w.part)
