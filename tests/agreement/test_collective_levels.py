"""Times of collectives over several levels of links, and of exchanges on clusters: closed forms are the rounds of every group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate, cycle, pairwise, product, takewhile
from math import prod
from operator import mul
from random import Random
from typing import Any

import pytest
from samples import NIGHTLY
from test_collective_times import CHAINS, FLAT, LEVELLED, SHAPES, linked

from placeproof.clusters import Cluster, Group, cluster, names, read_text
from placeproof.collectives import COLLECTIVES, patterns, rounds
from placeproof.collectives import time as times
from placeproof.collectives.algorithms import ALGORITHMS, Algorithm, Levelled, pipelined
from placeproof.collectives.passes import Pass, Terms
from placeproof.collectives.patterns import steps
from placeproof.collectives.rounds import Link, Plan
from placeproof.core.diagnostics import InputError
from placeproof.core.exchange import Exchange

EACH = pytest.mark.parametrize("one", [*FLAT, *CHAINS, *LEVELLED], ids=lambda one: f"{one.kind}-{one.name}")


def shaped(sizes: Sequence[int]) -> Group:
    """A group with equal blocks on each level."""
    n = prod(sizes)
    return Group(n, (*(tuple(range(size, n, size)) for size in accumulate(sizes[:-1], mul)), ()))


def in_blocks(*levels: Sequence[int]) -> Group:
    """A group with so many members in each block of each level."""
    return Group(sum(levels[0]), (*(tuple(accumulate(level[:-1])) for level in levels), ()))


def summed(terms: Sequence[Terms[Fraction]], links: Sequence[Link], gamma: Fraction) -> Fraction:
    return sum((t.seconds(link.alpha, link.beta, gamma) for t, link in zip(terms, links, strict=True)), Fraction(0))


# Closed forms on several levels.

GROUPS = [(m, g) for m, g in product(range(1, 9), repeat=2) if m * g <= 24] + [s for s in SHAPES if len(s) == 3] + [(2, 4, 2), (4, 2, 3)]
SLOWER = linked((1, 2), (3, 5), (10, 30))
MIXED = linked((5, 1), (1, 7), (3, 2))


def brute(one: Algorithm | Levelled, sizes: Sequence[int], s: Fraction, links: Sequence[Link], gamma: Fraction) -> Fraction:
    return one.plan(sizes).seconds(s, links, gamma, shaped(sizes).between)


@EACH
@pytest.mark.parametrize("links", [SLOWER, MIXED], ids=["slower-outwards", "mixed"])
def test_times_over_levels_are_the_rounds(one: Algorithm | Levelled, links: list[Link]) -> None:
    s, gamma = Fraction(60), Fraction(1, 7)
    by_form = 0
    for sizes in (sizes for sizes in GROUPS if one.admits(sizes) and one.kind != "send"):
        group, level = shaped(sizes), links[: len(sizes)]
        assert group.sizes == sizes
        expected = brute(one, sizes, s, level, gamma)
        assert times.seconds(one, group, s, level, gamma) == expected, sizes
        terms = times.by_level(one, group, s, level)
        by_form += terms is not None
        assert terms is None or summed(terms, level, gamma) == expected, sizes
    assert by_form >= 3 or one.kind == "send"


def test_which_algorithms_have_closed_forms_over_levels() -> None:
    without = {(one.kind, one.name) for one in FLAT if times.by_level(one, shaped((4, 4)), Fraction(1), SLOWER[:2]) is None}
    assert without == {("all_reduce", "folded"), ("all_gather", "neighbour_exchange"), ("all_gather", "line"), ("send", "message")}
    nested = [one for one in FLAT if all(each.pattern.nested for each in one.passes)]
    assert {one.name for one in nested} == {"doubling", "halving", "halving_doubling", "tree"}
    assert all(times.by_level(one, shaped((3, 4)), Fraction(1), SLOWER[:2]) is None for one in nested)


@pytest.mark.parametrize("blocks", [(3, 2), (1, 4), (2, 4, 3), (1, 1, 5, 4)])
def test_times_with_unequal_blocks_are_the_rounds(blocks: tuple[int, ...]) -> None:
    group = in_blocks(blocks)
    assert group.sizes is None
    for one in (one for one in [*FLAT, *CHAINS] if one.admits([group.degree]) and one.kind != "send"):
        for links in (SLOWER[:2], MIXED[:2]):
            expected = one.plan([group.degree]).seconds(Fraction(60), links, Fraction(1, 7), group.between)
            assert times.seconds(one, group, Fraction(60), links, Fraction(1, 7)) == expected


def dealt(n: int, sizes: Sequence[int]) -> list[int]:
    """So many members in blocks of these sizes in turn; the last block has what is left."""
    ends = [*takewhile(lambda end: end < n, accumulate(cycle(sizes))), n]
    return [end - first for first, end in pairwise([0, *ends])]


def nested(n: int, seed: int) -> Group:
    """A group whose blocks of two levels, within one that joins all, begin anywhere."""
    draw = Random(seed)
    inner = sorted(draw.sample(range(1, n), draw.randrange(n))) if n > 1 else []
    outer = sorted(draw.sample(inner, draw.randrange(len(inner) + 1)))
    return Group(n, (tuple(inner), tuple(outer), ()))


PASSES = {each.classes: (one.kind, each) for one in [*FLAT, *CHAINS[2::3]] for each in one.passes}


@pytest.mark.parametrize("kind_and_pass", PASSES.values(), ids=lambda pair: f"{pair[0]}-{pair[1].pattern.value}")
def test_classes_of_messages_are_the_rounds(kind_and_pass: tuple[str, Pass]) -> None:
    """For each number of devices up to 64 that the pass is for: their time, and what goes over each level, as listed one by one.

    In groups whose blocks begin anywhere, and in those of nodes; over links of which the outer ones, or inner ones, are slower.
    """
    kind, one = kind_and_pass
    fit = [row for row in [*FLAT, *CHAINS] if one in row.passes]
    tried = 0
    for n in (n for n in range(1, 65) if any(row.admits([n]) for row in fit)):
        plan, s = Plan(kind=kind, devices=n, parts=one.cut(n), rounds=tuple(one.rounds(n))), Fraction(3 * n)
        variants = list(product((nested(n, n), in_blocks(dealt(n, (8,)), dealt(n, (16,)))), (SLOWER, MIXED)))
        for group, links in variants if n < 9 or NIGHTLY else [variants[tried % 4]]:
            tried += 1
            table = [[group.between(i, j) for j in range(n)] for i in range(n)]
            between = lambda i, j, table=table: table[i][j]  # noqa: E731
            assert one.seconds(group, s, links, Fraction(1, 7)) == plan.seconds(s, links, Fraction(1, 7), between), (n, group)
            by_round = [sum(column) / n for column in zip(*plan.sent_over(3, between, s), strict=True)]
            assert list(one.carried(group, s)) == by_round, (n, group)
    assert tried >= 19


@EACH
def test_bytes_over_each_level_are_those_of_the_rounds(one: Algorithm | Levelled) -> None:
    s = Fraction(60)
    for sizes in (sizes for sizes in GROUPS if one.admits(sizes)):
        group = shaped(sizes)
        rows = times.traffic(one, group, s)
        assert tuple(map(sum, rows)) == one.plan(sizes).sent(s)
        assert list(one.carried(group, s)) == [sum(column) / group.degree for column in zip(*rows, strict=True)], sizes


@pytest.mark.parametrize("blocks", [(3, 2), (1, 4), (2, 4, 3), (1, 1, 5, 4)])
def test_bytes_with_unequal_blocks_are_those_of_the_rounds(blocks: tuple[int, ...]) -> None:
    group = in_blocks(blocks)
    for one in (one for one in [*FLAT, *CHAINS] if one.admits([group.degree])):
        rows = times.traffic(one, group, Fraction(60))
        assert list(one.carried(group, Fraction(60))) == [sum(column) / group.degree for column in zip(*rows, strict=True)]


def test_what_is_told_device_by_device_is_bounded() -> None:
    group = shaped((8, 12500))
    with pytest.raises(InputError) as error:
        times.traffic(ALGORITHMS["all_gather"]["ring"], group, Fraction(1))
    (problem,) = error.value.diagnostics
    assert (problem.code, problem.message) == (
        "PP103",
        "all_gather by ring among 100,000 devices sends 9,999,900,000 chunks, and at most 20,000,000 are listed",
    )
    few = shaped((8, 10))
    assert len(times.traffic(ALGORITHMS["all_gather"]["ring"], few, Fraction(1))) == few.degree


def test_a_hierarchy_sends_each_device_s_part_out_of_its_node() -> None:
    """The theorem's count: a flat ring leaves a node over one link, and the m devices of a hierarchy over m of them."""
    s, gamma = Fraction(64), shaped((8, 4))
    ring, levels = (times.traffic(ALGORITHMS["all_reduce"][name], gamma, s) for name in ("ring", "hierarchical"))
    across = COLLECTIVES["all_reduce"].sent(Fraction(32), s)
    assert sorted(row[1] for row in ring) == [0] * 28 + [across] * 4
    assert {row[1] for row in levels} == {COLLECTIVES["all_reduce"].sent(Fraction(4), s / 8)}


@pytest.mark.parametrize("levels", [1, 2])
def test_formulas_give_the_times(levels: int) -> None:
    sizes, links, gamma, s = (
        ((4, 2), SLOWER[:2], Fraction(1, 7), Fraction(60)) if levels == 2 else ((8,), SLOWER[:1], Fraction(1, 7), Fraction(60))
    )
    values: dict[str, Any] = {"s": s, "gamma": gamma}
    for level, (size, link) in enumerate(zip(sizes, links, strict=True)):
        end = f"_{level}" if levels == 2 else ""
        values |= {f"n{end}": size, f"k{end}": steps(size), f"alpha{end}": link.alpha, f"beta{end}": link.beta}
    tried = 0
    for one in (one for one in [*FLAT, *LEVELLED] if one.admits(sizes) and one.kind != "send"):
        expression = times.formula(one.kind, one.name, levels)
        if expression is not None:
            tried += 1
            assert Fraction(str(expression.subs(values))) == times.seconds(one, shaped(sizes), s, links, gamma), one
    assert tried >= 16


# Exchanges on clusters.

MESHES: list[dict[str, int]] = [
    {"tp": 2, "dp": 16},
    {"tp": 3, "dp": 7},
    {"tp": 8, "pp": 2, "dp": 3},
    {"tp": 6, "pp": 4},
    {"dp": 1, "tp": 5},
]


def everywhere(exchange: Exchange, mesh: dict[str, int], where: Cluster, name: str) -> Fraction:
    """The slowest of all groups, each laid out rank by rank, by its rounds."""
    strides = {axis: prod(list(mesh.values())[:i]) for i, axis in enumerate(mesh)}
    world = prod(mesh.values())
    keys: dict[tuple[int, ...], list[int]] = {}
    for rank in range(world):
        keys.setdefault(tuple(rank // strides[a] % mesh[a] for a in mesh if a not in exchange.axes), []).append(rank)

    def level(one: int, other: int) -> int:
        joins = [each.joins or world for each in where.levels]
        return next(i for i, size in enumerate(joins) if one // size == other // size)

    took = []
    kind = "all_reduce" if exchange.kind == "tied_reduce" else exchange.kind
    algorithm = ALGORITHMS[kind].get(name) or pipelined(kind, int(name[6:-1]))
    for ranks in keys.values():
        parts = [ranks] if exchange.kind != "tied_reduce" else [[ranks[0], ranks[-1]]]
        parts = [list(pair) for pair in pairwise(ranks)] if exchange.kind == "send" else parts
        for members in parts:
            between: Callable[[int, int], int] = lambda i, j, members=members: level(members[i], members[j])  # noqa: E731
            blocks = [len(members), *(len({rank // (each.joins or world) for rank in members}) for each in where.levels)]
            plan = algorithm.plan([few // many for few, many in pairwise(blocks)] if isinstance(algorithm, Levelled) else [len(members)])
            took.append(plan.seconds(Fraction(exchange.bytes), times.links(where), where.reduction, between))
    return max(took)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("kind", [kind for kind in COLLECTIVES if kind != "recv"])
def test_exchanges_take_the_time_of_their_slowest_group(name: str, kind: str) -> None:
    where = cluster(name)
    for mesh in MESHES:
        for axes in [(axis,) for axis, degree in mesh.items() if degree > 1] + [tuple(mesh)][:1]:
            exchange = Exchange(kind=kind, axes=axes, bytes=10**7)
            found = times.exchange_time(exchange, mesh, where)
            assert found.seconds == everywhere(exchange, mesh, where, found.algorithm) > 0


def test_a_named_algorithm_is_no_faster_than_the_best() -> None:
    where, exchange = cluster("dgx-a100-80"), Exchange(kind="all_gather", axes=("dp",), bytes=10**6)
    mesh = {"tp": 2, "dp": 16}
    took = {name: times.exchange_time(exchange, mesh, where, name).seconds for name in ("ring", "doubling", "bruck", "hierarchical")}
    assert times.exchange_time(exchange, mesh, where).seconds == min(took.values())
    assert len(set(took.values())) == len(took)


def test_nothing_is_sent_in_a_group_of_one() -> None:
    where = cluster("dgx-h100")
    for kind in (kind for kind in ALGORITHMS if kind != "scatter"):
        assert times.exchange_time(Exchange(kind=kind, axes=("tp",), bytes=10**9), {"tp": 1, "dp": 4}, where).seconds == 0
    assert times.exchange_time(Exchange(kind="recv", axes=("dp",), bytes=10**9), {"tp": 1, "dp": 4}, where).seconds == 0


def test_large_groups_are_compared_by_closed_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their rounds counted by classes of messages."""
    counted: list[int] = []

    def seconds(self: Pass, group: Group, *rest: Any) -> Fraction:
        counted.append(group.degree)
        return Fraction(1)

    monkeypatch.setattr(Pass, "seconds", seconds)
    for kind, degree in product(("all_gather", "broadcast", "all_to_all"), (136, 4096)):
        assert degree > times.SUMMED_UP
        found = times.exchange_time(Exchange(kind=kind, axes=("dp",), bytes=10**9), {"dp": degree}, cluster("dgx-h100"))
        assert found.seconds > 0
    assert not counted
    times.exchange_time(Exchange(kind="all_gather", axes=("dp",), bytes=10**9), {"dp": times.SUMMED_UP}, cluster("dgx-h100"))
    assert set(counted) == {times.SUMMED_UP}


def test_no_round_of_a_large_group_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By no algorithm, in groups whose blocks are alike or not, over links of which the outer or the inner ones are slower."""

    def refused(*said: Any) -> Any:
        raise AssertionError("listed")

    monkeypatch.setattr(rounds, "Send", refused)
    monkeypatch.setattr(patterns, "Send", refused)
    with pytest.raises(AssertionError, match="listed"):
        ALGORITHMS["all_gather"]["ring"].plan([4])
    for n in (4096, 4099):
        for group in (in_blocks(dealt(n, (6, 1, 8)), dealt(n, (7, 8, 15))), in_blocks(dealt(n, (8,)), dealt(n, (256,)))):
            for one in (one for one in [*FLAT, *CHAINS] if one.admits([n]) and one.kind != "send"):
                sent = one.carried(group, Fraction(n))
                assert sum(sent) > 0
                assert all(times.seconds(one, group, Fraction(n), links, Fraction(1, 7)) > 0 for links in (SLOWER, MIXED))


@pytest.mark.parametrize(
    ("kind", "mesh", "algorithm", "code", "told"),
    [
        ("all_reduce", {"dp": 8}, "rings", "PP101", "all_reduce has no algorithm `rings`"),
        ("all_reduce", {"dp": 6}, "doubling", "PP104", "`doubling` is no algorithm of all_reduce for such groups and links"),
        ("all_reduce", {"dp": 8}, "hierarchical", "PP104", "`hierarchical` is no algorithm of all_reduce for such groups and links"),
        ("all_reduce", {"dp": 8}, "bidirectional", "PP104", "`bidirectional` is no algorithm of all_reduce for such groups and links"),
        ("all_reduce", {"tp": 8}, None, "PP305", "the mesh has no axis `dp`"),
    ],
)
def test_what_cannot_be_timed_is_told(kind: str, mesh: dict[str, int], algorithm: str | None, code: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        times.exchange_time(Exchange(kind=kind, axes=("dp",), bytes=8), mesh, cluster("dgx-h100"), algorithm)
    (found,) = error.value.diagnostics
    assert (found.code, found.message) == (code, told)
    assert found.help


def test_an_inner_level_may_be_the_slower_one() -> None:
    """Devices on a slow bus, with a fast network between the nodes: a ring is as slow as the bus."""
    text = """
    name = "bus"
    [device]
    name = "x"
    memory = 1
    memory_bandwidth = 3
    [device.peak]
    [node]
    devices = 4
    [levels.bus]
    joins = 4
    latency = 1
    bandwidth = 0.1
    [levels.network]
    latency = 2
    bandwidth = 10
    """
    where = read_text(text, source="bus.toml")
    exchange = Exchange(kind="all_gather", axes=("dp",), bytes=80)
    assert times.exchange_time(exchange, {"dp": 8}, where, "ring").seconds == 7 * (1 + 10 * Fraction(10))
