"""What each operation over tensors makes of the layouts of its operands: one table, for block lowering and for what blocks cost.

It says nothing of numbers. What an operation computes is said twice elsewhere, as terms (:mod:`placeproof.semantics.tensors.execute`)
and as arrays (:mod:`placeproof.semantics.tensors.machine`), and both work out for themselves which parts devices have; tests compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from placeproof.collectives import CONVERSIONS, AxisLayout, Conversion
from placeproof.programs import POSITIONS, Call
from placeproof.semantics.layouts.layout import Layout, Source

#: An operation with the layouts of its operands, functions apart, to that of its result.
Rule: TypeAlias = Callable[[Call, Sequence[Layout]], Layout]


class MisfitError(ValueError):
    """Operands that an operation cannot have, in words, and ``help`` for who writes a block on one device."""

    def __init__(self, message: str, help: str = "write the block as one device computes it") -> None:
        super().__init__(message)
        self.help = help


def result(call: Call, operands: Sequence[Layout]) -> Layout:
    """The layout of what an operation gives. ``operands``: without the function of ``elementwise`` and ``slope``.

    Raises MisfitError where the operands do not fit, and for an operation that has no meaning over tensors.
    """
    if call.op not in LAYOUTS:
        raise MisfitError(f"`{call.op}` means nothing in a program over tensors")
    return LAYOUTS[call.op](call, operands)


def arithmetic(a: Layout, b: Layout) -> Layout:
    """The layout of what is computed of two operands element by element, aligned by the names of dimensions.

    Raises MisfitError where one has all of a dimension and the other a part.
    """
    if a.picks is not None or b.picks is not None:
        raise MisfitError("positions are no numbers; `hot(...)` makes numbers of them")
    dims = (*a.dims, *(d for d in b.dims if d not in a.dims))
    split: dict[str, tuple[str, ...]] = {}
    for operand in (a, b):
        for dim in (d for d in operand.dims if d not in operand.loose):
            axes = operand.split.get(dim, ())
            if split.setdefault(dim, axes) != axes:
                raise MisfitError(f"one operand has all of `{dim}` and the other a part of it: their shapes do not fit")
    return Layout(
        dims=dims,
        split={d: axes for d, axes in split.items() if axes},
        partial=a.partial | b.partial,
        loose=frozenset(d for d in dims if all(d in v.loose for v in (a, b) if d in v.dims)),
        dense=a.dense | b.dense,
        sources=a.sources | b.sources,
    )


def renames(hot: Layout, dim: str, value: Layout) -> bool:
    """Whether `contract(hot(p), x, over=dim)` only calls a dimension of positions otherwise: one position for all samples."""
    picked = hot.hot == dim and dim in POSITIONS and len(hot.dims) == 2
    return picked and set(hot.dims) & set(value.dims) == {dim} and dim not in value.split


# On the device.


def _each(_: Call, operands: Sequence[Layout]) -> Layout:
    """Element by element, or the same elements in another buffer or on another device."""
    value = operands[0]
    return value if value.hot is None else replace(value, hot=None)


def _two(_: Call, operands: Sequence[Layout]) -> Layout:
    return arithmetic(operands[0], operands[1])


def _total(call: Call, operands: Sequence[Layout]) -> Layout:
    """A sum over what is split is a partial sum. A sum over positions has something wherever one of them picks something."""
    (value,), dim = operands, call.option("over")
    everywhere = value.loose if dim in POSITIONS else frozenset()
    partial = value.partial | frozenset(value.split.get(dim or "", ()))
    return _largest(call, [replace(value, partial=partial, dense=value.dense | everywhere)])


def _largest(call: Call, operands: Sequence[Layout]) -> Layout:
    """Without one dimension."""
    (value,), dim = operands, call.option("over") or ""
    if dim not in value.dims:
        raise MisfitError(f"there is no dimension `{dim}` to reduce", "name one that the operand has: " + ", ".join(value.dims))
    dims = tuple(d for d in value.dims if d != dim)
    split = {d: axes for d, axes in value.split.items() if d != dim}
    return replace(value, dims=dims, split=split, loose=value.loose - {dim}, dense=value.dense - {dim}, hot=None)


def _contract(call: Call, operands: Sequence[Layout]) -> Layout:
    (a, b), dim = operands, call.option("over") or ""
    if dim not in a.dims or dim not in b.dims:
        raise MisfitError(f"`contract` sums over a dimension of both operands, and `{dim}` is not", "name one that both have")
    called_otherwise = next((old for new, old in ((a, b), (b, a)) if renames(new, dim, old)), None)
    hot = called_otherwise.hot if called_otherwise is not None else None
    return replace(_total(call, [arithmetic(a, b)]), hot=hot)


def _hot(_: Call, operands: Sequence[Layout]) -> Layout:
    (positions,) = operands
    along = positions.picks
    if along is None:
        raise MisfitError("`hot` takes positions: a tensor that is declared with `picks=`")
    sources = positions.sources | {Source.POSITIONS}
    return replace(positions, dims=(*positions.dims, along), loose=frozenset({along}), picks=None, hot=along, sources=sources)


# Between devices.


def _moved(call: Call, operands: Sequence[Layout]) -> Layout:
    """What one device has, or a reduction that leaves summands: the same elements."""
    (value,) = operands
    for dim, axes in value.split.items():
        if apart := [a for a in call.axes if a in axes]:
            raise MisfitError(f"`{call.op}` over `{apart[0]}` of parts: each device has other elements along `{dim}`")
    return _each(call, operands)


def _summed(call: Call, operands: Sequence[Layout]) -> Layout:
    """A reduction everywhere. The greatest summand is no sum."""
    value = _moved(call, operands)
    return value if call.choice("op") == "max" else replace(value, partial=value.partial - frozenset(call.axes))


def _part(call: Call, operands: Sequence[Layout]) -> Layout:
    (value,), split = operands, dict(operands[0].split)
    if not call.cuts or any(dim not in value.dims or axis in split.get(dim, ()) for axis, dim in call.cuts):
        raise MisfitError(f"`{call.op}` needs `dim=`, a dimension of its operand that is not split over its axes")
    for axis, dim in call.cuts:
        split[dim] = (*split.get(dim, ()), axis)
    return replace(value, split=split, loose=value.loose - {dim for _, dim in call.cuts}, hot=None)


def _gathered(call: Call, operands: Sequence[Layout]) -> Layout:
    (value,) = operands
    split = dict(value.split)
    for axis in reversed(call.axes):
        dims = [d for d, axes in split.items() if axes[-1:] == (axis,)]
        if len(dims) != 1:
            raise MisfitError(f"`{call.op}` over `{axis}` of what is not split over it (last)")
        split[dims[0]] = split[dims[0]][:-1]
    return replace(value, split={d: axes for d, axes in split.items() if axes}, hot=None)


def _swapped(call: Call, operands: Sequence[Layout]) -> Layout:
    """Whole along the dimensions that the axes split, and split along others."""
    (value,) = operands
    if not call.cuts or any(dim not in value.dims or axis in value.split.get(dim, ()) for axis, dim in call.cuts):
        raise MisfitError("`all_to_all` needs `dim=`, a dimension of its operand that is not split over its axis")
    return _part(call, [_gathered(call, operands)])


_LEAVES: Mapping[AxisLayout, Rule] = {AxisLayout.PARTIAL: _summed, AxisLayout.SHARD: _gathered, AxisLayout.REPLICATE: _each}


def _converted(conversion: Conversion) -> Rule:
    """A conversion of the table of collectives: over each of the axes from one layout to another."""
    leaves = _LEAVES[conversion.before]
    return leaves if conversion.after is not AxisLayout.SHARD else lambda call, operands: _part(call, [leaves(call, operands)])


#: The operations over tensors.
LAYOUTS: Mapping[str, Rule] = {conversion.op: _converted(conversion) for conversion in CONVERSIONS} | {
    "all_to_all": _swapped,
    "broadcast": _moved,
    "reduce": _moved,
    "shift": _each,
    "contract": _contract,
    "total": _total,
    "largest": _largest,
    "hot": _hot,
    "elementwise": _each,
    "slope": _each,
    "copy": _each,
    "scale": _two,
    "max": _two,
    "dropout": _two,
    "random": lambda _call, _operands: Layout(),
}

_STATEMENT = "a statement, which gives nothing"
_STEP = "of states and of samples, whose dimensions have no names"
_STAGES = "between the stages of a pipeline; a block lies within one"
_STORAGE = "of widths and places of storage; elements over tensors are numbers"
_FLAGS = "of numbers and flags that a step computes of its states"
#: Operation -> why it has no meaning over tensors.
NO_LAYOUT: Mapping[str, str] = {
    **dict.fromkeys(("free", "returns", "zero"), _STATEMENT),
    **dict.fromkeys(("send", "recv", "tied_reduce"), _STAGES),
    **dict.fromkeys(("cast", "quantize", "dequantize", "to_host", "to_device"), _STORAGE),
    **dict.fromkeys(("start", "wait"), "of buffers in flight; a block's collectives are done where they stand"),
    **dict.fromkeys(("data", "forward", "loss", "backward", "backward_input", "backward_weight", "output"), _STEP),
    **dict.fromkeys(
        (
            *("update", "update_with", "tensor_norms", "line_sums", "momentum", "orthogonalize"),
            *("statistics", "backward_with", "master", "stale"),
        ),
        _STEP,
    ),
    **dict.fromkeys(("tokens", "count", "square_norm", "min", "sqrt", "clip_factor", "found_inf", "rescale"), _FLAGS),
}
