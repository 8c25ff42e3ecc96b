"""A device's array: numbers by position, and for each dimension which places of the whole tensor its positions are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from placeproof.core.diagnostics import Place
from placeproof.semantics.tensors.numbers import Dual, NotComputedError

At = tuple[int, ...]
Spot = frozenset[tuple[str, int]]
Labels = Mapping[str, tuple[int, ...]]


class FaultError(Exception):
    """The run ends here: devices could not compute this."""

    def __init__(self, why: str, place: Place | None) -> None:
        super().__init__(why)
        self.place = place


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """``labels``: dimension -> the place of each position; ``data``: numbers by position, dimensions in the order of labels.

    ``loose``: dimensions along which nothing is stored, so that any part can be made on the spot.
    """

    labels: Labels
    data: dict[At, Dual]
    cuts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    picks: str | None = None

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its dimensions."""
        return tuple(self.labels)

    @property
    def number(self) -> Dual:
        """The one number of an array without dimensions."""
        if self.labels:
            raise NotComputedError("a tensor where a number belongs")
        return self.data[()]

    @staticmethod
    def scalar(value: Fraction) -> Local:
        """A number."""
        return Local(labels={}, data={(): Dual(value)})

    @staticmethod
    def filled(labels: Labels, make: Callable[..., Dual], picks: str | None = None) -> Local:
        """An array of numbers by place."""
        spots = zip(positions(labels), itertools.product(*labels.values()), strict=True)
        return Local(labels=labels, data={at: make(*spot) for at, spot in spots}, picks=picks)

    @staticmethod
    def at_positions(labels: Labels, make: Callable[[At], Dual]) -> Local:
        """An array of numbers by position."""
        return Local(labels=labels, data={at: make(at) for at in positions(labels)})

    def by_place(self) -> dict[Spot, Dual]:
        """Its numbers by place in the whole tensor."""
        spots = itertools.product(*([(d, p) for p in places] for d, places in self.labels.items()))
        return {frozenset(s): self.data[at] for s, at in zip(spots, positions(self.labels), strict=True)}

    def map_at(self, make: Callable[[Spot, Dual], Dual]) -> Local:
        """Each number changed, knowing its place."""
        spots = itertools.product(*([(d, p) for p in places] for d, places in self.labels.items()))
        data = {at: make(frozenset(s), self.data[at]) for s, at in zip(spots, positions(self.labels), strict=True)}
        return replace(self, data=data)

    def with_numbers(self, data: dict[At, Dual]) -> Local:
        """Other numbers in the same places."""
        return replace(self, data=data)

    def reduced(self, dim: str, combine: Callable[[list[Dual]], Dual]) -> Local:
        """One dimension combined away."""
        which = self.dims.index(dim)
        columns: dict[At, list[Dual]] = {at: [] for at in positions({d: p for d, p in self.labels.items() if d != dim})}
        for at, n in self.data.items():
            columns[at[:which] + at[which + 1 :]].append(n)
        labels = {d: p for d, p in self.labels.items() if d != dim}
        cuts = {d: c for d, c in self.cuts.items() if d != dim}
        return Local(labels=labels, data={at: combine(c) for at, c in columns.items()}, cuts=cuts, loose=self.loose - {dim})

    def kept(self, dim: str, chosen: Sequence[int]) -> Local:
        """Some positions of one dimension."""
        which = self.dims.index(dim)
        labels = {**self.labels, dim: tuple(self.labels[dim][i] for i in chosen)}
        order = list(chosen)
        data = {at: self.data[(*at[:which], order[at[which]], *at[which + 1 :])] for at in positions(labels)}
        return replace(self, labels=labels, data=data)

    def cut(self, dim: str, axis: str, rank: int, degree: int) -> Local:
        """The contiguous block of one of so many devices; blocks differ by at most one."""
        n = len(self.labels[dim])
        block = range(n * rank // degree, n * (rank + 1) // degree)
        cuts = {**self.cuts, dim: (*self.cuts.get(dim, ()), axis)}
        return replace(self.kept(dim, block), cuts=cuts, loose=self.loose - {dim})

    def hot(self, sizes: Mapping[str, int]) -> Local:
        """1 at each position that is picked."""
        if self.picks is None:
            raise NotComputedError("`hot` of numbers")
        labels = {**self.labels, self.picks: tuple(range(sizes[self.picks]))}
        data = {at: Dual(Fraction(self.data[at[:-1]].value == at[-1])) for at in positions(labels)}
        return Local(labels=labels, data=data, cuts=self.cuts, loose=frozenset({self.picks}))

    @staticmethod
    def gathered(parts: Sequence[Local], dim: str, place: Place | None) -> Local:
        """Arrays one after the other along a dimension."""
        first = parts[0]
        which = first.dims.index(dim)
        if any({d: len(p) for d, p in v.labels.items() if d != dim} != _lengths_without(first, dim) for v in parts):
            raise FaultError("shapes do not fit", place)
        data: dict[At, Dual] = {}
        places: tuple[int, ...] = ()
        for part in parts:
            for at, n in part.data.items():
                data[(*at[:which], at[which] + len(places), *at[which + 1 :])] = n
            places = places + part.labels[dim]
        cuts = {**first.cuts, dim: first.cuts[dim][:-1]}
        labels = {**first.labels, dim: places}
        return Local(labels=labels, data=data, cuts={d: c for d, c in cuts.items() if c})


def _lengths_without(value: Local, dim: str) -> dict[str, int]:
    return {d: len(p) for d, p in value.labels.items() if d != dim}


def positions(labels: Labels) -> itertools.product[At]:
    """Every position of an array."""
    return itertools.product(*(range(len(p)) for p in labels.values()))


def aligned(a: Local, b: Local, place: Place | None) -> tuple[Callable[[At], Dual], Callable[[At], Dual], Labels]:
    """Two arrays read along common dimensions, by name; the shapes must fit."""
    if a.picks is not None or b.picks is not None:
        raise NotComputedError("arithmetic with positions")
    for dim in set(a.dims) & set(b.dims):
        if dim in a.loose and dim not in b.loose:
            a = _restricted(a, dim, b.labels[dim])
        elif dim in b.loose and dim not in a.loose:
            b = _restricted(b, dim, a.labels[dim])
        elif len(a.labels[dim]) != len(b.labels[dim]):
            raise FaultError("shapes do not fit", place)
    labels = {**b.labels, **a.labels}
    order = list(labels)

    def reader(value: Local) -> Callable[[At], Dual]:
        which = [order.index(d) for d in value.dims]
        return lambda at: value.data[tuple(at[i] for i in which)]

    return reader(a), reader(b), labels


def _restricted(value: Local, dim: str, places: tuple[int, ...]) -> Local:
    return value.kept(dim, [value.labels[dim].index(p) for p in places])


def joined_labels(value: Local, like: Local, place: Place | None) -> dict[At, Dual]:
    """An array's numbers by the positions of another of the same shape."""
    if {d: len(p) for d, p in value.labels.items()} != {d: len(p) for d, p in like.labels.items()}:
        raise FaultError("shapes do not fit", place)
    if value.dims == like.dims:
        return value.data
    which = [like.dims.index(d) for d in value.dims]
    return {at: value.data[tuple(at[i] for i in which)] for at in positions(like.labels)}
