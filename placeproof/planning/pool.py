"""Points with what their steps take at least: a pool, and a queue of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from placeproof.planning.arrays import Array
from placeproof.planning.objective import Objective
from placeproof.planning.space import AXES, INSIDE, Mesh, Option, Point, Space, axes_of
from placeproof.planning.tables import Points


class Bounded(NamedTuple):
    """Rows of some points that have an option: their steps take no less than ``seconds``, and their fullest devices hold no fewer bytes of
    tensors than ``peak``."""

    seconds: Array
    peak: Array
    rows: Array
    points: Points
    option: Option

    def bound(self, objective: Objective) -> Array:
        """The least values of an objective."""
        values = self.peak if objective.memory else self.seconds
        degrees = (getattr(self.points, axis) for axis in AXES)
        return values * np.broadcast_to(prod(degrees), (len(self.points),))[self.rows] if objective.by_device else values


class Piece(NamedTuple):
    """Meshes with several devices along the same axes, with or without sequence parallelism; its number among all."""

    number: int
    meshes: tuple[Mesh, ...]
    sp: bool


class Pool:
    """Bounded points by number."""

    def __init__(self, bounded: Sequence[Bounded]) -> None:
        self._bounded, self._starts = bounded, np.cumsum([0, *(len(one.rows) for one in bounded)])

    def column(self, of: Callable[[Bounded], Array]) -> Array:
        """A number of each point."""
        return np.concatenate([np.zeros(0), *map(of, self._bounded)])

    def __getitem__(self, number: int) -> Point:
        of = int(np.searchsorted(self._starts, number, side="right")) - 1
        one = self._bounded[of]
        return point_of(one.points, int(one.rows[number - self._starts[of]]), one.option)


class Queue:
    """Points by the least values of an objective."""

    def __init__(self, bounded: Sequence[Bounded], objective: Objective) -> None:
        self._objective, self._bounded = objective, list[Bounded]()
        self._popped: list[int] = []
        self.add(bounded)

    def add(self, bounded: Sequence[Bounded]) -> None:
        """More of them."""
        self._bounded += bounded
        self._pool = Pool(self._bounded)
        self._values = self._pool.column(lambda one: one.bound(self._objective))
        self._values[self._popped] = np.inf
        self._order, self._next = np.argsort(self._values, kind="stable"), 0

    def __len__(self) -> int:
        return len(self._order) - len(self._popped)

    @property
    def least(self) -> float:
        """The value of the next point, at least."""
        return float(self._values[self._order[self._next]])

    def pop(self) -> Point:
        """The next point."""
        number = int(self._order[self._next])
        self._next += 1
        self._popped.append(number)
        return self._pool[number]


def point_of(points: Points, row: int, option: Option) -> Point:
    """A row of some points that have an option."""
    mesh = Mesh(**{axis: int(getattr(points, axis)[row]) for axis in AXES})
    return Point(mesh=mesh, option=option, b=int(points.b[row]), m=int(points.m[row]))


def units_of(space: Space, *, by_stages: bool) -> list[list[Piece]]:
    """All points in parts, the largest first; what is derived for one part is for no other. ``by_stages``: as of :meth:`Space.classes`."""
    units: dict[tuple[tuple[str, ...], bool], list[Piece]] = {}
    size: Counter[tuple[tuple[str, ...], bool]] = Counter()
    for number, own in enumerate(space.classes(by_stages=by_stages)):
        axes = axes_of(own)
        sps, *others = space.options_of(axes)
        for place, sp in enumerate(sps):
            units.setdefault((inside(axes), sp), []).append(Piece(2 * number + place, own, sp))
            size[inside(axes), sp] += len(own) * prod(map(len, others))
    return [units[unit] for unit, _ in size.most_common()]


def share(piece: Piece, space: Space) -> int:
    """Points of a piece."""
    return len(piece.meshes) * len(space.b) * space.options // len(space.options_of(axes_of(piece.meshes))[0])


def inside(axes: Sequence[str]) -> tuple[str, ...]:
    """Those that blocks know of: they are the same for all samples, and in every stage."""
    return tuple(axis for axis in axes if axis in INSIDE)
