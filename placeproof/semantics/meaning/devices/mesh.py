"""The devices of a place as arrays, and values of several places as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np

from placeproof.core.remembered import remembered
from placeproof.semantics.meaning.layout import TensorId
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.values import MisfitError, Norms, Part, Saved, Stream, numeric
from placeproof.semantics.meaning.world import Columns, World

#: Along factors, the coordinates of the devices to which elements, or tokens, belong; -1: to all.
Owners: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Mesh:
    """Devices with the same coordinates ``here``, and all coordinates along the other factors."""

    world: World
    here: dict[str, int]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of arrays: 1 along the factors in ``here``."""
        return tuple(1 if f in self.here else n for f, n in self.world.sizes.items())

    @cached_property
    def at(self) -> dict[str, Array]:
        """Each device's coordinate along each factor."""
        coordinates = {}
        for f, n in self.world.sizes.items():
            values = np.array([self.here[f]]) if f in self.here else np.arange(n)
            coordinates[f] = values.reshape([-1 if g == f else 1 for g in self.world.factors])
        return coordinates

    @property
    def stage(self) -> int:
        """The pipeline stage."""
        return self.here.get(self.world.layout.stages or "", 0)

    def joined(self, factors: tuple[str, ...]) -> Mesh:
        """With all devices along some factors."""
        return Mesh(self.world, {f: n for f, n in self.here.items() if f not in factors})

    def mine(self, drawn: Array) -> Array:
        """What is drawn for these devices' samples, of what is drawn for all."""
        for f, n in self.here.items():
            if drawn.shape[self.world.dim[f]] > 1:
                drawn = drawn.take([n], axis=self.world.dim[f])
        return drawn

    def place(self, factors: tuple[str, ...]) -> Array:
        """Each device's number within its group over some factors."""
        number: Array = np.zeros((1,) * len(self.shape), dtype=np.int64)
        for f in factors:
            number = number * self.world.sizes[f] + self.at[f]
        return number

    def owns(self, columns: Columns, factors: tuple[str, ...], order: str = "blocked") -> Array:
        """Which elements each device owns along some factors: ``[..., element]``."""
        return owned({f: self.world.layout.owners(f, self.stage, order)[columns.index] for f in factors}, self.at)

    def tokens(self) -> Array:
        """Which tokens are each device's own where the sequence is split over the hidden axis: ``[..., token]``."""
        along, count = self.world.layout.tokens, self.world.problem.tokens_of_a_sample
        if along is None:
            return np.ones((*self.shape, count), dtype=bool)
        return np.broadcast_to(self.at[along][..., None] == self.world.token_owners(), (*self.shape, count))

    @remembered
    def extent(self, state: str) -> tuple[Columns, Array]:
        """The elements that devices compute with: those of their stage, and of their own slices where they are spread."""
        world, layout = self.world, self.world.layout
        own = set(layout.stage_blocks(self.stage))
        ends = self.stage in (0, layout.stage_count - 1)
        columns = world.columns(tuple(n for n, e in enumerate(world.elements) if (e[0] in own if e[0] >= 0 else ends)))
        columns = columns if state == "parameters" else columns.trained
        mask: Array = np.ones((*self.shape, len(columns)), dtype=bool)
        for f in world.factors:
            spread = world.split(state, f, slices=True)[columns.index]
            mask &= ~spread | (self.at[f][..., None] == world.layout.owners(f, 0)[columns.index])
        return columns, mask

    @remembered
    def placed(self, state: str) -> tuple[Columns, Array]:
        """The elements of a state that the placement gives each device."""
        columns, mask = self.extent(state)
        for f in (f for f in self.world.factors if f != self.world.layout.stages):
            mask = mask & (~self.world.split(state, f, slices=False)[columns.index] | self.owns(columns, (f,)))
        return columns, mask


def owned(owners: Owners, at: Mapping[str, Any]) -> Array:
    """Which elements, or tokens, belong to devices by their coordinates."""
    mask: Array = np.array(True)
    for f, owner in owners.items():
        mask = mask & ((np.asarray(at[f])[..., None] == owner) | (owner < 0))
    return mask


def size(world: World, factors: tuple[str, ...]) -> int:
    """How many devices there are along some factors."""
    return prod(world.sizes[f] for f in factors)


def stacked(mesh: Mesh, factors: tuple[str, ...], values: dict[tuple[int, ...], Any]) -> Any:
    """Values of places, by their coordinates along some factors, as one value over all of these. Raises MisfitError where they are not
    alike."""
    if not factors:
        return values[()]
    first, *others = values.values()
    same = all(type(v) is type(first) for v in others)
    if same and first is None:
        return None
    if same and isinstance(first, list):
        return [stacked(mesh, factors, dict(zip(values, column, strict=True))) for column in zip(*values.values(), strict=True)]
    if same and isinstance(first, Fraction) and all(v == first for v in others):
        return first
    if same and isinstance(first, Part | Stream | Norms):
        if isinstance(first, Part):
            columns = mesh.world.columns(tuple(sorted({n for v in values.values() for n in v.columns.numbers})))
            values = {at: v.on(columns) for at, v in values.items()}
        if isinstance(first, Norms):
            tensors = tuple(sorted({t for v in values.values() for t in v.tensors}))
            values = {at: of_tensors(mesh, tensors, v) for at, v in values.items()}
        joined = {name: _joined(mesh, factors, {at: getattr(v, name) for at, v in values.items()}) for name in _arrays(first)}
        return replace(next(iter(values.values())), **joined)
    if same and isinstance(first, Saved):
        blocks = sorted({b for v in values.values() for b in v.inputs})
        sides: dict[str, Any] = {
            of: {b: stacked(mesh, factors, {at: getattr(v, of)[b] for at, v in values.items()}) for b in blocks} for of in _SIDES
        }
        return replace(first, **sides)
    if isinstance(first, Fraction | np.ndarray):
        return _joined(mesh, factors, {at: np.broadcast_to(numeric(mesh.world, v), mesh.shape) for at, v in values.items()})
    raise MisfitError("devices of one group bring different kinds of values")


_SIDES = "inputs", "outputs"


def _arrays(value: Part | Stream | Norms) -> tuple[str, ...]:
    """The names of a value's arrays over devices."""
    return ("data", "extent", "have") if isinstance(value, Part) else ("data", "have")


def of_tensors(mesh: Mesh, tensors: tuple[TensorId, ...], value: Norms) -> Norms:
    """Norms of more tensors: zero, and not there, for those that it lacks."""
    where = np.array([value.tensors.index(t) if t in value.tensors else -1 for t in tensors])
    data = np.where(where >= 0, value.data[..., where], mesh.world.field.of(0))
    return replace(value, tensors=tensors, data=data, have=value.have[..., where] & (where >= 0))


def _joined(mesh: Mesh, factors: tuple[str, ...], values: dict[tuple[int, ...], Array]) -> Array:
    """Arrays of length 1 along some factors, one behind the other."""
    if not factors:
        return values[()]
    first, *rest = factors
    rows = [_joined(mesh, tuple(rest), {at[1:]: v for at, v in values.items() if at[0] == n}) for n in sorted({at[0] for at in values})]
    return np.concatenate(rows, axis=mesh.world.dim[first])


def at_place(world: World, factors: tuple[str, ...], where: tuple[int, ...], value: Any) -> Any:
    """What one place has of a value over all coordinates along some factors."""
    if not factors or value is None or isinstance(value, Fraction):
        return value
    if isinstance(value, tuple):
        return tuple(at_place(world, factors, where, v) for v in value)
    if isinstance(value, Saved):
        sides: dict[str, Any] = {of: {b: at_place(world, factors, where, s) for b, s in getattr(value, of).items()} for of in _SIDES}
        return replace(value, **sides)
    if isinstance(value, Part | Stream | Norms):
        return replace(value, **{name: _cut(world, factors, where, getattr(value, name)) for name in _arrays(value)})
    return _cut(world, factors, where, value)


def _cut(world: World, factors: tuple[str, ...], where: tuple[int, ...], array: Array) -> Array:
    for f, n in zip(factors, where, strict=True):
        array = array.take([n] if array.shape[world.dim[f]] > 1 else [0], axis=world.dim[f])
    return array
