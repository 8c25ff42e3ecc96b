"""Groups of devices on a cluster: which of them share a node, and which link joins two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from operator import mul


@dataclass(frozen=True)
class Group:
    """The devices of one collective, in the order of their ranks.

    ``blocks``: for each device, and for each level of links from the inside out, the number of the block (the node, the pod) that it lies
    in, counted from 0 among those of the group. The outermost level joins all: its number is 0.
    """

    blocks: tuple[tuple[int, ...], ...]

    @property
    def degree(self) -> int:
        """How many devices it has."""
        return len(self.blocks)

    def between(self, one: int, other: int) -> int:
        """The innermost level of links that joins two members (numbers from 0 in the group)."""
        mine, theirs = self.blocks[one], self.blocks[other]
        return next(level for level, block in enumerate(mine) if block == theirs[level])

    def shared(self, level: int) -> tuple[int, ...]:
        """How many members lie in each block of a level, in the order of the blocks."""
        counts = Counter(blocks[level] for blocks in self.blocks)
        return tuple(counts[block] for block in sorted(counts))

    @cached_property
    def sizes(self) -> tuple[int, ...] | None:
        """How many blocks of the level within each block of a level joins, from the inside out, devices being within the innermost; their
        product is the degree. None where blocks of a level join different numbers."""
        sizes: list[int] = []
        within = list(range(self.degree))
        for level in range(len(self.blocks[0])):
            around = [blocks[level] for blocks in self.blocks]
            counts = set(Counter(outer for outer, _ in set(zip(around, within, strict=True))).values())
            if len(counts) > 1:
                return None
            sizes += counts
            within = around
        return tuple(sizes)

    @cached_property
    def used(self) -> tuple[int, ...]:
        """The levels of links that join members next to one another, or the last one to the first; from the inside out."""
        return tuple(sorted({self.between(i, (i + 1) % self.degree) for i in range(self.degree)} if self.degree > 1 else ()))


def groups(mesh: Mapping[str, int], along: Sequence[str], joins: Sequence[int]) -> tuple[Group, ...]:
    """The groups along some axes of a mesh, of which those that lie alike are told once.

    mesh: the degrees of its axes, from the innermost, along which neighbours have consecutive ranks, to the outermost. Device r of the
    cluster has rank r. joins: how many consecutive devices each level of links joins but the outermost, which joins all.
    """
    strides = dict(zip(mesh, accumulate(mesh.values(), mul, initial=1), strict=False))
    members = sorted(_ranks([(strides[a], mesh[a]) for a in mesh if a in along]))
    starts = _ranks([(strides[a], mesh[a]) for a in mesh if a not in along])
    return tuple(dict.fromkeys(_group([start + member for member in members], joins) for start in starts))


def ends(every: Sequence[Group], degree: int | None = None, inside: int = 1) -> tuple[Group, ...]:
    """Of each group the members that are first and last along an axis: furthest apart, they stand for the two of a pipeline that meet.

    degree: devices along that axis; None for the only axis that the groups lie along. inside: how many devices of a group the axes within
    it have together. All groups have the same degree.
    """
    last = (every[0].degree if degree is None else degree) - 1
    met = [i for i in range(every[0].degree) if i // inside % (last + 1) in (0, last)]
    return tuple(dict.fromkeys(Group(tuple(group.blocks[i] for i in met)) for group in every))


def _ranks(axes: Sequence[tuple[int, int]]) -> Iterator[int]:
    return (sum(c * stride for c, (stride, _) in zip(at, axes, strict=True)) for at in product(*(range(n) for _, n in axes)))


def _group(ranks: Sequence[int], joins: Sequence[int]) -> Group:
    columns = []
    for size in joins:
        order = {block: i for i, block in enumerate(dict.fromkeys(rank // size for rank in ranks))}
        columns.append([order[rank // size] for rank in ranks])
    return Group(tuple(zip(*columns, [0] * len(ranks), strict=True)))
