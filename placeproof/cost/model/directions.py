"""What an update of whole matrices computes on a device: of each matrix that it has, or gathers, the iterations that make its direction, or
what preconditions it.

Which matrices these are, and how much of each a device has, is read off the step; their shapes off the products of forward. A matrix has as
many rows as its shorter side has elements: what is longer is transposed (Jordan et al. 2024, "Muon"). Element-wise operations are not
counted, nor is what is computed on a host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from placeproof.collectives import AxisLayout
from placeproof.core.diagnostics import refuse
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.flops import flops
from placeproof.cost.blocks.layer import Stored
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.derive import evaluate
from placeproof.cost.model.parts import DeviceSegment, Sizing
from placeproof.cost.model.stages import Stage
from placeproof.cost.model.step import StepCosts
from placeproof.models.family import apart
from placeproof.models.programs import factors, update_program
from placeproof.programs import Group
from placeproof.semantics.values import Event

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A weight as a matrix. ``beside``: dimensions along which several lie beside one another; ``inner``: those that it has in common with
    what it multiplies, which are one side of it; None of a gain or a bias, which is a vector."""

    weight: Stored
    beside: frozenset[str]
    inner: frozenset[str] | None

    def sides(self, sizes: Mapping[str, Amount]) -> tuple[sympy.Expr, ...]:
        """How long its two sides are, or its one, of dimensions of these sizes."""
        import sympy

        dims = [dim for dim in self.weight.dims if dim not in self.beside]
        if self.inner is None:
            return (sympy.Mul(*(sizes[dim] for dim in dims)),)
        return tuple(sympy.Mul(*(sizes[dim] for dim in dims if (dim in self.inner) is own)) for own in (True, False))


def matrices(part: DeviceSegment) -> Iterator[Matrix]:
    """The weights of a part of a device, each as a matrix, or a vector; a table has its first dimension for one side."""
    inner, factors_of = part.plain.products(), [factors(block.program) for block in part.blocks]
    for group, weight in part.weights:
        table = frozenset(weight.dims[:1]) if weight.name in factors_of[weight.number - 1] else None
        yield Matrix(weight=weight, beside=apart(group), inner=inner.get((weight.number, weight.name), table))


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """A group of whose matrices a step makes directions. ``split``: the factors of axes along which a device has parts of it then;
    ``whole``: those along which parts are whole matrices, ``exchanged`` those of them over which matrices were exchanged to be so.
    ``event``: where it does."""

    group: Group
    split: tuple[str, ...]
    whole: tuple[str, ...]
    exchanged: tuple[str, ...]
    event: Event


def iterated(stage: Stage, step: StepCosts, at: Sizing) -> sympy.Expr:
    """Floating-point operations of a step on a device of a stage. Raises InputError where directions are made of parts of matrices, in a
    branch, or more than once a step."""
    import sympy

    by_group: dict[str, list[Direction]] = {}
    for direction in _directions(step):
        by_group.setdefault(direction.group.name, []).append(direction)
    total: Amount = sympy.Integer(0)
    seen: set[str] = set()  # what several parts share is one tensor
    for part, times in stage.held if by_group else ():
        every = [matrix for matrix in matrices(part) if matrix.weight.name not in seen]
        seen |= {*part.shared} & {matrix.weight.name for matrix in every}
        for matrix in every:
            for direction in by_group.get(step.linked.group(matrix.weight.block, matrix.weight.name), ()):
                total += stage.copies * times * _of(matrix, direction, step, at)
    return total


def _directions(step: StepCosts) -> Iterator[Direction]:
    program = step.found.program
    if dict(program.reference).get("optimizer") not in _WORK:
        return
    groups = {g.name: g for g in program.groups}
    stages = {a.name for a in program.axes if a.splits.stages}  # a device's own layers are counted
    for event in step.found.events:
        if event.call.op not in ("orthogonalize", "update"):
            continue
        value = event.operands[0 if event.call.op == "orthogonalize" else 1]
        pieces = [(groups[p.group or program.groups[0].name], p) for p in value.pieces if not value.host]
        pieces = [(group, piece) for group, piece in pieces if group.update is None and not group.frozen]
        if pieces and (event.branches or any(loop.domain == "microbatches" for loop in event.loops)):
            text = "what is computed of directions that are made in a branch, or for each micro-batch, is not derived"
            refuse("PP311", text, place=event.stmt.place, help="update once a step, on every device")
        for group, piece in pieces:
            whole = (*program.factors(*group.whole), *piece.whole)
            split = tuple(a for a in piece.axes(AxisLayout.SHARD) if a not in stages)
            yield Direction(group=group, split=split, whole=whole, exchanged=piece.whole, event=event)


def _of(matrix: Matrix, direction: Direction, step: StepCosts, at: Sizing) -> Amount:
    """Of the matrices that are one weight of a block."""
    import sympy

    dims, splits = matrix.weight.dims, dict(matrix.weight.split)
    sizes = {dim: sympy.sympify(at.sizes[dim]) for dim in dims}
    for dim, axes in splits.items():
        taken = axes if dim in matrix.beside else tuple(a for a in axes if a in direction.split and a not in direction.exchanged)
        sizes[dim] = sizes[dim] / step.amounts.devices(taken)
    parts = tuple(a for a in direction.split if a in direction.exchanged or not any(a in axes for axes in splits.values()))
    for axis in (a for a in parts if a not in direction.whole):
        text = f"what is computed of parts of matrices over `{axis}` is not derived: an update makes directions of whole ones"
        refuse("PP311", text, place=direction.event.stmt.place, help="gather them first: `all_gather(momentum(...), ...)`")

    number = sympy.Mul(*(sizes[dim] for dim in dims if dim in matrix.beside)) / step.amounts.devices(parts)
    work = _WORK[dict(step.found.program.reference)["optimizer"]]
    return number * work(*_ordered(matrix.sides(sizes), step.linked.values))


def blocked(*sides: sympy.Expr) -> tuple[sympy.Expr, ...]:
    """The sides of the blocks into which Shampoo cuts a matrix, or a vector, whose sides they are taken to divide."""
    import sympy

    return tuple(sympy.Min(side, symbol("d_pre")) for side in sides)


def _ordered(sides: tuple[sympy.Expr, ...], values: Mapping[str, int]) -> tuple[sympy.Expr, ...]:
    """The shorter side of a matrix and the longer one, as far as sizes are known."""
    import sympy

    if len(sides) == 1:
        return sides
    one, other = sides
    ratio = evaluate(one / other, {name: Fraction(n) for name, n in values.items()})
    if ratio is None:
        return sympy.Min(one, other), sympy.Max(one, other)
    return (one, other) if ratio <= 1 else (other, one)


def _preconditioned(*sides: sympy.Expr) -> Amount:
    """Of one matrix, or vector, under Shampoo: for each side of a block a product that its preconditioner is made of, one with the inverse
    root, and a share of this root."""
    import sympy

    block = blocked(*sides)
    roots = 2 * symbol("n_root") * sum(side**3 for side in block) / sympy.Mul(*block) / symbol("T_root")
    return sympy.Mul(*sides) * (4 * sum(block) + roots)


def _directed(rows: sympy.Expr, columns: sympy.Expr) -> Amount:
    """Of the direction of one matrix."""
    return symbol("n_ns") * _iteration(rows, columns)


def _iteration(rows: sympy.Expr, columns: sympy.Expr) -> Amount:
    """Of one iteration of one matrix."""
    program = update_program("newton_schulz")
    sizes = {dim: columns if dim == "columns" else rows for t in program.tensors for dim in (*t.dims, *([t.picks] if t.picks else []))}
    return flops(program, sizes, {a.name: 1 for a in program.axes}).forward


#: What an update of whole matrices computes of one, by what a program's reference says of the optimizer.
_WORK = {"orthogonal": _directed, "preconditioned": _preconditioned}
