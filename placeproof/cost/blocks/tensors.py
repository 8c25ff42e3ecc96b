"""What a block of a model sends, and what it keeps from forward to backward, read off its program over tensors.

A device's values have named dimensions, of which axes split some (:mod:`placeproof.semantics.layouts.lines`). From them:

- each collective with the tensor that it is about, by the convention of :class:`placeproof.core.exchange.Exchange`;
- what lives from forward to backward. Backward begins with the first statement that depends on a gradient that comes in: what a
  `returns` names as `at`. Kept is what was there before and is read from then on: a value that forward made, or an activation among
  the tensors of the header. Each storage counts once. Another name of a value, `elementwise(stop, x)`, and a dimension of positions
  called otherwise by `contract(hot(p), x, over=tokens)` are views of it. What the text computes again in backward is not kept,
  because that statement reads only what it is computed from. A block's own output is kept if its backward reads it; if the next block
  reads it, too, both say so, though there is one storage.

Weights are not kept by a block: they are there anyway. Which tensors are weights follows from dimensions alone: a tensor without one
of :data:`placeproof.programs.POSITIONS` belongs to the model, and so does what is computed from such tensors alone (a gathered
weight, a size).

Amounts are polynomials in the sizes of the dimensions, divided by degrees. They are worked out with whatever numbers are given: whole
numbers, or SymPy's symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from placeproof.core.diagnostics import Diagnostic, InputError
from placeproof.core.exchange import Exchange
from placeproof.core.remembered import remembered
from placeproof.programs import Assign, Program
from placeproof.semantics.layouts.layout import Layout
from placeproof.semantics.layouts.lines import BlockValue, Line, Sent, lines, require_activations

__all__ = ["INDEX_BYTES", "BlockExchange", "Kept", "SizeError", "elements", "exchanges", "kept", "kept_bytes"]

#: A whole number, or a SymPy expression.
Amount: TypeAlias = Any

#: Dimensions that are split, each with the axes that split it, the outermost first.
Splits: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]

#: Bytes of a position (a token id, a target): a 64-bit integer, as in PyTorch.
INDEX_BYTES = 8


class SizeError(InputError, ValueError):
    """A size or a degree that is missing, or sizes of which a degree makes no equal whole parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockExchange:
    """One collective of a block, as one device sees it: ``dims`` and ``split`` are those of the tensor that it is about.

    That is what an all-gather ends with, what a reduce-scatter begins with, the operand of any other. Dimensions are in the order in
    which the header first names them, ``axes`` in the order of the mesh. ``op`` and ``phase`` are those of
    :class:`placeproof.core.exchange.Exchange`; ``line`` counts from 1. ``rounds``: the axis in whose ring it stands, so that it comes once
    for each other device; None for once.
    """

    kind: str
    axes: tuple[str, ...]
    dims: tuple[str, ...]
    split: Splits = ()
    op: str = ""
    phase: str = "forward"
    line: int = 0
    rounds: str | None = None

    def times(self, degrees: Mapping[str, Amount]) -> Amount:
        """How often it comes. Raises SizeError where the degree of its ring is not given."""
        return 1 if self.rounds is None else _given(degrees, self.rounds, "the degree of axis", "degrees") - 1

    def elements(self, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount]) -> Amount:
        """Elements of the tensor on one device. Raises SizeError as :func:`elements` does."""
        return elements(self.dims, self.split, sizes, degrees)

    def exchange(self, sizes: Mapping[str, int], degrees: Mapping[str, int], width: int) -> Exchange:
        """The same in numbers, with ``width`` bytes an element. Raises SizeError as :func:`elements` does."""
        amount = width * self.elements(sizes, degrees)
        return Exchange(kind=self.kind, axes=self.axes, bytes=amount, op=self.op, phase=self.phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A tensor that lives from forward to backward, as one device holds it. ``line``: where it is made, or declared.

    ``picks``: the dimension along which its elements are positions, each of :data:`INDEX_BYTES`; None for numbers.
    """

    name: str
    dims: tuple[str, ...]
    split: Splits = ()
    picks: str | None = None
    line: int = 0

    def elements(self, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount]) -> Amount:
        """Elements on one device. Raises SizeError as :func:`elements` does."""
        return elements(self.dims, self.split, sizes, degrees)

    def bytes(
        self,
        sizes: Mapping[str, Amount],
        degrees: Mapping[str, Amount],
        width: Amount,
        widths: Mapping[str, Amount] | None = None,
    ) -> Amount:
        """Bytes on one device: ``width`` an element, or what ``widths`` has for this value's name. Raises SizeError."""
        own = INDEX_BYTES if self.picks is not None else (widths or {}).get(self.name, width)
        return own * self.elements(sizes, degrees)


@remembered
def exchanges(program: Program) -> tuple[BlockExchange, ...]:
    """Every collective of a block, in the order in which a device enters it. Raises InputError for a program that is no block."""
    require_activations(program)
    return tuple(_exchange(sent, line, program) for line in lines(program) for sent in line.sent)


def _exchange(sent: Sent, line: Line, program: Program) -> BlockExchange:
    call = sent.call
    about = sent.after if call.op == "all_gather" else sent.before
    dims, split = _laid(about, program)
    return BlockExchange(
        kind=call.op,
        axes=tuple(a.name for a in program.axes if a.name in call.axes),
        dims=dims,
        split=split,
        op=call.choice("op") if "reduce" in call.op else "",
        phase="backward" if line.backward else "forward",
        rounds=line.rounds,
        line=call.place.line if call.place else 0,
    )


@remembered
def kept(program: Program) -> tuple[Kept, ...]:
    """What lives from forward to backward, in the order in which it is made. Raises InputError as :func:`exchanges` does."""
    require_activations(program)
    alive: dict[int, BlockValue] = {}
    for line in lines(program):
        if line.backward and _computes(line):
            for value in (v.stored for v in line.reads):
                if value.data and not value.backward:
                    alive.setdefault(id(value), value)
    ordered = sorted(alive.values(), key=lambda v: v.line)
    laid = ((v, *_laid(v.layout, program)) for v in ordered)
    return tuple(Kept(name=v.name, dims=dims, split=split, picks=v.layout.picks, line=v.line) for v, dims, split in laid)


def _computes(line: Line) -> bool:
    """A `returns` that claims no gradient is no step of backward."""
    return isinstance(line.stmt, Assign) or line.stmt.call.option("gradient_of") is not None


def _laid(layout: Layout, program: Program) -> tuple[tuple[str, ...], Splits]:
    """A layout's dimensions, in the order in which the header first names them, and those of them that are split."""
    named = list(dict.fromkeys(d for t in program.tensors for d in (*t.dims, *([t.picks] if t.picks else []))))
    dims = tuple(sorted(layout.dims, key=named.index))
    return dims, tuple((d, layout.split[d]) for d in dims if d in layout.split)


# Amounts.


def elements(dims: Iterable[str], split: Splits, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount]) -> Amount:
    """Elements that one device holds of a tensor: the product of its sizes, those that are split divided by the degrees.

    ``sizes`` are those of the whole dimensions. Raises SizeError where a size or a degree is not given, and where a size that is a
    whole number is not divided by its degree.
    """
    parts = dict(split)
    result: Amount = 1
    for dim in dims:
        size = _given(sizes, dim, "the size of dimension", "sizes")
        for axis in parts.get(dim, ()):
            size = _divided(size, _given(degrees, axis, "the degree of axis", "degrees"), dim, axis)
        result = result * size
    return result


def _given(values: Mapping[str, Amount], name: str, what: str, where: str) -> Amount:
    if name not in values:
        raise _size_error("PP203", f"{what} `{name}` is not given", f"`{where}` needs an entry `{name}`")
    return values[name]


def _divided(size: Amount, degree: Amount, dim: str, axis: str) -> Amount:
    if not (isinstance(size, int) and isinstance(degree, int)):
        return size / degree
    if degree < 1 or size % degree:
        message = f"axis `{axis}` of degree {degree} splits dimension `{dim}` of size {size}, which it does not divide"
        raise _size_error("PP202", message, f"choose a degree that divides `{dim}`")
    return size // degree


def _size_error(code: str, message: str, help: str) -> SizeError:
    return SizeError([Diagnostic(code=code, message=message, help=help)])


def every_degree(program: Program, degrees: Mapping[str, Amount]) -> dict[str, Amount]:
    """The degrees of a program's axes: those that it fixes, and those that are given."""
    return {a.name: a.degree for a in program.axes if a.degree is not None} | dict(degrees)


def kept_bytes(
    program: Program,
    sizes: Mapping[str, Amount],
    degrees: Mapping[str, Amount],
    width: Amount,
    widths: Mapping[str, Amount] | None = None,
) -> Amount:
    """Bytes of what lives from forward to backward on one device.

    ``width``: bytes of an element; ``widths``: of the elements of values by name, where they differ (a statistic in fp32 beside
    activations in bf16). Degrees that the program fixes need not be given. Raises SizeError as :func:`elements` does.
    """
    every = every_degree(program, degrees)
    return sum(k.bytes(sizes, every, width, widths) for k in kept(program))
