"""Algorithms of collectives, what each takes in the alpha-beta-gamma model, and which is the fastest.

Each is a sequence of passes, whose rounds are in :mod:`placeproof.collectives.patterns`: the tests run them on chunks, and sum them up to
the closed forms for all sizes of groups up to a bound. Amounts are SymPy expressions or fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, isqrt, prod

from placeproof.clusters import Group
from placeproof.collectives import passes
from placeproof.collectives.passes import Pass, Size, Terms, power_of_two, summed, summed_by_level
from placeproof.collectives.patterns import Rounds, backwards, levels_all_gather, levels_all_to_all, steps
from placeproof.collectives.rounds import Link, Plan
from placeproof.collectives.table import A


@dataclass(frozen=True, slots=True)
class Condition:
    """For which numbers of devices an algorithm is, in words and as a test."""

    text: str
    holds: Callable[[int], bool]


ANY = Condition("any n", lambda n: n >= 1)
SOME = Condition("n >= 2", lambda n: n >= 2)
EVEN = Condition("n even", lambda n: n >= 2 and n % 2 == 0)
POWER = Condition("n a power of two", lambda n: n >= 1 and power_of_two(n))
NO_POWER = Condition("n no power of two", lambda n: n >= 1 and not power_of_two(n))


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """An algorithm of one collective.

    ``condition``: the numbers of devices n that it is for, and its closed form with it. ``ports``: links that a device uses at once.
    ``neighbours``: whether messages go between neighbours of a ring only.
    """

    kind: str
    name: str
    source: str
    passes: tuple[Pass, ...]
    condition: Condition = ANY
    ports: int = 1
    neighbours: bool = False

    def admits(self, sizes: Sequence[int]) -> bool:
        """Whether it is for as many devices. sizes: see :meth:`by_level`; [n] for n devices of one level."""
        return self.condition.holds(prod(sizes))

    def terms(self, n: A, k: A, s: A) -> Terms[A]:
        """The closed form for s bytes over n devices, on links that are all alike; k is log2 n, rounded up where n is no power of two."""
        return summed(one.terms(Size(n, k, s)) for one in self.passes)

    def at(self, n: int, s: Fraction) -> Terms[Fraction]:
        """The closed form at n devices."""
        return self.terms(Fraction(n), Fraction(steps(n)), s)

    def by_level(self, sizes: Sequence[A], exponents: Sequence[A], s: A) -> tuple[Terms[A], ...] | None:
        """The closed form over levels of links, see :meth:`placeproof.collectives.passes.Pass.by_level`; None where there is none."""
        return summed_by_level(one.by_level(sizes, exponents, s) for one in self.passes)

    def carried(self, group: Group, s: Fraction) -> tuple[Fraction, ...]:
        """Bytes that a device sends over each level, as the mean over the devices of a group."""
        return tuple(sum(rows) for rows in zip(*(one.carried(group, s) for one in self.passes), strict=True))

    def plan(self, sizes: Sequence[int]) -> Plan:
        """Its rounds for as many devices."""
        n = prod(sizes)
        parts = {one.cut(n) for one in self.passes}
        assert len(parts) == 1, f"the passes of {self.name} cut s alike"
        return Plan(kind=self.kind, devices=n, parts=parts.pop(), rounds=tuple(r for one in self.passes for r in one.rounds(n)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Levelled:
    """An algorithm that goes level by level: on each, the passes of ``inwards`` (from the outermost) and ``outwards`` (to it).

    ``shrinks``: whether a level's share of s is what the levels within leave of it; in an all-to-all, each level moves all that is held.
    """

    kind: str
    name: str
    source: str
    outwards: tuple[Pass, ...]
    inwards: tuple[Pass, ...]
    arrange: Callable[[Sequence[int]], Rounds]
    neighbours: bool = True
    shrinks: bool = True
    ports: int = 1

    def admits(self, sizes: Sequence[int]) -> bool:
        """Whether there are two levels at least; else it is the algorithm of the one level."""
        return sum(size != 1 for size in sizes) >= 2

    def by_level(self, sizes: Sequence[A], exponents: Sequence[A], s: A) -> tuple[Terms[A], ...] | None:
        """The closed form over levels: on each, that of its passes alone."""
        levels, share = [], s
        for size, exponent in zip(sizes, exponents, strict=True):
            levels.append(summed(one.terms(Size(size, exponent, share)) for one in (*self.outwards, *self.inwards)))
            share = share / size if self.shrinks else share
        return tuple(levels)

    def carried(self, group: Group, s: Fraction) -> tuple[Fraction, ...]:
        """Bytes that each device sends over each level: all send alike."""
        assert group.sizes is not None, "it is for groups whose blocks are alike"
        counted = [Fraction(size) for size in group.sizes], [Fraction(steps(size)) for size in group.sizes]
        terms = self.by_level(*counted, s)
        assert terms is not None
        return tuple(one.sent for one in terms)

    def plan(self, sizes: Sequence[int]) -> Plan:
        """Its rounds; device d lies in block d // (sizes[0] ... sizes[l-1]) of level l."""
        n = prod(sizes)
        return Plan(kind=self.kind, devices=n, parts=n, rounds=tuple(self.arrange(sizes)))


def _scatter_and_gather(sizes: Sequence[int]) -> Rounds:
    gather = levels_all_gather(sizes)
    return [*backwards(gather), *gather]


# fmt: off
_THAKUR, _CHAN, _BRUCK, _AUSTIN = "thakur2005", "chan2007collective", "bruck1997efficient", "austin2025scale"
_ROWS: tuple[Algorithm | Levelled, ...] = (
    Algorithm(kind="all_reduce", name="ring", source="thakur2005; patarasuk2009", passes=(passes.RING_SCATTER, passes.RING_GATHER),
              neighbours=True),
    Algorithm(kind="all_reduce", name="halving_doubling", source="rabenseifner2004; thakur2005", passes=(passes.HALVING, passes.DOUBLING),
              condition=POWER),
    Algorithm(kind="all_reduce", name="folded", source="rabenseifner2004", passes=(passes.FOLDED,), condition=NO_POWER),
    Algorithm(kind="all_reduce", name="doubling", source=_THAKUR, passes=(passes.DOUBLING_ALL_REDUCE,), condition=POWER),
    Algorithm(kind="all_reduce", name="tree", source=_THAKUR, passes=(passes.TREE_REDUCE, passes.TREE_BROADCAST)),
    Algorithm(kind="all_reduce", name="bidirectional", source=_AUSTIN, passes=(passes.BOTH_WAYS_SCATTER, passes.BOTH_WAYS_GATHER),
              condition=EVEN, ports=2, neighbours=True),
    Levelled(kind="all_reduce", name="hierarchical", source="cho2019blueconnect", outwards=(passes.RING_SCATTER,),
             inwards=(passes.RING_GATHER,), arrange=_scatter_and_gather),

    Algorithm(kind="reduce_scatter", name="ring", source=_CHAN, passes=(passes.RING_SCATTER,), neighbours=True),
    Algorithm(kind="reduce_scatter", name="halving", source=_THAKUR, passes=(passes.HALVING,), condition=POWER),
    Algorithm(kind="reduce_scatter", name="bidirectional", source=_AUSTIN, passes=(passes.BOTH_WAYS_SCATTER,), condition=EVEN, ports=2,
              neighbours=True),
    Levelled(kind="reduce_scatter", name="hierarchical", source="cho2019blueconnect", outwards=(passes.RING_SCATTER,), inwards=(),
             arrange=lambda sizes: backwards(levels_all_gather(sizes))),

    Algorithm(kind="all_gather", name="ring", source=_THAKUR, passes=(passes.RING_GATHER,), neighbours=True),
    Algorithm(kind="all_gather", name="doubling", source=_THAKUR, passes=(passes.DOUBLING,), condition=POWER),
    Algorithm(kind="all_gather", name="bruck", source=_BRUCK, passes=(passes.BRUCK_GATHER,)),
    Algorithm(kind="all_gather", name="neighbour_exchange", source="chen2005allgather", passes=(passes.NEIGHBOUR_EXCHANGE,),
              condition=EVEN, neighbours=True),
    Algorithm(kind="all_gather", name="bidirectional", source=_AUSTIN, passes=(passes.BOTH_WAYS_GATHER,), condition=EVEN, ports=2,
              neighbours=True),
    Algorithm(kind="all_gather", name="line", source=_AUSTIN, passes=(passes.LINE_GATHER,), ports=2, neighbours=True),
    Levelled(kind="all_gather", name="hierarchical", source="cho2019blueconnect", outwards=(), inwards=(passes.RING_GATHER,),
             arrange=levels_all_gather),

    Algorithm(kind="all_to_all", name="pairwise", source=_THAKUR, passes=(passes.PAIRWISE,)),
    Algorithm(kind="all_to_all", name="bruck", source="bruck1997efficient; thakur2005", passes=(passes.BRUCK_ALL_TO_ALL,),
              condition=POWER),
    Algorithm(kind="all_to_all", name="ring", source=_AUSTIN, passes=(passes.RING_ALL_TO_ALL,), neighbours=True),
    Algorithm(kind="all_to_all", name="bidirectional", source=_AUSTIN, passes=(passes.BOTH_WAYS_ALL_TO_ALL,), condition=EVEN, ports=2,
              neighbours=True),
    Levelled(kind="all_to_all", name="hierarchical", source="rajbhandari2022moe", outwards=(passes.PAIRWISE,), inwards=(),
             arrange=levels_all_to_all, shrinks=False, neighbours=False),

    Algorithm(kind="broadcast", name="tree", source=_THAKUR, passes=(passes.TREE_BROADCAST,)),
    Algorithm(kind="broadcast", name="scatter_gather", source=_THAKUR, passes=(passes.TREE_SCATTER, passes.RING_GATHER)),
    Algorithm(kind="broadcast", name="chain", source="patarasuk2009", passes=(passes.chain(1, adds=False),), condition=SOME,
              neighbours=True),
    Algorithm(kind="reduce", name="tree", source=_THAKUR, passes=(passes.TREE_REDUCE,)),
    Algorithm(kind="reduce", name="chain", source="patarasuk2009", passes=(passes.chain(1, adds=True),), condition=SOME, neighbours=True),
    Algorithm(kind="scatter", name="tree", source=_CHAN, passes=(passes.TREE_SCATTER,)),
    Algorithm(kind="send", name="message", source=_THAKUR, passes=(passes.MESSAGE,), condition=SOME, neighbours=True),
)
# fmt: on

#: The algorithms of each collective, by name. Where two are equally fast, the first is taken.
ALGORITHMS: dict[str, dict[str, Algorithm | Levelled]] = {
    kind: {row.name: row for row in _ROWS if row.kind == kind} for kind in dict.fromkeys(row.kind for row in _ROWS)
}


def pipelined(kind: str, segments: int) -> Algorithm:
    """A broadcast or a reduce along a chain, in equal segments that follow one another."""
    assert kind in ("broadcast", "reduce")
    assert segments >= 1
    along = passes.chain(segments, adds=kind == "reduce")
    return Algorithm(kind=kind, name=f"chain({segments})", source="patarasuk2009", passes=(along,), condition=SOME, neighbours=True)


def segments(kind: str, n: int, s: Fraction, link: Link, gamma: Fraction = Fraction(0)) -> int:
    """Into how many segments a chain takes the least time: the whole number beside sqrt((n - 2) s (beta + gamma) / alpha), 1 at least and
    one a byte at most; gamma counts for a reduce."""
    each = s * (link.beta + (gamma if kind == "reduce" else 0))
    most = max(1, ceil(s))
    if n <= 2 or link.alpha == 0:
        return 1 if n <= 2 else most
    below = min(max(1, isqrt(floor((n - 2) * each / link.alpha))), most)
    return min((below, min(below + 1, most)), key=lambda c: (n - 2 + c) * (link.alpha + each / c))


def best(kind: str, n: int, s: Fraction, link: Link, gamma: Fraction = Fraction(0)) -> Algorithm:
    """The fastest algorithm for s bytes over n devices on links that are all alike; gamma: seconds for each byte that is added.

    Among those whose closed form holds for n, and that the links have ports and neighbours for; with the best chain, for a broadcast or a
    reduce. Raises KeyError for an unknown kind, and ValueError where the links suit no algorithm.
    """
    flat = [one for one in ALGORITHMS[kind].values() if isinstance(one, Algorithm)]
    if "chain" in ALGORITHMS[kind]:
        flat.append(pipelined(kind, segments(kind, n, s, link, gamma)))
    fit = (one for one in flat if one.admits([n]) and runs_on(one, [link]))
    return min(fit, key=lambda one: one.at(n, s).seconds(link.alpha, link.beta, gamma))


def runs_on(algorithm: Algorithm | Levelled, links: Sequence[Link]) -> bool:
    """Whether links have the ports that an algorithm uses, and join the devices that it sends between."""
    return all(algorithm.ports <= link.ports and (algorithm.neighbours or not link.ring) for link in links)


def crossover(algorithm: Algorithm, other: Algorithm, n: A, k: A, alpha: A, beta: A, gamma: A) -> A:
    """The bytes for which two algorithms take the same time, on links that are all alike; n and k as for :meth:`Algorithm.terms`.

    Both times are linear in the bytes, so that there is one such size at most. On one side of 0 it is an answer; a negative one says
    that one algorithm is always faster. Raises ZeroDivisionError for fractions, and gives ``zoo`` for expressions, where the bytes of
    both take equally long.
    """
    mine, theirs = algorithm.terms(n, k, n / n), other.terms(n, k, n / n)
    each = (mine.sent - theirs.sent) * beta + (mine.added - theirs.added) * gamma
    return (theirs.messages - mine.messages) * alpha / each
