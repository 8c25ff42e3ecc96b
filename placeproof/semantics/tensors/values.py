"""What a tensor program's buffers hold: terms over an element's position along named dimensions and the device's coordinates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from placeproof.core.diagnostics import Place
from placeproof.programs import Resolved
from placeproof.prove import Order
from placeproof.prove.terms import Index, Poly, Sort, Var, app, constant, fn, symbol, total
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.encode.world import World
from placeproof.semantics.layouts.layout import Sharding

#: Whose part of a dimension is held along an axis.
Turns: TypeAlias = Mapping[tuple[str, str], Index]


def dimension(name: str) -> Var:
    """The index variable of a named dimension."""
    return Var(f"at.{name}", Sort(f"dim.{name}", f"size.{name}"))


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """What a value was computed from, and how an adjoint of the value becomes an adjoint of that."""

    source: Value
    pull: Callable[[Poly], Poly]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Value(Sharding):
    """A buffer on the device that is spoken of. Without dimensions it is a number.

    The body says nothing of elements that the device does not own, along dimensions that are split. ``turns``: whose part of a dimension
    the device holds along an axis, where parts have gone round a ring; else it is its own.
    """

    body: Poly
    dims: frozenset[str] = frozenset()
    edges: tuple[Edge, ...] = ()
    turns: Turns = field(default_factory=dict)

    def moved(self, body: Poly, **changes: object) -> Value:
        """The same elements after a transfer that is the identity on one device."""
        return replace(self, body=body, edges=(Edge(self, lambda adjoint: adjoint),), **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Picks(Sharding):
    """A buffer of positions along a dimension."""

    index: Index
    picks: str
    dims: frozenset[str]


def over(dims: Iterable[str], body: Poly) -> Poly:
    """The sum over all of some dimensions."""
    return total([dimension(d) for d in sorted(dims)], body)


@dataclass
class Space:
    """The mesh of one run: coordinates and owners. ``misfits``: where operands hold parts of different devices."""

    program: Resolved
    world: World
    misfits: list[Place | None] = field(default_factory=list)
    _names: Iterator[int] = field(default_factory=itertools.count)

    def unknown(self, dims: Iterable[str]) -> Poly:
        """An arbitrary number for each device and element."""
        return app(f"unknown{next(self._names)}", *self.world.coordinates, *(dimension(d) for d in sorted(dims)))

    @staticmethod
    def of(program: Resolved, *, one_device: bool = False) -> Space:
        """The program's mesh, or the same axes with one device each."""
        for axis in program.axes:
            if axis.inner is not None:
                raise NoMeaningError(f"axis `{axis.name}` has sub-groups", None)
        if one_device:
            program = replace(program, axes=tuple(replace(a, degree=1) for a in program.axes))
        return Space(program, World(program))

    @property
    def single(self) -> bool:
        """Whether there is only one device."""
        return all(s.single for s in self.world.sorts.values())

    def owner(self, dim: str, axes: tuple[str, ...], axis: str) -> Index:
        """The coordinate along an axis that owns a position: any function of it, for each way to cut."""
        outer = "".join(f".in.{a}" for a in axes[: axes.index(axis)])
        return fn(f"owner.{axis}.{dim}{outer}", (dimension(dim),), self.world.sorts[axis])

    def holds(self, value: Value, dim: str) -> dict[str, tuple[Index, Index]]:
        """For each axis that cuts a dimension: whose part of it the device holds, and who owns a position."""
        axes = value.split.get(dim, ())
        return {a: (value.turns.get((dim, a), self.world.here[a]), self.owner(dim, axes, a)) for a in axes}

    def given(self) -> tuple[Order, ...]:
        """What holds for every program: degrees and dimensions are at least one."""
        dims = {d for t in self.program.tensors for d in (*t.dims, *([t.picks] if t.picks else []))}
        names = [s.size for s in self.world.sorts.values() if isinstance(s.size, str)] + [f"size.{d}" for d in sorted(dims)]
        texts = {n: f"{n.removeprefix('size.')} >= 1" for n in names}
        return tuple(Order(name=texts[n], left=symbol(n), relation=">=", right=constant(1)) for n in names)


def fitting(values: Iterable[Value], place: Place | None) -> tuple[dict[str, tuple[str, ...]], Turns, bool]:
    """How the dimensions of several operands are split together, whose parts of these they hold, and whether those are the same devices'.
    Raises NoMeaningError where their shapes do not fit."""
    split: dict[str, tuple[str, ...]] = {}
    for value in values:
        for dim in value.dims - value.loose:
            axes = value.split.get(dim, ())
            if split.setdefault(dim, axes) != axes:
                raise NoMeaningError(f"one operand has all of `{dim}` and the other a part of it: their shapes do not fit", place)
    turns: dict[tuple[str, str], Index | None] = {}
    fit = True
    for value in values:
        for key in ((dim, axis) for dim in value.dims & set(split) for axis in value.split.get(dim, ())):
            fit = turns.setdefault(key, value.turns.get(key)) == value.turns.get(key) and fit
    return {d: axes for d, axes in split.items() if axes}, {key: at for key, at in turns.items() if at is not None}, fit
