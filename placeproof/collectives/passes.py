"""Passes: what collectives are made of, each with its rounds and with the closed form of its time.

A closed form counts what the slowest device of each round does, summed over the rounds: messages, bytes sent over one port, and bytes
added. Amounts are SymPy expressions or fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial, reduce
from itertools import accumulate, pairwise
from math import prod
from numbers import Rational
from operator import add, mul
from typing import Any, Generic

from placeproof.clusters import Group
from placeproof.collectives import classes, patterns
from placeproof.collectives.classes import Classes, Prices
from placeproof.collectives.patterns import Rounds, backwards, steps
from placeproof.collectives.rounds import Link
from placeproof.collectives.table import A


@dataclass(frozen=True, slots=True)
class Terms(Generic[A]):
    """A time in the alpha-beta-gamma model: messages one after the other, bytes sent one after the other, bytes added."""

    messages: A
    sent: A
    added: A

    def seconds(self, alpha: A, beta: A, gamma: A) -> A:
        """Seconds, for alpha seconds a message, beta a byte sent and gamma a byte added."""
        return self.messages * alpha + self.sent * beta + self.added * gamma

    def __add__(self, other: Terms[A]) -> Terms[A]:
        return Terms(self.messages + other.messages, self.sent + other.sent, self.added + other.added)

    def __sub__(self, other: Terms[A]) -> Terms[A]:
        return Terms(self.messages - other.messages, self.sent - other.sent, self.added - other.added)


def summed(terms: Iterable[Terms[A]]) -> Terms[A]:
    """Terms of what is done one after the other."""
    return reduce(add, terms)


def summed_by_level(passes: Iterable[tuple[Terms[A], ...] | None]) -> tuple[Terms[A], ...] | None:
    """The same on each level of links; None where one of the passes has no closed form."""
    every = list(passes)
    known = [terms for terms in every if terms is not None]
    return tuple(map(summed, zip(*known, strict=True))) if len(known) == len(every) else None


@dataclass(frozen=True, slots=True)
class Size(Generic[A]):
    """What a closed form speaks of: s bytes over n devices; k is log2 n, rounded up where n is no power of two."""

    n: A
    k: A
    s: A

    @property
    def others(self) -> A:
        """What is not a device's own: n - 1 of n parts of s."""
        return self.s * (self.n - 1) / self.n

    @property
    def none(self) -> A:
        """Nothing."""
        return self.s - self.s


class Pattern(Enum):
    """Which messages of a pass leave a block of neighbouring devices, such as a node.

    RING and SHIFTS: some of each round, of a device that sends to its next neighbour or to each other one once; CYCLIC: some of each
    round, otherwise. EXCHANGES: all of the rounds between blocks and none of the others, of devices that all send alike; TREE: the same,
    but few devices send. CHAIN: those of devices next to one another that have something to pass on. OTHER: none of these.
    """

    RING = "ring"
    SHIFTS = "shifts"
    CYCLIC = "cyclic"
    EXCHANGES = "exchanges"
    TREE = "tree"
    CHAIN = "chain"
    OTHER = "other"

    @property
    def crosses_each_round(self) -> bool:
        """Whether some message of each round leaves its block, however many devices are in the blocks."""
        return self in (Pattern.RING, Pattern.SHIFTS, Pattern.CYCLIC)

    @property
    def mixes_levels(self) -> bool:
        """Whether messages of one round go over links of different levels."""
        return self.crosses_each_round or self is Pattern.CHAIN

    @property
    def nested(self) -> bool:
        """Whether the rounds within blocks are those of a smaller group, if blocks hold a power of two of devices."""
        return self in (Pattern.EXCHANGES, Pattern.TREE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of a collective.

    ``rounds``: what is sent, for n devices; ``classes``: the same by classes of messages; ``cut``: into how many chunks, for n devices.
    ``terms``: the closed form. ``grows``: of nested rounds, whether those within a block of p devices move p n-ths of s; else they move s.
    """

    rounds: Callable[[int], Rounds]
    classes: Callable[[int], Classes]
    terms: Callable[[Size[Any]], Terms[Any]]
    pattern: Pattern
    cut: Callable[[int], int] = lambda n: n
    grows: bool = True

    def by_level(self, sizes: Sequence[A], exponents: Sequence[A], s: A) -> tuple[Terms[A], ...] | None:
        """The closed form over levels of links: which of its terms each level takes; None where there is none.

        sizes: how many blocks of a level the next one joins, from the inside out; exponents: their logarithms. Where a pass crosses
        blocks in each round, and along a chain, a level is to be no faster than those within. Of nested rounds, all sizes but the
        outermost that is not 1 are to be powers of two, as symbols are taken to be. That of a chain is for numbers only.
        """
        used = [level for level, size in enumerate(sizes) if not _is_one(size)] or [0]
        n, k = _whole(sizes, exponents)
        whole = self.terms(Size(n, k, s))
        if len(used) == 1 or self.pattern.crosses_each_round:
            return tuple(whole if level == used[-1] else whole - whole for level in range(len(sizes)))
        if self.pattern is Pattern.CHAIN and None not in (numbers := [_number(size) for size in sizes]):
            return _along(whole, self.cut(1), [number for number in numbers if number is not None])
        if not self.pattern.nested or not all(_can_nest(sizes[level]) for level in used[:-1]):
            return None
        terms, within, upto, exponent = [], whole - whole, n / n, k - k
        for size, more in zip(sizes, exponents, strict=True):
            upto, exponent = upto * size, exponent + more
            reached = self.terms(Size(upto, exponent, s * upto / n if self.grows else s))
            terms.append(reached - within)
            within = reached
        return tuple(terms)

    def seconds(self, group: Group, s: Fraction, links: Sequence[Link], gamma: Fraction) -> Fraction:
        """Seconds of s bytes in a group, the sum over its rounds; as :meth:`placeproof.collectives.rounds.Plan.seconds`."""
        prices = Prices.of(links, s / self.cut(group.degree), gamma)
        return Fraction(sum(one.took(group, prices) for one in self.classes(group.degree)), prices.unit)

    def carried(self, group: Group, s: Fraction) -> tuple[Fraction, ...]:
        """Bytes that a device sends over each level, as the mean over the devices of a group."""
        n, nothing = group.degree, [0 for _ in group.starts]
        chunks = zip(nothing, *(one.carried(group) for one in self.classes(n)), strict=True)
        return tuple(s * sum(counts) / (self.cut(n) * n) for counts in chunks)


def _along(whole: Terms[A], segments: int, sizes: Sequence[int]) -> tuple[Terms[A], ...]:
    """The terms of a chain over levels: in how many of its rounds the outermost link that something passes is of a level.

    The ends of blocks of p devices are p places apart, and each is passed in as many rounds as there are segments.
    """
    n = prod(sizes)
    blocks = [n // upto for upto in accumulate(sizes, mul, initial=1)]
    reached = [0 if b < 2 else min(n // b, segments) * (b - 2) + segments for b in blocks]
    shares = [(mine - beyond, reached[0]) for mine, beyond in pairwise(reached)]
    return tuple(Terms(*(part * a / b for part in (whole.messages, whole.sent, whole.added))) for a, b in shares)


def _is_one(size: object) -> bool:
    return bool(size == 1)


def _whole(sizes: Sequence[A], exponents: Sequence[A]) -> tuple[A, A]:
    """n and k of all levels together. Exponents of symbols add up, as for powers of two."""
    n = prod(sizes[1:], start=sizes[0])
    number = _number(n)
    return n, sum(exponents[1:], start=exponents[0]) if number is None else n - n + steps(number)


def _number(size: object) -> int | None:
    return int(size.numerator) if isinstance(size, Rational) else None


def _can_nest(size: object) -> bool:
    number = _number(size)
    return number is None or power_of_two(number)


def power_of_two(n: int) -> bool:
    """Whether n is 1, 2, 4, ..."""
    return n & (n - 1) == 0


def _adding(rounds: Callable[[int], Rounds]) -> Callable[[int], Rounds]:
    return lambda n: backwards(rounds(n))


def _one_chunk(n: int) -> int:
    return 1


def _two_chunks_each(n: int) -> int:
    return 2 * n


# fmt: off
RING_GATHER = Pass(rounds=patterns.ring_all_gather, classes=classes.ring,
                   pattern=Pattern.RING,
                   terms=lambda x: Terms(x.n - 1, x.others, x.none))
RING_SCATTER = Pass(rounds=patterns.ring_reduce_scatter, classes=partial(classes.ring, adds=True),
                    pattern=Pattern.RING,
                    terms=lambda x: Terms(x.n - 1, x.others, x.others))
DOUBLING = Pass(rounds=patterns.doubling_all_gather, classes=classes.doubling,
                pattern=Pattern.EXCHANGES,
                terms=lambda x: Terms(x.k, x.others, x.none))
HALVING = Pass(rounds=_adding(patterns.doubling_all_gather), classes=partial(classes.doubling, adds=True),
               pattern=Pattern.EXCHANGES,
               terms=lambda x: Terms(x.k, x.others, x.others))
BRUCK_GATHER = Pass(rounds=patterns.bruck_all_gather, classes=classes.bruck,
                    pattern=Pattern.CYCLIC,
                    terms=lambda x: Terms(x.k, x.others, x.none))
NEIGHBOUR_EXCHANGE = Pass(rounds=patterns.neighbour_exchange, classes=classes.neighbour_exchange,
                          pattern=Pattern.OTHER,
                          terms=lambda x: Terms(x.n / 2, x.others, x.none))
BOTH_WAYS_GATHER = Pass(rounds=patterns.both_ways_all_gather, classes=classes.both_ways,
                        pattern=Pattern.CYCLIC,
                        terms=lambda x: Terms(x.n / 2, x.s / 2, x.none))
BOTH_WAYS_SCATTER = Pass(rounds=_adding(patterns.both_ways_all_gather), classes=partial(classes.both_ways, adds=True),
                         pattern=Pattern.CYCLIC,
                         terms=lambda x: Terms(x.n / 2, x.s / 2, x.others))
LINE_GATHER = Pass(rounds=patterns.line_all_gather, classes=classes.line,
                   pattern=Pattern.OTHER,
                   terms=lambda x: Terms(x.n - 1, x.others, x.none))

TREE_BROADCAST = Pass(rounds=patterns.tree_broadcast, classes=classes.tree,
                      pattern=Pattern.TREE, cut=_one_chunk, grows=False,
                      terms=lambda x: Terms(x.k, x.s * x.k, x.none))
TREE_REDUCE = Pass(rounds=_adding(patterns.tree_broadcast), classes=partial(classes.tree, adds=True),
                   pattern=Pattern.TREE, cut=_one_chunk, grows=False,
                   terms=lambda x: Terms(x.k, x.s * x.k, x.s * x.k))
TREE_SCATTER = Pass(rounds=patterns.tree_scatter, classes=classes.tree_scatter,
                    pattern=Pattern.TREE,
                    terms=lambda x: Terms(x.k, x.others, x.none))
MESSAGE = Pass(rounds=patterns.message, classes=classes.message,
               pattern=Pattern.OTHER, cut=_one_chunk,
               terms=lambda x: Terms(x.n / x.n, x.s, x.none))

PAIRWISE = Pass(rounds=patterns.pairwise, classes=classes.pairwise,
                pattern=Pattern.SHIFTS,
                terms=lambda x: Terms(x.n - 1, x.others, x.none))
BRUCK_ALL_TO_ALL = Pass(rounds=patterns.bruck_all_to_all, classes=classes.bruck_all_to_all,
                        pattern=Pattern.CYCLIC,
                        terms=lambda x: Terms(x.k, x.s * x.k / 2, x.none))
RING_ALL_TO_ALL = Pass(rounds=patterns.ring_all_to_all, classes=classes.ring_all_to_all,
                       pattern=Pattern.CYCLIC,
                       terms=lambda x: Terms(x.n - 1, x.s * (x.n - 1) / 2, x.none))
BOTH_WAYS_ALL_TO_ALL = Pass(rounds=patterns.both_ways_all_to_all, classes=classes.both_ways_all_to_all,
                            pattern=Pattern.CYCLIC, cut=_two_chunks_each,
                            terms=lambda x: Terms(x.n / 2, x.s * x.n / 8, x.none))

DOUBLING_ALL_REDUCE = Pass(rounds=patterns.doubling_all_reduce, classes=classes.doubling_all_reduce,
                           pattern=Pattern.EXCHANGES, cut=_one_chunk, grows=False,
                           terms=lambda x: Terms(x.k, x.s * x.k, x.s * x.k))
FOLDED = Pass(rounds=patterns.folded_all_reduce, classes=classes.folded_all_reduce,
              pattern=Pattern.OTHER, cut=patterns.folded_core,
              terms=lambda x: _folded(x.k - 1, 2 ** (x.k - 1), x.s))
# fmt: on


def _folded(k: Any, p: Any, s: Any) -> Terms[Any]:
    """Halving and doubling among p = 2^k devices, and three messages before and after: two of half the tensor, and one of it all."""
    return Terms(k * 2 + 3, s * 4 - s * 2 / p, s * 3 / 2 - s / p)


def chain(segments: int, *, adds: bool) -> Pass:
    """A broadcast along a chain, or a reduce, in equal segments. Two devices or more."""

    def terms(x: Size[Any]) -> Terms[Any]:
        rounds = x.n - 2 + segments
        return Terms(rounds, x.s * rounds / segments, x.s * rounds / segments if adds else x.none)

    def cut(n: int) -> int:
        return segments

    rounds, alike = patterns.chain_broadcast(segments), partial(classes.chain, segments=segments, adds=adds)
    return Pass(rounds=_adding(rounds) if adds else rounds, classes=alike, pattern=Pattern.CHAIN, cut=cut, terms=terms)
