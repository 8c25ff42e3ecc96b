"""How long an exchange takes on a cluster: its group, the levels of links that the group uses, and an algorithm.

A time is exact in the model of :mod:`placeproof.collectives.rounds`: each device sends over links of its own, all groups of an axis at
the same time, and nothing else is on the links. Where a closed form over levels holds, it is taken; else the rounds are
summed up, by classes of messages that are alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from placeproof.clusters import Cluster, Group, ends
from placeproof.collectives.algorithms import ALGORITHMS, Algorithm, Levelled, pipelined, runs_on, segments
from placeproof.collectives.passes import Pass, Terms, summed_by_level
from placeproof.collectives.patterns import steps
from placeproof.collectives.rounds import Link
from placeproof.core.diagnostics import refuse, suggestion
from placeproof.core.exchange import Exchange

if TYPE_CHECKING:
    import sympy

#: Operations of step programs that are timed as another collective: the two ends of a pipeline add their gradients, and a step round a ring
#: is a message to the next device.
TIMED_AS: Mapping[str, str] = {"tied_reduce": "all_reduce", "shift": "send"}

#: Groups up to this size are compared by algorithms whose rounds have to be summed up too.
SUMMED_UP = 128


#: Chunks of all rounds whose senders are told one by one, at most: some ten seconds.
LISTED = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What an exchange takes: ``seconds``, by which algorithm, in the slowest of its groups."""

    seconds: Fraction
    algorithm: str
    group: Group


def links(cluster: Cluster) -> tuple[Link, ...]:
    """A cluster's levels of links as the model sees them, from the inside out."""
    return tuple(Link(alpha=one.latency, beta=1 / one.bandwidth, ports=one.ports, ring=one.ring) for one in cluster.levels)


def exchange_time(exchange: Exchange, mesh: Mapping[str, int], cluster: Cluster, algorithm: str | None = None) -> Timed:
    """The time of one exchange, in the slowest of its groups; by the fastest algorithm, or by the one of that name.

    mesh: as for :meth:`placeproof.clusters.Cluster.groups`. A receive takes no time of its own. Raises InputError for an unknown axis or
    algorithm, and where no algorithm is for such groups and links.
    """
    groups = cluster.groups(mesh, exchange.axes)
    if exchange.kind == "recv":
        return Timed(seconds=Fraction(0), algorithm="message", group=groups[0])
    if exchange.kind == "tied_reduce":
        groups = ends(groups)
    return fastest(TIMED_AS.get(exchange.kind, exchange.kind), groups, Fraction(exchange.bytes), cluster, algorithm)


def fastest(kind: str, groups: Sequence[Group], s: Fraction, cluster: Cluster, algorithm: str | None = None) -> Timed:
    """The time of a collective of s bytes in the slowest of some groups, by the algorithm whose slowest group is the fastest.

    In groups of more than :data:`SUMMED_UP` devices, algorithms without a closed form are left out where others are for them. Raises
    InputError for an unknown algorithm, and where none is for such groups and links.
    """
    level = links(cluster)
    if all(group.degree == 1 for group in groups):
        return Timed(seconds=Fraction(0), algorithm=algorithm or next(iter(ALGORITHMS[kind])), group=groups[0])
    rows = _named(kind, algorithm) if algorithm else [*_named(kind, None), *_chains(kind, groups, s, cluster)]
    fit = _fitting(rows, groups, level)
    timings = [(*max((seconds(one, group, s, level, cluster.reduction), i) for i, group in enumerate(groups)), one.name) for one in fit]
    if not timings:
        wanted = f"`{algorithm}` is no algorithm" if algorithm else "there is no algorithm"
        refuse("PP104", f"{wanted} of {kind} for such groups and links", help="docs/how-to/time.md says what each algorithm needs")
    took, slowest, name = min(timings, key=lambda row: row[0])
    return Timed(seconds=took, algorithm=name, group=groups[slowest])


def admitted(kind: str, groups: Sequence[Group], cluster: Cluster) -> list[Algorithm | Levelled]:
    """The algorithms of a collective that are compared in some groups; chains apart, whose segments depend on the bytes."""
    return _fitting(_named(kind, None), groups, links(cluster))


def _fitting(rows: Sequence[Algorithm | Levelled], groups: Sequence[Group], level: Sequence[Link]) -> list[Algorithm | Levelled]:
    fit = [one for one in rows if all(_admits(one, group, level) for group in groups)]
    if max(group.degree for group in groups) > SUMMED_UP:
        fit = [one for one in fit if all(by_level(one, group, Fraction(1), level) for group in groups)] or fit
    return fit


def _named(kind: str, name: str | None) -> list[Algorithm | Levelled]:
    rows = ALGORITHMS[kind]
    if name is not None and name not in rows:
        refuse("PP101", f"{kind} has no algorithm `{name}`", help=suggestion(name, rows) or "its algorithms: " + ", ".join(rows))
    return [rows[name]] if name is not None else list(rows.values())


def _chains(kind: str, groups: Sequence[Group], s: Fraction, cluster: Cluster) -> list[Algorithm]:
    """The chain with the number of segments that is the best on the groups' outermost links, where blocks are alike."""
    if "chain" not in ALGORITHMS[kind] or any(group.sizes is None for group in groups):
        return []
    largest = max(groups, key=lambda group: group.used[-1:])
    return [pipelined(kind, segments(kind, largest.degree, s, links(cluster)[largest.used[-1]], cluster.reduction))]


def _admits(algorithm: Algorithm | Levelled, group: Group, level: Sequence[Link]) -> bool:
    sizes = _sizes(algorithm, group)
    return sizes is not None and algorithm.admits(sizes) and runs_on(algorithm, [level[used] for used in group.used])


def _sizes(algorithm: Algorithm | Levelled, group: Group) -> tuple[int, ...] | None:
    """The sizes of a group's levels; of one whose blocks differ, its degree alone, with which a flat algorithm can do."""
    return group.sizes if group.sizes is not None or isinstance(algorithm, Levelled) else (group.degree,)


def seconds(algorithm: Algorithm | Levelled, group: Group, s: Fraction, level: Sequence[Link], gamma: Fraction = Fraction(0)) -> Fraction:
    """Seconds of s bytes in a group by an algorithm that is for it; level: the cluster's links from the inside out.

    A pass that has no closed form there is summed up by its rounds, see :mod:`placeproof.collectives.classes`.
    """
    if algorithm.kind == "send":
        return max((level[used].alpha + s * level[used].beta for used in group.used), default=Fraction(0))
    if isinstance(algorithm, Levelled):
        terms = by_level(algorithm, group, s, level)
        assert terms is not None, "it is for groups whose blocks are alike"
        return _summed(terms, level, gamma)
    return sum((_pass_seconds(each, group, s, level, gamma) for each in algorithm.passes), Fraction(0))


def _pass_seconds(pass_: Pass, group: Group, s: Fraction, level: Sequence[Link], gamma: Fraction) -> Fraction:
    if (terms := _pass_by_level(pass_, group, s, level)) is not None:
        return _summed(terms, level, gamma)
    return pass_.seconds(group, s, level, gamma)


def _summed(terms: Sequence[Terms[Fraction]], level: Sequence[Link], gamma: Fraction) -> Fraction:
    return sum((t.seconds(link.alpha, link.beta, gamma) for t, link in zip(terms, level, strict=True)), Fraction(0))


def by_level(algorithm: Algorithm | Levelled, group: Group, s: Fraction, level: Sequence[Link]) -> tuple[Terms[Fraction], ...] | None:
    """The closed form in a group, over the cluster's levels of links; None where there is none."""
    if isinstance(algorithm, Levelled):
        return algorithm.by_level(*_counted(group.sizes), s) if group.sizes is not None else None
    return summed_by_level(_pass_by_level(each, group, s, level) for each in algorithm.passes)


def _pass_by_level(pass_: Pass, group: Group, s: Fraction, level: Sequence[Link]) -> tuple[Terms[Fraction], ...] | None:
    if pass_.pattern.mixes_levels and not _slower_outwards(group, level):
        return None
    if group.sizes is not None:
        return pass_.by_level(*_counted(group.sizes), s)
    if pass_.pattern.crosses_each_round:
        alone = [group.degree if i == group.used[-1] else 1 for i in range(len(level))]
        return pass_.by_level(*_counted(alone), s)
    return None


def _counted(sizes: Sequence[int]) -> tuple[list[Fraction], list[Fraction]]:
    return [Fraction(size) for size in sizes], [Fraction(steps(size)) for size in sizes]


def _slower_outwards(group: Group, level: Sequence[Link]) -> bool:
    """Whether each of the levels that a group uses is no faster than those within."""
    used = [level[i] for i in group.used]
    return all(one.alpha <= other.alpha and one.beta <= other.beta for one, other in pairwise(used))


def traffic(algorithm: Algorithm | Levelled, group: Group, s: Fraction) -> tuple[tuple[Fraction, ...], ...]:
    """Bytes that each member of a group sends over each level of links, from the inside out, by the rounds.

    Raises InputError (PP103) where more than :data:`LISTED` chunks would have to be listed one by one.
    """
    cut = group.degree if isinstance(algorithm, Levelled) else algorithm.passes[0].cut(group.degree)
    chunks = int(sum(algorithm.carried(group, Fraction(cut * group.degree))))
    if chunks > LISTED:
        sent = f"{algorithm.kind} by {algorithm.name} among {group.degree:,} devices sends {chunks:,} chunks"
        refuse(
            "PP103",
            f"{sent}, and at most {LISTED:,} are listed",
            help="take a smaller group, or the mean over its devices: `algorithm.carried(group, s)`",
        )
    return algorithm.plan(_sizes(algorithm, group) or ()).sent_over(len(group.starts), group.between, s)


def formula(kind: str, algorithm: str, levels: int = 1) -> sympy.Expr | None:
    """Seconds as an expression; None where an algorithm has no closed form over several levels.

    On one level in n (devices), k (log2 n, rounded up), s (bytes), alpha, beta, gamma; on more of them, numbered from the inside out, in
    n_0, k_0, alpha_0, beta_0 and so on, where n_1 is how many blocks of level 0 level 1 joins. The outer levels are no faster than the
    inner ones; and where a k occurs, all sizes but the outermost are powers of two.
    """
    import sympy

    def numbered(name: str) -> list[sympy.Symbol]:
        return [sympy.Symbol(name if levels == 1 else f"{name}_{level}") for level in range(levels)]

    one = _named(kind, algorithm)[0]
    terms = one.by_level(numbered("n"), numbered("k"), sympy.Symbol("s"))
    if terms is None:
        return None
    tidied = [Terms(*(sympy.factor(part) for part in (t.messages, t.sent, t.added))) for t in terms]
    each = zip(tidied, numbered("alpha"), numbered("beta"), strict=True)
    return sympy.Add(*(t.seconds(alpha, beta, sympy.Symbol("gamma")) for t, alpha, beta in each))
