"""Groups of devices on a cluster: which of them share a node, and which link joins two of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import gcd, lcm
from operator import mul


@dataclass(frozen=True)
class Group:
    """The devices of one collective, in the order of their ranks, counted from 0.

    ``starts``: for each level of links from the inside out, the members with which a block (a node, a pod) begins, but the first. A block's
    members have consecutive numbers. The outermost level joins all: on it, none begins.
    """

    degree: int
    starts: tuple[tuple[int, ...], ...]

    def between(self, one: int, other: int) -> int:
        """The innermost level of links that joins two members (numbers from 0 in the group)."""
        return next(level for level, starts in enumerate(self.starts) if bisect_right(starts, one) == bisect_right(starts, other))

    def blocks(self, level: int) -> tuple[tuple[int, int], ...]:
        """The blocks of a level: the first member of each, and the first one behind it."""
        return tuple(pairwise((0, *self.starts[level], self.degree)))

    def shared(self, level: int) -> tuple[int, ...]:
        """How many members lie in each block of a level, in the order of the blocks."""
        return tuple(end - first for first, end in self.blocks(level))

    @cached_property
    def common(self) -> tuple[Mapping[int, int], ...]:
        """How many blocks of each level have how many members."""
        return tuple(Counter(self.shared(level)) for level in range(len(self.starts)))

    @cached_property
    def sizes(self) -> tuple[int, ...] | None:
        """How many blocks of the level within each block of a level joins, from the inside out, devices being within the innermost; their
        product is the degree. None where blocks of a level join different numbers."""
        sizes: list[int] = []
        within: Sequence[int] = range(1, self.degree)
        for starts in self.starts:
            places = (-1, *(bisect_right(within, start) - 1 for start in starts), len(within))
            counts = {b - a for a, b in pairwise(places)}
            if len(counts) > 1:
                return None
            sizes += counts
            within = starts
        return tuple(sizes)

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """How many pairs of members next to one another each level of links joins."""
        begun = [self.degree - 1, *map(len, self.starts)]
        return tuple(inner - outer for inner, outer in pairwise(begun))

    def joints(self, level: int) -> Sequence[int]:
        """The members whose next one a level joins to them, and none within it."""
        begun: Sequence[int] = range(1, self.degree) if level == 0 else self.starts[level - 1]
        beyond = set(self.starts[level])
        return [start - 1 for start in begun if start not in beyond]

    @property
    def used(self) -> tuple[int, ...]:
        """The levels of links that join members next to one another; from the inside out. The last member and the first are joined by one
        of them."""
        return tuple(level for level, pairs in enumerate(self.neighbours) if pairs)


def groups(mesh: Mapping[str, int], along: Sequence[str], joins: Sequence[int]) -> tuple[Group, ...]:
    """The groups along some axes of a mesh, of which those that lie alike are told once.

    mesh: the degrees of its axes, from the innermost, along which neighbours have consecutive ranks, to the outermost. Device r of the
    cluster has rank r. joins: how many consecutive devices each level of links joins but the outermost, which joins all.
    """
    strides = dict(zip(mesh, accumulate(mesh.values(), mul, initial=1), strict=False))
    members = sorted(_ranks([(strides[a], mesh[a]) for a in mesh if a in along]))
    around = lcm(*joins)  # groups so many ranks apart lie alike
    others = [(strides[a], min(mesh[a], around // gcd(around, strides[a]))) for a in mesh if a not in along]
    starts = dict.fromkeys(start % around for start in _ranks(others))
    return tuple(dict.fromkeys(_group([start + member for member in members], joins) for start in starts))


def ends(every: Sequence[Group], degree: int | None = None, inside: int = 1) -> tuple[Group, ...]:
    """Of each group the members that are first and last along an axis: furthest apart, they stand for the two of a pipeline that meet.

    degree: devices along that axis; None for the only axis that the groups lie along. inside: how many devices of a group the axes within
    it have together. All groups have the same degree.
    """
    last = (every[0].degree if degree is None else degree) - 1
    met = [i for i in range(every[0].degree) if i // inside % (last + 1) in (0, last)]
    return tuple(dict.fromkeys(_chosen(group, met) for group in every))


def _chosen(group: Group, members: Sequence[int]) -> Group:
    """Some members of a group, in their order, as a group."""
    return _laid(len(members), ([bisect_right(starts, member) for member in members] for starts in group.starts))


def _ranks(axes: Iterable[tuple[int, int]]) -> list[int]:
    """All sums of multiples of strides, each with how many; the last one changes the fastest."""
    ranks = [0]
    for stride, degree in axes:
        ranks = [rank + step for rank in ranks for step in range(0, stride * degree, stride)]
    return ranks


def _group(ranks: Sequence[int], joins: Sequence[int]) -> Group:
    return _laid(len(ranks), [*([rank // size for rank in ranks] for size in joins), [0] * len(ranks)])


def _laid(degree: int, levels: Iterable[Sequence[int]]) -> Group:
    """The group whose members lie in these blocks of each level."""
    return Group(degree, tuple(tuple(i for i, (a, b) in enumerate(pairwise(level), start=1) if a != b) for level in levels))
