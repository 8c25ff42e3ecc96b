"""Tensors with named dimensions, as one process of a block's replay holds them: exact numbers, and which places of the whole they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import torch
from torch import Tensor

from placeproof.measure.replay_numbers import Arithmetic, Numbers
from placeproof.measure.replay_values import NothingThereError, NotReplayedError


@dataclass(frozen=True, slots=True, eq=False)
class Dual:
    """Numbers with their derivatives along one direction: ``slope`` has the shape of ``value``."""

    value: Numbers
    slope: Numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the numbers."""
        return self.value.shape

    @property
    def of(self) -> Arithmetic:
        """Their arithmetic."""
        return self.value.of

    def __add__(self, other: Dual) -> Dual:
        return Dual(self.value + other.value, self.slope + other.slope)

    def __sub__(self, other: Dual) -> Dual:
        return Dual(self.value - other.value, self.slope - other.slope)

    def __mul__(self, other: Dual) -> Dual:
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    def __truediv__(self, other: Dual) -> Dual:
        quotient = self.value / other.value
        return Dual(quotient, (self.slope - quotient * other.slope) / other.value)

    def __pow__(self, power: int) -> Dual:
        by = self.value ** (power - 1) * power if power else self.value * 0
        return Dual(self.value**power, self.slope * by)

    def __getitem__(self, index: object) -> Dual:
        return Dual(self.value[index], self.slope[index])

    def sum(self, dim: int = 0) -> Dual:
        """The sum over one dimension."""
        return Dual(self.value.sum(dim), self.slope.sum(dim))

    def permuted(self, order: Sequence[int]) -> Dual:
        """Dimensions in another order."""
        return Dual(self.value.permuted(order), self.slope.permuted(order))


#: What an array is made of.
Content = Numbers | Dual


def value_of(content: Content) -> Numbers:
    """The numbers without their derivatives."""
    return content.value if isinstance(content, Dual) else content


def changed(content: Content, value: Callable[[Numbers], Numbers], slope: Callable[[Numbers], Numbers]) -> Content:
    """A function of each number, by its value and its derivative."""
    if isinstance(content, Numbers):
        return value(content)
    return Dual(value(content.value), content.slope * slope(content.value))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Array:
    """``places``: for each dimension, in order, which place of the whole tensor each position is. ``cuts``: along which axes a dimension is
    cut, the outermost first. ``loose``: dimensions of which nothing is stored, so that any part can be made. ``picks``: the numbers are
    positions along that dimension."""

    places: Mapping[str, tuple[int, ...]]
    content: Content
    cuts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    picks: str | None = None

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its dimensions."""
        return tuple(self.places)

    @property
    def lengths(self) -> dict[str, int]:
        """How long each dimension is here."""
        return {dim: len(p) for dim, p in self.places.items()}

    @staticmethod
    def number(of: Arithmetic, value: Fraction) -> Array:
        """A number."""
        return Array(places={}, content=Numbers.make(of, [value])[0])

    def plain(self) -> Fraction:
        """The fraction that an array without dimensions is."""
        if self.places:
            raise NotReplayedError("a tensor where a number belongs")
        return value_of(self.content).fractions()[0]

    def positions(self) -> Tensor:
        """Of an array of positions: they themselves."""
        return torch.tensor([int(n) for n in value_of(self.content).fractions()], dtype=torch.int64).reshape(tuple(self.lengths.values()))

    def ordered(self, dims: Sequence[str]) -> Content:
        """The numbers with dimensions in some order; of length 1 along those that it does not have."""
        mine = [d for d in dims if d in self.places]
        content = self.content.permuted([self.dims.index(d) for d in mine])
        return content[tuple(slice(None) if d in self.places else None for d in dims)]

    def kept(self, dim: str, chosen: Sequence[int]) -> Array:
        """Some positions of one dimension."""
        index = (*[slice(None)] * self.dims.index(dim), torch.tensor(chosen, dtype=torch.int64))
        places = {**self.places, dim: tuple(self.places[dim][i] for i in chosen)}
        return replace(self, places=places, content=self.content[index])

    def cut(self, dim: str, axis: str, coordinate: int, degree: int) -> Array:
        """One of so many contiguous blocks, which differ in length by at most one."""
        mine = self.kept(dim, block(range(len(self.places[dim])), coordinate, degree))
        return replace(mine, cuts={**self.cuts, dim: (*self.cuts.get(dim, ()), axis)}, loose=self.loose - {dim})

    def reduced(self, dim: str, combine: Callable[[Content, int], Content]) -> Array:
        """One dimension combined away."""
        if dim not in self.places:
            raise NotReplayedError(f"a reduction of `{dim}`, which is not there")
        content = combine(self.content, self.dims.index(dim))
        places = {d: p for d, p in self.places.items() if d != dim}
        return Array(places=places, content=content, cuts={d: c for d, c in self.cuts.items() if d != dim}, loose=self.loose - {dim})

    def with_content(self, content: Content) -> Array:
        """Other numbers in the same places."""
        return replace(self, content=content)


def together(op: Callable[[Content, Content], Content], a: Array, b: Array) -> Array:
    """Arithmetic along common dimensions, by name; the lengths must fit."""
    if a.picks is not None or b.picks is not None:
        raise NotReplayedError("arithmetic with positions")
    for dim in [d for d in a.dims if d in b.places]:
        if dim in a.loose and dim not in b.loose:
            a = a.kept(dim, [a.places[dim].index(p) for p in b.places[dim]])
        elif dim in b.loose and dim not in a.loose:
            b = b.kept(dim, [b.places[dim].index(p) for p in a.places[dim]])
        elif len(a.places[dim]) != len(b.places[dim]):
            raise NothingThereError(f"shapes do not fit: `{dim}` has {len(a.places[dim])} and {len(b.places[dim])} elements")
    places = {**b.places, **a.places}
    cuts = {d: a.cuts.get(d) or b.cuts.get(d) or () for d in places}
    loose = frozenset(d for d in places if all(d in v.loose for v in (a, b) if d in v.places))
    content = op(a.ordered(list(places)), b.ordered(list(places)))
    return Array(places=places, content=content, cuts={d: c for d, c in cuts.items() if c}, loose=loose)


def added(content: Content, dim: int) -> Content:
    """The sum along a dimension."""
    return content.sum(dim)


def greatest(content: Content, dim: int) -> Content:
    """The greatest along a dimension, with the derivative of the one that it is."""
    order = [dim, *(d for d in range(len(content.shape)) if d != dim)]
    front = content.permuted(order)
    if not front.shape[0]:
        raise NotReplayedError("the greatest of nothing")
    if isinstance(front, Numbers):
        return front.greatest()
    values = front.value.fractions()
    columns = len(values) // front.shape[0]
    which = [max(range(front.shape[0]), key=lambda r, c=c: values[r * columns + c]) for c in range(columns)]  # type: ignore[misc]
    rest = front.shape[1:]
    index = torch.tensor(which).reshape(rest)
    grid = torch.meshgrid(*(torch.arange(n) for n in rest), indexing="ij") if rest else ()
    return front[(index, *grid)]


def larger(a: Content, b: Content) -> Content:
    """The larger of two numbers, position by position, with its derivative; of equal ones the first's."""
    shape = torch.broadcast_shapes(a.shape, b.shape)
    first, second = (_wide(value_of(n), shape) for n in (a, b))
    mask = torch.tensor([m >= n for m, n in zip(first.fractions(), second.fractions(), strict=True)]).reshape(shape)
    if isinstance(a, Dual) and isinstance(b, Dual):
        return Dual(first.where(mask, second), _wide(a.slope, shape).where(mask, _wide(b.slope, shape)))
    return first.where(mask, second)


def _wide(numbers: Numbers, shape: Sequence[int]) -> Numbers:
    """Repeated along dimensions of length 1, to a shape."""
    return Numbers(numbers.of, numbers.data.expand(*shape, *[-1] * numbers.of.extra))


def one_hot(picks: Array, size: int, of: Arithmetic) -> Array:
    """1 at each position that is picked, along a new last dimension."""
    if picks.picks is None:
        raise NotReplayedError("`hot` of numbers")
    hot = torch.nn.functional.one_hot(picks.positions(), size)
    content = Numbers.make(of, hot.flatten().tolist(), *hot.shape)
    places = {**picks.places, picks.picks: tuple(range(size))}
    return Array(places=places, content=content, cuts=picks.cuts, loose=frozenset({picks.picks}))


def block(positions: range, coordinate: int, degree: int) -> range:
    """One of so many contiguous blocks, which differ in length by at most one."""
    n = len(positions)
    return positions[n * coordinate // degree : n * (coordinate + 1) // degree]


def places_of(places: Mapping[str, Sequence[int]]) -> list[tuple[int, ...]]:
    """The places of every position, row by row."""
    found: list[tuple[int, ...]] = [()]
    for along in places.values():
        found = [(*at, place) for at in found for place in along]
    return found


def spot(at: Mapping[str, int]) -> str:
    """A place in a tensor, dimensions by name."""
    return "[" + ", ".join(f"{dim} {n}" for dim, n in sorted(at.items())) + "]"


def spots(array: Array) -> list[str]:
    """The names of the places of an array's numbers, row by row."""
    return [spot(dict(zip(array.dims, at, strict=True))) for at in places_of(array.places)]
