"""Tensors with named dimensions on all devices of a mesh at once, and what each device does with its own.

Parts may differ in length. The positions that a device has come first; what stands in an array beyond them is garbage that nothing reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

from placeproof.semantics.layouts.layout import Sharding
from placeproof.semantics.meaning.numbers import Array
from placeproof.semantics.meaning.recorded import Nothing
from placeproof.semantics.tensors.numbers import ARITHMETIC, Tensors, alike, chained, larger, meaning_of, raised
from placeproof.semantics.tensors.setup import FaultError, NotComputedError


@dataclass(frozen=True, eq=False)
class Places:
    """Which place of the whole each position along a dimension is: ``of[device..., position]``, -1 where a device has no such position. One
    object for the same places."""

    of: Array

    @cached_property
    def there(self) -> Array:
        """Where devices have positions."""
        return np.asarray(self.of >= 0)

    @cached_property
    def lengths(self) -> Array:
        """How many positions each device has: ``[device...]``."""
        return self.there.sum(-1)

    @cached_property
    def full(self) -> bool:
        """Whether all devices have as many."""
        return bool(self.there.all())

    @property
    def longest(self) -> int:
        """The most positions that a device has."""
        return int(self.of.shape[-1])

    @cached_property
    def known(self) -> dict[Any, Any]:
        """What follows from them, and was worked out before."""
        return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Held(Sharding):
    """What the devices hold of a tensor: ``data[number and slopes, device..., position...]``.

    An array's dimension of devices has length 1 where all along it hold the same. ``places``: for each dimension, which positions devices
    have. ``powers``: whether its numbers may stand in an exponent.
    """

    data: Array
    places: Mapping[str, Places] = field(default_factory=dict)
    powers: bool = True

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of its dimensions."""
        return tuple(self.places)

    def axis(self, dim: str) -> int:
        """Which of the array's dimensions it is."""
        return int(self.places[dim].of.ndim) + self.dims.index(dim)

    def there(self, mesh: int) -> Array:
        """Where devices have numbers: ``[device..., position...]``. ``mesh``: the number of axes."""
        present: Array = np.ones((1,) * (mesh + len(self.dims)), dtype=bool)
        for n, places in enumerate(self.places.values()):
            present = present & _spread(places.there, n, len(self.dims))
        return present

    def by_place(self, at: Sequence[int]) -> Iterator[tuple[dict[str, int], Any]]:
        """What the device at some coordinates has: each number with its place."""
        own = [p.of[_at(p.of.shape, at)] for p in self.places.values()]
        data = self.data[(0, *_at(self.data.shape[1:], at), ...)]
        for position in np.ndindex(*(int((p >= 0).sum()) for p in own)):
            yield {d: int(p[n]) for d, p, n in zip(self.dims, own, position, strict=True)}, data[position]


def _at(shape: Sequence[int], at: Sequence[int]) -> tuple[int, ...]:
    return tuple(n if size > 1 else 0 for n, size in zip(at, shape, strict=False))


def _spread(array: Array, number: int, count: int) -> Array:
    """``[device..., position]`` of one of so many dimensions beside the others."""
    return array.reshape(*array.shape[:-1], *(1,) * number, array.shape[-1], *(1,) * (count - 1 - number))


class Arrays:
    """Arithmetic on devices' own tensors. ``coordinates``: those of the one device that is run; None for all of the mesh."""

    def __init__(self, f: Tensors, degrees: Mapping[str, int], seed: int, coordinates: Mapping[str, int] | None = None) -> None:
        self.field, self.degrees = f, degrees
        self.axes = tuple(degrees)
        self.shape = tuple(1 if coordinates is not None else n for n in degrees.values())
        self._random = Random(f"garbage {seed}")
        self._places: dict[Any, Places] = {}
        self.at: dict[str, Array] = {}
        for n, (axis, degree) in enumerate(degrees.items()):
            values = np.arange(degree) if coordinates is None else np.array([coordinates[axis]])
            self.at[axis] = values.reshape([-1 if n == m else 1 for m in range(len(degrees))])

    def number(self, values: Sequence[Any], shape: tuple[int, ...] | None = None) -> Held:
        """One number, or one for each device of a shape."""
        return Held(data=self.field.array(list(values), (1, *(shape or (1,) * len(self.axes)))))

    def whole(self, data: Array, sizes: Mapping[str, int], picks: str | None) -> Held:
        """A tensor of which every device has all: ``data[position...]``."""
        ones = (1,) * len(self.axes)
        places = {d: self.places(np.arange(n).reshape(*ones, n)) for d, n in sizes.items()}
        return Held(data=data.reshape(1, *ones, *data.shape), places=places, picks=picks)

    def garbage(self, data: Array) -> Array:
        """What is read where nothing is held, in the shape of an array."""
        return self.field.garbage(self._random, data.shape[: data.ndim - self.field.extra])

    def places(self, of: Array) -> Places:
        """The object for some places."""
        return self._places.setdefault((of.shape, of.tobytes()), Places(of))

    # Parts.

    def kept(self, x: Held, dim: str, at: Array) -> Held:
        """Some positions of a dimension: ``at[device..., position]``, -1 for none."""
        there, at = at >= 0, np.maximum(at, 0)
        places = self.places(np.where(there, np.take_along_axis(x.places[dim].of, at, -1), -1))
        number, count = x.dims.index(dim), len(x.dims)
        data = np.take_along_axis(x.data, self.field.wide(_spread(at, number, count))[None], x.axis(dim))
        if not there.all():
            data = np.where(self.field.wide(_spread(there, number, count)), data, self.garbage(data))
        return replace(x, data=data, places={**x.places, dim: places})

    def part(self, x: Held, dim: str, axes: Sequence[str], of: Mapping[str, int] | None = None) -> Held:
        """A device's part along some axes: contiguous blocks that differ in length by at most one. ``of``: another device's."""
        for axis in axes:
            known, degree, rank = x.places[dim].known, self.degrees[axis], None if of is None else of[axis]
            if (axis, rank) not in known:
                n, coordinate = x.places[dim].lengths[..., None], self.at[axis][..., None] if rank is None else rank
                first, end = n * coordinate // degree, n * (coordinate + 1) // degree
                at = first + np.arange((end - first).max())
                known[axis, rank] = np.where(at < end, at, -1)
            kept = self.kept(x, dim, known[axis, rank]) if degree > 1 else x
            x = replace(kept, split={**x.split, dim: (*x.split.get(dim, ()), axis)}, loose=x.loose - {dim})
        return x

    def compact(self, x: Held, dim: str) -> Held:
        """The positions that devices have brought to the front."""
        missing = x.places[dim].of < 0
        if not missing.any():
            return x
        at = np.argsort(missing, axis=-1, kind="stable")
        return self.kept(x, dim, np.where(np.take_along_axis(missing, at, -1), -1, at)[..., : int(x.places[dim].lengths.max())])

    def _longer(self, x: Held, dim: str, longest: int) -> Held:
        places = x.places[dim]
        if places.longest == longest:
            return x
        if not places.longest:
            raise NotComputedError("a part of nothing under a condition")
        grown = np.arange(longest)
        return self.kept(x, dim, np.where(grown < places.lengths[..., None], grown, -1))

    # Arithmetic, aligned by the names of dimensions.

    def binary(self, op: str, a: Held, b: Held, active: Array) -> Held:
        """``a op b`` on the devices that are active. Raises FaultError where shapes do not fit."""
        if a.picks is not None or b.picks is not None:
            raise NotComputedError("arithmetic with positions")
        for dim in [d for d, p in a.places.items() if b.places.get(d, p) is not p]:
            a, b = self._fitting(a, b, dim, active)
        places = {**b.places, **a.places}
        data = ARITHMETIC[op](self.field, *(self.ordered(v, list(places)) for v in (a, b)))
        both = {d: a.split.get(d) or b.split.get(d) or () for d in places}
        split = {d: axes for d, axes in both.items() if axes}
        loose = frozenset(d for d in places if all(d in v.loose for v in (a, b) if d in v.places))
        return Held(data=data, places=places, split=split, loose=loose, powers=a.powers and b.powers)

    def _fitting(self, a: Held, b: Held, dim: str, active: Array) -> tuple[Held, Held]:
        """Two operands as long as one another along a dimension, position by position."""
        if dim in a.loose and dim not in b.loose:
            return self.kept(a, dim, b.places[dim].of), b
        if dim in b.loose and dim not in a.loose:
            return a, self.kept(b, dim, a.places[dim].of)
        wrong = (a.places[dim].lengths != b.places[dim].lengths) & active
        if wrong.any():
            why = f"a part of `{dim}` meets all of it; `part` cuts, and `all_gather` makes whole"
            apart = bool(a.split.get(dim)) is bool(b.split.get(dim))
            raise FaultError("shapes do not fit: " + (f"parts of `{dim}` have different lengths" if apart else why), wrong)
        longest = max(v.places[dim].longest for v in (a, b))
        return self._longer(a, dim, longest), self._longer(b, dim, longest)

    def merged(self, where: Array, x: Held, y: Held) -> Held:
        """What some devices hold of one tensor, and the others of another one."""
        if set(x.dims) != set(y.dims) or not x.cut_alike(y):
            raise NotComputedError("devices that hold tensors of different dimensions")
        for dim in x.dims:
            longest = max(v.places[dim].longest for v in (x, y))
            x, y = self._longer(x, dim, longest), self._longer(y, dim, longest)
        places = {d: self.places(np.where(where[..., None], p.of, y.places[d].of)) for d, p in x.places.items()}
        data = np.where(self.beside(where, x), *alike(self.field, x.data, self.ordered(y, x.dims)))
        return replace(x, data=data, places=places, powers=x.powers and y.powers)

    def beside(self, where: Array, x: Held) -> Array:
        """A mask of devices beside a tensor's numbers."""
        return where.reshape(1, *where.shape, *(1,) * (x.data.ndim - 1 - where.ndim))

    def ordered(self, x: Held, dims: Sequence[str]) -> Array:
        """The numbers with dimensions in some order; of length 1 along those that it does not have."""
        first, last = 1 + len(self.axes), x.data.ndim - self.field.extra
        order = [first + x.dims.index(d) for d in dims if d in x.places]
        data = x.data.transpose(*range(first), *order, *range(last, x.data.ndim))
        return data[(*[slice(None)] * first, *(slice(None) if d in x.places else None for d in dims))]

    def power(self, x: Held, exponent: Any) -> Held:
        """A whole power."""
        if exponent.denominator != 1 or x.picks is not None:
            raise NotComputedError("this power")
        return replace(x, data=raised(self.field, x.data, int(exponent)))

    # Over a dimension: over what a device holds of it.

    def total(self, x: Held, dim: str) -> Held:
        """The sum over a dimension."""
        data = x.data if self._has(x, dim).full else np.where(self._there(x, dim), x.data, self.field.of(0))
        return self._without(x, dim, self.field.total(data, x.axis(dim)))

    def largest(self, x: Held, dim: str) -> Held:
        """The greatest over a dimension."""
        if not self._has(x, dim).lengths.all():
            raise NotComputedError("the greatest of nothing")
        return self._without(x, dim, self.greatest(x.data, x.axis(dim), self._there(x, dim)))

    def greatest(self, data: Array, axis: int, there: Array | None = None) -> Array:
        """The greatest over a dimension, of what is there."""
        ones, has = np.moveaxis(data, axis, 0), None if there is None else np.moveaxis(there, axis, 0)
        largest = ones[0]
        for n, row in enumerate(ones[1:], start=1):
            both = larger(self.field, largest, row)
            largest = both if has is None else np.where(has[n], both, largest)
        return largest

    @staticmethod
    def _has(x: Held, dim: str) -> Places:
        if dim not in x.places:
            raise NotComputedError(f"a reduction of `{dim}`, which is not there")
        return x.places[dim]

    def _there(self, x: Held, dim: str) -> Array:
        """Where devices have positions along one dimension, beside the numbers."""
        return self.field.wide(_spread(x.places[dim].there, x.dims.index(dim), len(x.dims)))[None]

    def _without(self, x: Held, dim: str, data: Array) -> Held:
        """One dimension combined away."""
        places = {d: p for d, p in x.places.items() if d != dim}
        split = {d: axes for d, axes in x.split.items() if d != dim}
        return Held(data=data, places=places, split=split, loose=x.loose - {dim}, powers=x.powers)

    # Functions of each element.

    def function(self, op: str, name: str, x: Held) -> Held:
        """``elementwise`` or ``slope``; the derivative of a slope is any number."""
        f, power = self.field, name == "exp"
        if power and not (x.powers or f.nested):
            raise NotComputedError("an exponential of exponentials in residues")
        (value_of, slope_of), numbers, slopes = meaning_of(f, name), x.data[:1], x.data[1:]
        if op == "slope":
            known = bool(f.same(slopes, f.of(0)).all())
            data = np.concatenate([slope_of(numbers), slopes if known else self.garbage(slopes)])
        else:
            value = value_of(numbers)
            data = chained(f, x.data, value, slope_of(numbers)) if len(slopes) else value
        return replace(x, data=data, powers=x.powers and not power)

    def hot(self, x: Held, sizes: Mapping[str, int]) -> Held:
        """1 at each position that is picked."""
        if x.picks is None:
            raise NotComputedError("`hot` of numbers")
        if x.picks in x.places:
            raise NotComputedError(f"`hot` of positions along `{x.picks}`, which they have themselves")
        size = sizes[x.picks]
        places = {**x.places, x.picks: self.places(np.arange(size).reshape(*(1,) * len(self.axes), size))}
        last = x.data.ndim - self.field.extra
        every = self.field.array(list(range(size)), (*(1,) * last, size))
        hot = self.field.same(np.expand_dims(x.data, last), every)
        data = np.where(self.field.wide(hot), self.field.of(1), self.field.of(0))
        return Held(data=data, places=places, split=x.split, loose=frozenset({x.picks}))

    def masked(self, x: Held, key: Held, factor: Callable[[Any, list[tuple[str, int]]], int]) -> Held:
        """Each number times a factor that depends on the key and on its place."""
        if key.places:
            raise NotComputedError("a tensor where a number belongs")
        every = {d: p.of for d, p in x.places.items()}
        mesh = np.broadcast_shapes(key.data.shape[1 : 1 + len(self.axes)], *(p.shape[:-1] for p in every.values()))
        lengths = [p.shape[-1] for p in every.values()]
        factors = []
        for at in np.ndindex(*mesh):
            own = self.field.plain(key.data[(0, *_at(key.data.shape[1:], at))])
            for position in np.ndindex(*lengths):
                spot = [(d, int(p[(*_at(p.shape, at), n)])) for (d, p), n in zip(every.items(), position, strict=True)]
                factors.append(factor(own, sorted(spot)))
        mask = self.field.array(factors, (1, *mesh, *lengths))
        return replace(x, data=ARITHMETIC["*"](self.field, x.data, mask))

    # Comparing.

    def differs(self, x: Held, truth: Held) -> tuple[tuple[int, ...], dict[str, int], tuple[Any, Any]] | None:
        """The first device, and place, at which devices hold something else than one device does, with that and what they hold."""
        f, mesh = self.field, len(self.axes)
        if any((p.of.reshape(-1) != np.arange(p.of.size)).any() for p in truth.places.values()):
            raise NotComputedError("one device that holds a part")
        expected: Any = None
        wrong = x.there(mesh)
        if set(x.dims) == set(truth.dims):
            whole = self.ordered(truth, x.dims)
            whole = whole[:1].reshape(whole.shape[1 + mesh :])
            expected = whole[(*(_spread(np.maximum(p.of, 0), n, len(x.dims)) for n, p in enumerate(x.places.values())), ...)]
            wrong = ~f.same(x.data[:1], expected[None])[0] & wrong
        for at in np.argwhere(wrong)[:1]:
            device, position = tuple(at[:mesh].tolist()), at[mesh:].tolist()
            index = {d: int(p.of[(*_at(p.of.shape, device), n)]) for (d, p), n in zip(x.places.items(), position, strict=True)}
            shape = (*wrong.shape, *x.data.shape[x.data.ndim - f.extra :])
            both = [v if v is None else np.broadcast_to(v, shape)[tuple(at)] for v in (expected, x.data[0, ...])]
            return device, index, (both[0], both[1])
        return None

    def known(self, x: Held) -> bool:
        """Whether all of a tensor's numbers are."""
        return not any(isinstance(n, Nothing) for n in x.data.reshape(-1)) if self.field.exact else True

    def coordinates(self, where: Any) -> Iterator[dict[str, int]]:
        """The devices of a mask."""
        for at in np.argwhere(np.broadcast_to(where, self.shape)):
            yield {a: int(self.at[a].flat[n]) for a, n in zip(self.axes, at, strict=True)}
