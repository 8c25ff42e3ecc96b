"""What buffers hold on all devices of a place: parts of parameters, streams of activations, what forward kept, numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from placeproof.programs import Call
from placeproof.semantics.meaning.layout import Element, TensorId
from placeproof.semantics.meaning.numbers import OPERATORS, Array
from placeproof.semantics.meaning.recorded import PLAIN
from placeproof.semantics.meaning.setup import NoMeaningError
from placeproof.semantics.meaning.world import Columns, World

if TYPE_CHECKING:
    from placeproof.semantics.meaning.devices.place import Scope

Value = TypeVar("Value")


class MisfitError(Exception):
    """Values whose shapes, or kinds, do not fit one another on a device."""


@dataclass(frozen=True, eq=False)
class Part:
    """Elements of parameters, gradients or optimizer state: ``data[..., element, component]``.

    ``extent[..., element]``: what a device has room for, and a reader may count on once the parts are together. ``have``: what is really
    there; elsewhere ``data`` is garbage. ``group``: that of the reference that it was read by.
    """

    columns: Columns
    data: Array
    extent: Array
    have: Array
    group: str | None = None

    def only(self, blocks: tuple[int, ...] | None, group: str | None) -> Part:
        """Some blocks' elements of a group."""
        if blocks is None and group is None:
            return self
        return replace(self.on(self.columns.only(blocks, group)), group=group or self.group)

    def on(self, columns: Columns) -> Part:
        """The same as an array over other elements: garbage, and no room, for those that it lacks."""
        if columns is self.columns:
            return self
        world, at = columns.world, columns.within(self.columns)
        there = at >= 0
        if not there.any():
            none = np.zeros((*self.extent.shape[:-1], len(columns)), dtype=bool)
            return Part(columns, world.garbage((*none.shape, self.data.shape[-1])), none, none, self.group)
        data = self.data[..., at, :]
        if not there.all():
            data = np.where(there[:, None], data, world.garbage(data.shape))
        return Part(columns, data, self.extent[..., at] & there, self.have[..., at] & there, self.group)

    def over(self, columns: Columns) -> Part:
        """With room for other elements, too: nothing is there."""
        both = self.columns.and_(columns)
        return replace(on := self.on(both), extent=on.extent | (both.within(self.columns) < 0))

    def without(self, group: str | None) -> Part:
        """Without the elements of a group."""
        gone = set(self.columns.only(None, group).numbers)
        return self.on(self.columns.world.columns(tuple(n for n in self.columns.numbers if n not in gone)))

    def with_(self, data: Array, have: Array) -> Part:
        """Other values in the same room; garbage where nothing is."""
        shape = self.extent.shape
        have = have if have.shape == shape else np.broadcast_to(have, shape)
        if not have.all():
            data = np.where(have[..., None], data, self.columns.world.garbage(data.shape))
        data = data if data.shape[:-1] == shape else np.broadcast_to(data, (*shape, data.shape[-1]))
        return Part(self.columns, data, self.extent, have, self.group)

    def merged(self, other: Part) -> Part:
        """This buffer after another part was written into it: where the other has room, it is what the other holds."""
        columns = self.columns.and_(other.columns)
        mine, theirs = self.on(columns), other.on(columns)
        group = self.group if self.group == other.group else None
        data = np.where(theirs.extent[..., None], theirs.data, mine.data)
        return Part(columns, data, mine.extent | theirs.extent, np.where(theirs.extent, theirs.have, mine.have), group)

    def held(self) -> Iterator[tuple[Element, Array]]:
        """Where there is one device: the elements that it has, and its numbers of each."""
        have, data = self.have.reshape(-1), self.data.reshape(-1, self.data.shape[-1])
        yield from ((e, row) for e, there, row in zip(self.columns.elements, have, data, strict=True) if there)


@dataclass(frozen=True, eq=False)
class Stream:
    """Activations, or their gradients, of one sample of each device: ``data[..., token, channel]``; ``have[..., token]``."""

    data: Array
    have: Array

    def kept(self, world: World, have: Array) -> Stream:
        """Only some tokens."""
        data = self.data if have.all() else np.where(have[..., None], self.data, world.garbage(self.data.shape))
        return Stream(data, have)


@dataclass(frozen=True, eq=False)
class Norms:
    """A number for each tensor: ``data[..., tensor]``; ``have``: whether the device has some element of it. ``lines``: of each row and
    column of matrices instead."""

    tensors: tuple[TensorId, ...]
    data: Array
    have: Array
    lines: bool = False


@dataclass(frozen=True, eq=False)
class Saved:
    """What a forward kept: inputs and outputs by block."""

    inputs: dict[int, Stream]
    outputs: dict[int, Stream]
    group: str | None

    @property
    def output(self) -> Stream:
        """What came out of the last block."""
        return self.outputs[max(self.outputs)]


@dataclass(frozen=True, eq=False)
class Handle:
    """A collective that was started. A buffer that it sends may be read until it is waited for; ``value``: what was computed for it, or
    what the buffer held then."""

    call: Call
    scope: Scope
    value: Any


@dataclass
class Parts:
    """A buffer of something else than elements that is written part by part: by group and blocks."""

    by_key: dict[tuple[str | None, tuple[int, ...]], Any] = field(default_factory=dict)

    def at(self, group: str | None, blocks: tuple[int, ...] | None, every: tuple[int, ...]) -> Any:
        """What was written for some blocks (None: for ``every``). What forwards kept of more blocks, or one by one, is kept of these, too.
        Raises KeyError where nothing is there."""
        if (group, blocks or ()) in self.by_key:
            return self.by_key[group, blocks or ()]
        kept = [v for (of, _), v in self.by_key.items() if of == group and isinstance(v, Saved)]
        of_block = {block: one for one in kept for block in one.inputs}
        wanted = every if blocks is None else blocks
        inputs = {block: of_block[block].inputs[block] for block in wanted}
        return Saved(inputs, {block: of_block[block].outputs[block] for block in wanted}, kept[0].group if kept else group)


_NAMES: dict[type, str] = {Part: "parameters", Stream: "activations", Saved: "what a forward kept", Norms: "norms"}


def expect(kind: type[Value], value: Any) -> Value:
    """A value of a kind. Raises MisfitError for another."""
    if not isinstance(value, kind):
        raise MisfitError(f"{_NAMES.get(type(value), 'a number')} where {_NAMES[kind]} are needed")
    return value


def arithmetic(world: World, op: str, left: Any, right: Any) -> Any:
    """Arithmetic on numbers, and element by element on parts and streams, where a number meets each element."""
    if op == "**" and not (isinstance(right, Fraction) and right.denominator == 1):
        raise NoMeaningError("a power whose exponent is no whole number")
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return Fraction(PLAIN[op](left, right))
    if op == "**":
        return _mapped(left, lambda x: world.field.power(x, int(right)))
    fn = OPERATORS[op]
    if isinstance(left, Part) and isinstance(right, Part):
        right = right.on(left.columns)
        return left.with_(fn(world.field, left.data, right.data), left.have)
    if isinstance(left, Stream) and isinstance(right, Stream):
        if (left.have & ~right.have).any():
            raise MisfitError("a device adds to tokens others that it does not have")
        return Stream(fn(world.field, left.data, right.data), left.have)
    if isinstance(left, Part | Stream | Norms):
        number = spread(world, right, left)
        return _mapped(left, lambda x: fn(world.field, x, number))
    if isinstance(right, Part | Stream | Norms):
        number = spread(world, left, right)
        return _mapped(right, lambda x: fn(world.field, number, x))
    return fn(world.field, numeric(world, left), numeric(world, right))


def _mapped(value: Any, fn: Callable[[Array], Array]) -> Any:
    return replace(value, data=fn(value.data)) if isinstance(value, Part | Stream | Norms) else fn(value)


def numeric(world: World, value: Any) -> Array:
    """A number, or one of each device, as an array. Raises MisfitError for anything else."""
    if isinstance(value, Fraction | int):
        return world.field.of(value)
    if isinstance(value, np.ndarray | np.generic):
        return value
    raise MisfitError(f"{_NAMES.get(type(value), 'a handle')} where a number is needed")


def spread(world: World, value: Any, over: Part | Stream | Norms) -> Array:
    """A number of each device beside each element that it holds."""
    number = numeric(world, value)
    if not isinstance(number, np.ndarray):
        return number
    return number[..., None] if isinstance(over, Norms) else number[..., None, None]
