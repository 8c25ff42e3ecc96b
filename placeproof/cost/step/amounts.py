"""Bytes of values, as SymPy expressions over the symbols of :mod:`placeproof.core.symbols`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.collectives import AxisLayout
from placeproof.core.diagnostics import refuse
from placeproof.core.mesh import degree_symbol
from placeproof.core.states import OPTIMIZER
from placeproof.core.strategy import INNER, OUTER
from placeproof.core.symbols import symbol
from placeproof.cost.step.parts import Count, Parts
from placeproof.cost.step.ranks import count, count_between, ranks
from placeproof.cost.uneven import fraction
from placeproof.programs import Binary, Call, Expr, For, If, Index, Number, Program, Ref, statements
from placeproof.programs.ops import COMPARE
from placeproof.programs.ranks import least_degrees, rank_bound
from placeproof.semantics.results import line_sums
from placeproof.semantics.values import Kind, Piece, Value

if TYPE_CHECKING:
    import sympy


#: The most ranks that are looked at one by one.
MOST_LOOKED_AT = 100_000
_UNITS = Count((((0, 1, 0), 1),))


@dataclass(frozen=True, slots=True, kw_only=True)
class OfMatrices:
    """What an optimizer keeps of whole matrices: ``ratio`` numbers for each of their elements, of ``moment`` bytes each, and ``width``
    bytes of the element itself. ``alone``: of what is no matrix, such a number of each element."""

    width: str
    moment: str
    ratio: str
    alone: bool


#: By what a program's reference says of the optimizer.
_OF_MATRICES = {
    "factored": OfMatrices(width="b_master", moment="b_nu", ratio="rho", alone=True),
    "preconditioned": OfMatrices(width="b_omega", moment="b_pre", ratio="sigma", alone=False),
}


@dataclass(frozen=True)
class Amounts:
    """Sizes of a program's values. ``groups``: count norms and biases apart (``P_norm``) instead of taking them as 0.

    ``uneven``: axes along which a device has its own fraction of what lies in parts (:mod:`placeproof.cost.uneven`). ``inside``: axes
    over which the sizes of groups are shared out already: they are those of one device there. Momentum that is gathered over them is more.
    """

    program: Program
    groups: bool = False
    uneven: tuple[str, ...] = ()
    inside: frozenset[str] = frozenset()

    @cached_property
    def one(self) -> sympy.Expr:
        """The number 1."""
        import sympy

        return sympy.Integer(1)

    def degree(self, name: str) -> sympy.Expr:
        """Devices along an axis, or along one factor of a split axis."""
        import sympy

        axis = self.program.axis(name)
        if axis is None:
            raise KeyError(name)
        whole = symbol(degree_symbol(axis.name, only=len(self.program.axes) == 1)) if axis.degree is None else sympy.Integer(axis.degree)
        if axis.inner is None or name == axis.name:
            return whole
        inner = sympy.Integer(axis.inner) if isinstance(axis.inner, int) else symbol(axis.inner)
        return inner if name == axis.inner_name else whole / inner

    def devices(self, axes: tuple[str, ...]) -> sympy.Expr:
        """Devices in a group over some axes."""
        product = self.one
        for name in axes:
            product = product * self.degree(name)
        return product

    def part(self, whole: sympy.Expr, split: tuple[str, ...]) -> sympy.Expr:
        """What one device has of a model state that is split over some axes."""
        for name in split:
            if name in self.uneven:
                whole = whole * fraction(name)
        return whole / self.devices(tuple(a for a in split if a not in self.uneven))

    def count(self, domain: str) -> sympy.Expr:
        """Iterations of a loop on one device."""
        import sympy

        fixed = self.program.count(domain)
        if fixed is not None:
            return sympy.Integer(fixed)
        if domain == "microbatches":
            return symbol("m") if self.has_microbatches else self.one
        if domain == "units":
            return symbol("n_u")
        layers = symbol("L") / self.devices(self._layer_axes)
        return layers if domain == "layers" else 2 * layers

    @cached_property
    def has_microbatches(self) -> bool:
        """Whether the step walks over micro-batches."""
        return any(isinstance(s, For) and s.domain == "microbatches" for s in statements(self.program.body))

    @cached_property
    def _layer_axes(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.program.axes if a.splits.stages)

    @cached_property
    def _batch_factors(self) -> frozenset[str]:
        return frozenset(f for a in self.program.axes if a.splits.batch for f in a.factors)

    def scalar(self, expr: Expr) -> sympy.Expr:
        """A scalar expression of the program: numbers, degrees, counts, symbols."""
        import sympy

        match expr:
            case Number(value=value):
                return sympy.Rational(value.numerator, value.denominator)
            case Ref(name=name):
                if name == "P_norm" and not self.groups:
                    return sympy.Integer(0)
                if self.program.axis(name) is not None:
                    return self.degree(name)
                return self.count(name) if name in ("microbatches", "units", "layers", "blocks") else symbol(name)
            case Binary():
                return self._arithmetic(expr)
            case Call(op="min", args=(a, b)):
                return sympy.Min(self.scalar(a), self.scalar(b))
            case Call(op="max", args=(a, b)):
                return sympy.Max(self.scalar(a), self.scalar(b))
        raise ValueError("not a scalar of the program's symbols")

    def _arithmetic(self, expr: Binary) -> sympy.Expr:
        left, right = self.scalar(expr.left), self.scalar(expr.right)
        match expr.op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                return left / right
        return left**right

    # Elements.

    def bytes(self, value: Value, *, mean: bool = False) -> sympy.Expr:
        """Bytes of a value on one device (for the part that it is): the most of all stages, or their ``mean``."""
        totals: dict[str, sympy.Expr] = {}
        for piece in value.pieces:
            for width, elements in self._numbers(value, piece, mean):
                totals[width] = totals.get(width, self.one * 0) + elements
        return sum((symbol(width) * total for width, total in totals.items()), self.one * 0)

    def _numbers(self, value: Value, piece: Piece, mean: bool) -> Iterator[tuple[str, sympy.Expr]]:
        """Numbers of a piece with their widths. Of optimizer state that has something of whole matrices: what it has of each element, and
        for that of each matrix which is there."""
        width, elements = value.width(piece), self._elements(value, piece, mean)
        own = _OF_MATRICES.get(dict(self.program.reference).get("optimizer", "")) if value.kind is Kind.OPTIMIZER else None
        if own is None:
            yield width, elements
            return
        yield own.width, elements
        group = next((g for g in self.program.groups if g.name == piece.group), self.program.groups[0])
        if group.update is None:
            sums = line_sums(piece, self.program)
            yield own.moment, symbol(own.ratio) * self._elements(replace(value, pieces=(sums,)), sums, mean)
        elif own.alone:
            yield own.moment, elements

    def payload(self, value: Value, axes: tuple[str, ...]) -> sympy.Expr:
        """Bytes of the tensor that a collective over these axis factors works on: not split over them."""
        return self.bytes(replace(value, pieces=tuple(p.laid(axes, AxisLayout.REPLICATE) for p in value.pieces)), mean=True)

    def _elements(self, value: Value, piece: Piece, mean: bool) -> sympy.Expr:
        split = piece.axes(AxisLayout.SHARD)
        if value.kind is Kind.SCALAR:
            return self.one
        if value.kind is Kind.STREAM:
            return self._stream / self.devices(tuple(a for a in split if a not in self._batch_factors | set(self._layer_axes)))
        if value.kind is Kind.SAVED:
            return self._saved(value, piece) / self.devices(tuple(a for a in split if a not in self._batch_factors | set(self._layer_axes)))
        whole, split = self._group(piece.group), tuple(a for a in split if a not in self.inside)
        if value.kind is Kind.SUMS:
            whole = whole * symbol("rho")
        if value.kind is Kind.NORMS:  # of the parameters of each tensor, and of what the update makes of it
            whole = whole * 2 * symbol("tau")
        if value.kind is Kind.MOMENTUM:
            whole = whole * self.devices(tuple(a for a in self._state_inside(piece.group) if piece.on(a) is AxisLayout.REPLICATE))
        tied = next((g.tied for g in self.program.groups if g.name == piece.group and g.tied in split), None)
        if tied is not None:  # the first and the last stage have it whole
            split = tuple(a for a in split if a != tied)
            whole = whole * self._ends(tied) if mean else whole
        return self.part(self._part(whole, value), self._without_layers(split, value.part))

    def _state_inside(self, group: str) -> tuple[str, ...]:
        """The axes over which a group's size is shared out already and its optimizer state lies in parts."""
        placed = (p for p in self.program.placed if p.state == OPTIMIZER.name and p.group in (None, group))
        return tuple(axis for p in placed for axis, mode in p.modes if axis in self.inside and mode.split)

    def _ends(self, axis: str) -> sympy.Expr:
        """The share of stages that are the first or the last one."""
        import sympy

        return sympy.Min(2, self.degree(axis)) / self.degree(axis)

    def _without_layers(self, split: tuple[str, ...], part: str | None) -> tuple[str, ...]:
        """A unit or a layer lies in one stage: stages do not divide it."""
        return split if part is None else tuple(a for a in split if a not in self._layer_axes)

    def _group(self, name: str) -> sympy.Expr:
        for group in self.program.groups:
            if group.name == name:
                return self.scalar(group.size)
        return sum((self.scalar(g.size) for g in self.program.groups), self.one * 0)

    def _part(self, whole: sympy.Expr, value: Value) -> sympy.Expr:
        if value.part is None:
            return whole
        if value.part == "units":
            first = value.index is not None and value.index.var is None and value.index.offset == 0
            return (symbol("U_root") if first and self.root_apart else self.unit) * (whole / symbol("P"))
        return whole / (symbol("L") if value.part == "layers" else 2 * symbol("L"))

    @cached_property
    def root_apart(self) -> bool:
        """Whether the program computes its first unit apart from the others."""
        return any(isinstance(s, For) and s.start for s in statements(self.program.body))

    # What loops repeat.

    @cached_property
    def parts(self) -> Parts:
        """The parts that loops walk over."""
        return Parts(self.program)

    def times(self, count: Count) -> sympy.Expr:
        """A number of things."""
        units = self.count("units") if self.parts.units_used else self.one
        inner = self.count(self.parts.inner_domain) / units if self.parts.inner_domain else self.one
        total = self.one * 0
        for powers, n in count.terms:
            term = self.one * n
            for number, power in zip((self.count("microbatches"), units, inner), powers, strict=True):
                term = term * number**power
            total = total + term
        return total

    def batches(self, number: Count) -> sympy.Expr:
        """A number of micro-batches: never more than there are."""
        import sympy

        batches = self.times(number)
        return sympy.Min(batches, self.count("microbatches")) if batches.is_Integer and batches > 1 else batches

    def spread(self, count: Count, size: Callable[[str | None, Index | None], sympy.Expr], *, first: bool | None) -> sympy.Expr | None:
        """What so many smallest parts have: ``size(None, None)`` is that of all parts, ``size(domain, None)`` that of one.

        ``first``: they are parts of the first unit (None: of that and others). The result is None where the number is no sum of wholes,
        units and smallest parts.
        """
        import sympy

        left = {powers: sympy.Rational(n) for powers, n in count.terms}
        if any(m or units > 1 or inner > 1 for m, units, inner in left):
            return None
        parts, none = self.parts, self.one * 0
        deep = 1 if parts.inner_domain else 0  # whether a unit is one smallest part
        everywhere, units = (left.get((0, n, deep), none) / parts.sub for n in (1, 0))
        each, few = (left.get((0, n, 0), none) if deep else none for n in (1, 0))
        whole, apart = size(None, None), self.root_apart and first is not None
        root = size("units", Index(var=None)) if apart else none
        if first and apart:
            amount = units * root
        else:
            whole = whole - root
            if parts.units.middle is None:
                everywhere, units = divmod(units, len(parts.units.weights) - apart or 1)
            elif apart:
                units = units + everywhere
            amount = everywhere * whole + (units * size("units", None) if units else none)
        return amount + ((each * self.times(_UNITS) + few) * size(parts.finest, None) if each or few else none)

    @cached_property
    def unit(self) -> sympy.Expr:
        """Parameters in the largest unit."""
        import sympy

        if self.program.unit is not None:
            return sympy.Integer(self.program.unit)
        if self.program.count("units") == 1:
            return symbol("P") / self.devices(tuple(a for a in self._layer_axes if a not in self.inside))
        return symbol("U")

    def _saved(self, value: Value, piece: Piece) -> sympy.Expr:
        every, outside = symbol("A"), symbol("A_seq")
        groups = {INNER: every - outside, OUTER: outside}
        for name in (g.name for g in self.program.groups if g.experts):
            groups |= {INNER: every - outside - symbol("A_expert"), name: symbol("A_expert")}
        elements = groups.get(piece.group, every) / self.count("microbatches")
        stages = self.devices(self._layer_axes)
        if value.part is None:
            return elements / stages
        if value.part == "units":
            return elements / stages / self.count("units")
        return elements / (symbol("L") if value.part == "layers" else 2 * symbol("L"))

    @cached_property
    def _stream(self) -> sympy.Expr:
        return symbol("b") * symbol("s") * symbol("h")

    def share(self, branches: Iterable[tuple[If, bool]]) -> sympy.Expr:
        """The share of devices that take the branches around a statement: those of one axis, and of its factors, are counted together.

        Raises InputError where ranks of an axis and of its sub-groups are compared, and not all of these have numbers.
        """
        share = self.one
        by_axis: dict[str, list[tuple[If, bool]]] = {}
        for branch, taken in branches:
            axis = self.program.axis(branch.axis)
            assert axis is not None
            by_axis.setdefault(axis.name, []).append((branch, taken))
        for of in by_axis.values():
            share = share * self._share_along(of)
        return share

    def _share_along(self, branches: list[tuple[If, bool]]) -> sympy.Expr:
        names = {b.axis for b, _ in branches}
        if len(names) > 1:
            return self._share_of_sub_groups(branches)
        n = self.degree(branches[0][0].axis)
        ends = [(b, taken, rank_bound(b, self.program)) for b, taken in branches]
        if all(end is not None for *_, end in ends):
            return (
                count([ranks(b, end, taken) for b, taken, end in ends if end is not None], n, self._least.get(branches[0][0].axis, 1)) / n
            )
        return count_between([ranks(b, self.scalar(b.bound), taken, n) for b, taken in branches], n) / n

    def _share_of_sub_groups(self, branches: list[tuple[If, bool]]) -> sympy.Expr:
        """By looking at each rank."""
        import sympy

        axis = self.program.axis(branches[0][0].axis)
        assert axis is not None
        degree, inner = self.degree(axis.name), self.degree(axis.inner_name)
        bounds = [self.scalar(b.bound) for b, _ in branches]
        if not all(x.is_number for x in (degree, inner, *bounds)) or degree > MOST_LOOKED_AT:
            message = f"how many devices take branches on `{axis.name}` and on its sub-groups is not derived"
            refuse("PP310", message, place=branches[-1][0].place, help="give their degrees")
        ranks = {axis.name: lambda r: r, axis.outer_name: lambda r: r // int(inner), axis.inner_name: lambda r: r % int(inner)}
        taken = [
            [bool(COMPARE[b.op](ranks[b.axis](r), bound)) is yes for (b, yes), bound in zip(branches, bounds, strict=True)]
            for r in range(int(degree))
        ]
        return sympy.Rational(sum(map(all, taken)), int(degree))

    @cached_property
    def _least(self) -> dict[str, int]:
        return least_degrees(self.program)
