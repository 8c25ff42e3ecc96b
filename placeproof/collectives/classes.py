"""Rounds by classes of messages that are alike, instead of one by one: what the rounds of a large group take follows from where its blocks
begin.

In a round, all messages of a class have as many chunks, and go as far. How many of them each level of links carries is counted by the
blocks that have both ends of one: not by the devices. What a class says of an algorithm is what :mod:`placeproof.collectives.patterns`
lists; the tests compare the two for all small groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Protocol, TypeAlias

from placeproof.clusters import Group
from placeproof.collectives.patterns import folded_core, powers
from placeproof.collectives.rounds import Link


@dataclass(frozen=True, slots=True)
class Prices:
    """What messages cost over each level of links, in whole numbers of a unit, ``unit`` of which are a second: ``alpha`` a message,
    ``beta`` a chunk that is sent, ``gamma`` one that is added."""

    alpha: tuple[int, ...]
    beta: tuple[int, ...]
    gamma: int
    unit: int

    @staticmethod
    def of(links: Sequence[Link], size: Fraction, gamma: Fraction) -> Prices:
        """The prices of chunks of so many bytes."""
        exact = ([link.alpha for link in links], [link.beta * size for link in links], [gamma * size])
        unit = lcm(*(price.denominator for row in exact for price in row))
        alpha, beta, added = (tuple(int(price * unit) for price in row) for row in exact)
        return Prices(alpha, beta, added[0], unit)

    def message(self, level: int, chunks: int, added: int) -> int:
        """What a message takes, and adding what its receiver gets."""
        return self.alpha[level] + self.beta[level] * chunks + self.gamma * added


class Messages(Protocol):
    """The messages of a class."""

    def within(self, group: Group, level: int) -> int:
        """How many of them stay within a block of a level."""


@dataclass(frozen=True, slots=True)
class Turn:
    """From each of n devices to the one so many places further, round a ring."""

    distance: int

    def within(self, group: Group, level: int) -> int:
        """As :class:`Messages`."""
        n = group.degree
        there = self.distance % n
        back = n - there
        return sum(often * (max(0, size - there) + max(0, size - back)) for size, often in group.common[level].items())


@dataclass(frozen=True, slots=True)
class Step:
    """From each device of a range to the one so many places further; ``often`` is 2 where it answers at the same time."""

    sources: range
    distance: int
    often: int = 1

    def within(self, group: Group, level: int) -> int:
        """As :class:`Messages`."""
        ends = ((first, end - self.distance) for first, end in _longer(self.distance, group, level))
        return self.often * sum(max(0, self._below(end) - self._below(first)) for first, end in ends)

    def _below(self, device: int) -> int:
        first, stride = self.sources.start, self.sources.step
        return min(max(0, -((first - device) // stride)), len(self.sources))


@dataclass(frozen=True, slots=True)
class Exchange:
    """Between devices whose numbers differ in the bit ``w`` alone, both ways. ``folded``: of so many pairs in front only the first device
    takes part, and devices are numbered without the others."""

    w: int
    folded: int = 0

    def within(self, group: Group, level: int) -> int:
        """As :class:`Messages`."""
        ends = ((self._place(first), self._place(end) - self.w) for first, end in _longer(self.w, group, level))
        return 2 * sum(max(0, self._below(end) - self._below(first)) for first, end in ends)

    def _place(self, device: int) -> int:
        return (device + 1) // 2 if device <= 2 * self.folded else device - self.folded

    def _below(self, place: int) -> int:
        """How many places before it have not the bit."""
        whole, rest = divmod(place, 2 * self.w)
        return whole * self.w + min(rest, self.w)


def _longer(distance: int, group: Group, level: int) -> Iterable[tuple[int, int]]:
    """The blocks of a level, if some have two members so far apart."""
    return group.blocks(level) if max(group.common[level]) > distance else ()


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds that are alike: messages of some classes, each with its number of chunks, at the same time. ``added``: how many messages a
    device that receives some adds to its own."""

    classes: tuple[tuple[Messages, int], ...]
    times: int = 1
    added: int = 0

    def took(self, group: Group, prices: Prices) -> int:
        """Units that they take in a group: those of the slowest message, and of the sums that its receiver makes."""
        costs = (
            prices.message(level, chunks, self.added * chunks)
            for messages, chunks in self.classes
            for level, count in enumerate(_by_level(messages, group))
            if count
        )
        return self.times * max(costs, default=0)

    def carried(self, group: Group) -> tuple[int, ...]:
        """Chunks that all devices together send over each level of links."""
        rows = ([chunks * self.times * count for count in _by_level(messages, group)] for messages, chunks in self.classes)
        return tuple(map(sum, zip(*rows, strict=True)))


def _by_level(messages: Messages, group: Group) -> Iterator[int]:
    """How many messages of a class each level of links carries."""
    return (
        outer - inner for inner, outer in itertools.pairwise([0, *(messages.within(group, level) for level in range(len(group.starts)))])
    )


@dataclass(frozen=True, slots=True)
class Line:
    """Rounds in which devices next to one another pass on one chunk, each pair in rounds of its own.

    ``busy``: of the pair whose first device has a number, the first of its rounds, and the first one behind them. ``rounds``: in how many
    some pair does. ``times``: how often each pair does. ``added``: as of :class:`Rounds`.
    """

    busy: Callable[[int], tuple[int, int]]
    rounds: int
    times: int
    added: int = 0

    def took(self, group: Group, prices: Prices) -> int:
        """Units that they take in a group: of each round, those of the slowest level that some pair uses."""
        costs = sorted(((prices.message(level, 1, self.added), level) for level in group.used), reverse=True)
        total, covered, pairs = 0, 0, list[int]()
        for i, (cost, level) in enumerate(costs, start=1):
            pairs += group.joints(level) if i < len(costs) else ()
            reached = self.rounds if i == len(costs) else _covered(map(self.busy, sorted(pairs)))
            total, covered = total + cost * (reached - covered), reached
        return total

    def carried(self, group: Group) -> tuple[int, ...]:
        """As :meth:`Rounds.carried`."""
        return tuple(pairs * self.times for pairs in group.neighbours)


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """How many rounds are in one of some spans, which are in the order of their beginnings."""
    covered, upto = 0, 0
    for first, end in spans:
        covered, upto = covered + max(0, end - max(first, upto)), max(upto, end)
    return covered


#: What an algorithm does in its rounds, for n devices.
Classes: TypeAlias = Iterable[Rounds | Line]

# The algorithms, whose listings are in :mod:`placeproof.collectives.patterns`. ``adds``: of what runs backwards, with sums.


def ring(n: int, *, adds: bool = False) -> Classes:
    """Each device passes on what it got last, or the sum that it is part of."""
    return [Rounds(((Turn(1), 1),), times=n - 1, added=adds)]


def doubling(n: int, *, adds: bool = False) -> Classes:
    """Devices 1, 2, 4, ... apart exchange all that they have."""
    return [Rounds(((Exchange(w), w),), added=adds) for w in powers(n)]


def bruck(n: int) -> Classes:
    """Each device sends all that it has, or what is still missing, to the device 1, 2, 4, ... before it."""
    return [Rounds(((Turn(-w), min(w, n - w)),)) for w in powers(n)]


def neighbour_exchange(n: int) -> Classes:
    """Pairs of neighbours, first one chunk, then two with the other neighbour in turn."""
    even = Step(range(0, n, 2), 1, often=2)
    odd = Step(range(1, n - 1, 2), 1, often=2), Step(range(1), n - 1, often=2)
    further = n // 2 - 1
    return [Rounds(((even, 1),)), Rounds(tuple((one, 2) for one in odd), (further + 1) // 2), Rounds(((even, 2),), further // 2)]


def both_ways(n: int, *, adds: bool = False) -> Classes:
    """Blocks go both ways round a ring; in one round, they go one way."""
    return [Rounds(((Turn(1), 1), (Turn(-1), 1)), n // 2 - 1, added=2 * adds), Rounds(((Turn(1), 1),), added=adds)]


def line(n: int) -> Classes:
    """Blocks go both ways along a line: those of all devices over each of its links, from either end the nearer ones first."""
    return [Line(lambda place: (0, max(place, n - 2 - place) + 1), rounds=n - 1, times=n)]


def chain(n: int, *, segments: int, adds: bool = False) -> Classes:
    """Each device passes on one segment after the other, as soon as it has one."""
    return [Line(lambda place: (place, place + segments), rounds=n - 2 + segments, times=segments, added=adds)] if n > 1 else []


def tree(n: int, *, adds: bool = False) -> Classes:
    """A binomial tree, along which the whole tensor goes."""
    return [Rounds(((Step(range(0, n - w, 2 * w), w), 1),), added=adds) for w in powers(n)]


def tree_scatter(n: int) -> Classes:
    """A binomial tree, along which a device's half goes, or what there is of it behind the last device."""
    return [Rounds(tuple(_halves(n, w))) for w in powers(n)]


def _halves(n: int, w: int) -> Iterator[tuple[Messages, int]]:
    whole = range(0, n - 2 * w + 1, 2 * w)
    yield Step(whole, w), w
    last = len(whole) * 2 * w
    if last + w < n:
        yield Step(range(last, last + 1), w), n - last - w


def message(n: int) -> Classes:
    """One message, from device 0 to device 1."""
    return [Rounds(((Step(range(n - 1)[:1], 1), 1),))]


def pairwise(n: int) -> Classes:
    """Each device sends every other one what is for it."""
    return (Rounds(((Turn(distance), 1),)) for distance in range(1, n))


def bruck_all_to_all(n: int) -> Classes:
    """Half of everything travels 1, 2, 4, ... places. n is a power of two."""
    return [Rounds(((Turn(w), n // 2),)) for w in powers(n)]


def ring_all_to_all(n: int) -> Classes:
    """Everything travels one way round a ring, less of it in each round."""
    return (Rounds(((Turn(1), chunks),)) for chunks in range(1, n))


def both_ways_all_to_all(n: int) -> Classes:
    """Everything travels both ways round a ring, two chunks less in each round."""
    return (Rounds(((Turn(1), chunks), (Turn(-1), chunks))) for chunks in range(1, n, 2))


def doubling_all_reduce(n: int) -> Classes:
    """Devices 1, 2, 4, ... apart exchange their sums."""
    return [Rounds(((Exchange(w), 1),), added=1) for w in powers(n)]


def folded_all_reduce(n: int) -> Classes:
    """Halving and doubling among p devices, the largest power of two below n, with what the others have before and afterwards."""
    p = folded_core(n)
    folded, others = n - p, Step(range(0, 2 * (n - p), 2), 1)
    core = [(Exchange(w, folded), w) for w in powers(p)]
    fold = [Rounds(((replace(others, often=2), p // 2),), added=1), Rounds(((others, p // 2),))]
    return [*fold, *(Rounds((one,), added=adds) for adds in (1, 0) for one in core), Rounds(((others, p),))]
