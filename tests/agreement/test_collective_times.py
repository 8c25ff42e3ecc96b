"""Algorithms of collectives: their rounds run on chunks, and their closed forms on links that are all alike are the rounds'."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest
import sympy
from collective_rounds import begin, faults, on_torus, torus_all_gather

from placeproof.collectives import COLLECTIVES
from placeproof.collectives import time as times
from placeproof.collectives.algorithms import ALGORITHMS, Algorithm, Levelled, best, crossover, pipelined, runs_on, segments
from placeproof.collectives.patterns import backwards, steps
from placeproof.collectives.rounds import Link, Plan, Round
from placeproof.theory.suite.load import load

FLAT = [one for rows in ALGORITHMS.values() for one in rows.values() if isinstance(one, Algorithm)]
CHAINS = [pipelined(kind, count) for kind in ("broadcast", "reduce") for count in (2, 3, 7)]
LEVELLED = [one for rows in ALGORITHMS.values() for one in rows.values() if isinstance(one, Levelled)]
ROWS = pytest.mark.parametrize("one", [*FLAT, *CHAINS], ids=lambda one: f"{one.kind}-{one.name}")
LEVELS = pytest.mark.parametrize("one", LEVELLED, ids=lambda one: one.kind)
SHAPES = [(2, 2), (3, 2), (2, 3), (4, 4), (5, 3), (1, 3), (3, 1), (2, 2, 2), (2, 3, 2), (3, 2, 1), (2, 1, 3), (4, 1, 4)]
#: Figures so far apart that equal times have equal numbers of messages, bytes and sums, whichever of them the slowest device is slow by.
POINTS = [tuple(map(Fraction, point)) for point in ((1, 10**7, 10**14), (10**14, 10**7, 1))]
N, K, S, ALPHA, BETA, GAMMA = sympy.symbols("n k s alpha beta gamma")


def linked(*figures: tuple[int, int], **said: Any) -> list[Link]:
    return [Link(alpha=Fraction(alpha), beta=Fraction(beta), **said) for alpha, beta in figures]


# Rounds, run on chunks.


@ROWS
def test_the_rounds_have_the_collectives_result(one: Algorithm) -> None:
    tried = [n for n in range(1, 17) if one.admits([n])]
    assert len(tried) >= 4
    assert not {n: found for n in tried if (found := faults(one.plan([n])))}


@LEVELS
def test_levels_have_the_collectives_result(one: Levelled) -> None:
    assert not {sizes: found for sizes in SHAPES if (found := faults(one.plan(sizes)))}


@pytest.mark.parametrize(("side", "axes"), [(2, 1), (2, 2), (2, 3), (4, 1), (4, 2), (6, 1)])
def test_a_torus_gathers_all(side: int, axes: int) -> None:
    rounds, n = torus_all_gather(side, axes), side**axes
    plan = Plan(kind="all_gather", devices=n, parts=axes * n, rounds=tuple(rounds))
    assert not faults(plan)
    assert not faults(replace(plan, kind="reduce_scatter", rounds=tuple(backwards(rounds))))
    assert {send.port for one in rounds for send in one} == set(range(2 * axes)) - ({1, 3, 5} if side == 2 else set())


def mutants(plan: Plan) -> Iterator[tuple[str, bool, tuple[Round, ...]]]:
    """Each chunk of each message left out, each message sent to the next device, each sum replaced by a copy, each round of sums twice.

    With each: whether it has to be wrong. It is not, if the chunk left out is one that its receiver has already.
    """
    held = begin(plan.kind, plan.devices, plan.parts)
    for r, one in enumerate(plan.rounds):
        before, after = plan.rounds[:r], plan.rounds[r + 1 :]
        for i, send in enumerate(one):
            changes = [
                (
                    f"without {c}",
                    send.add or held[send.target].get(c) != held[send.source][c],
                    replace(send, chunks=tuple(x for x in send.chunks if x != c)),
                )
                for c in send.chunks
            ]
            news = any(needed for _, needed, _ in changes)
            changes.append(("to the next", news, replace(send, target=(send.target + 1) % plan.devices)))
            changes += [("copied", True, replace(send, add=False))] if send.add else []
            for label, needed, changed in changes:
                yield f"round {r}, message {i}: {label}", needed, (*before, (*one[:i], changed, *one[i + 1 :]), *after)
        if any(send.add for send in one):
            yield f"round {r} twice", True, (*before, one, one, *after)
        for send, values in [(send, {c: held[send.source][c] for c in send.chunks}) for send in one]:
            mine = held[send.target]
            sums = {c: tuple(a + b for a, b in zip(mine[c], value, strict=True)) for c, value in values.items() if send.add}
            mine.update(sums or values)


@pytest.mark.parametrize("one", [*FLAT, *CHAINS, *LEVELLED], ids=lambda one: f"{one.kind}-{one.name}")
def test_no_chunk_can_be_left_out_and_no_message_changed(one: Algorithm | Levelled) -> None:
    """But for what the root of a scattered broadcast gets back; and a part of a sum may reach it by way of another device."""
    shapes = [(2, 2), (2, 3)] if isinstance(one, Levelled) else [(n,) for n in (3, 4, 6) if one.admits([n])][-2:]
    harmless = set()
    for sizes in shapes:
        plan, tried = one.plan(sizes), 0
        for label, needed, rounds in mutants(plan):
            tried += needed
            if bool(faults(replace(plan, rounds=rounds))) is not needed:
                harmless.add(label.partition(": ")[2])
        assert tried >= 3 if one.kind != "send" else tried == 2
    assert harmless <= ({"to the next"} if one.name in ("folded", "scatter_gather") else set())


def test_faults_are_told() -> None:
    plan = ALGORITHMS["all_gather"]["ring"].plan([3])
    (first, *rest) = plan.rounds
    assert faults(replace(plan, rounds=((*first, first[0]), *rest))) == [
        "round 1: device 1 receives twice over port 0",
        "round 1: device 0 sends twice over port 0",
        "round 1: a chunk is replaced twice",
    ]
    assert faults(replace(plan, rounds=tuple(rest)))[0] == "round 1: device 0 sends chunk 2, which it has not"
    assert faults(replace(plan, rounds=(first,)))[0] == "in the end, device 0 has None of chunk 1 instead of (0, 1, 0)"


# Closed forms on one level.


@ROWS
def test_the_closed_form_is_the_sum_over_the_rounds(one: Algorithm) -> None:
    """For each number of devices up to 64 that the algorithm is for."""
    for n in (n for n in range(1, 65) if one.admits([n])):
        plan, s = one.plan([n]), Fraction(3 * n)
        for alpha, beta, gamma in POINTS:
            assert plan.seconds(s, [Link(alpha=alpha, beta=beta)], gamma) == one.at(n, s).seconds(alpha, beta, gamma), n


def test_the_closed_form_on_a_torus_is_the_sum_over_the_rounds() -> None:
    for side, axes in ((2, 1), (8, 1), (2, 2), (4, 2), (6, 2), (2, 3), (4, 3)):
        n, s = side**axes, Fraction(7)
        plan = Plan(kind="all_gather", devices=n, parts=axes * n, rounds=tuple(torus_all_gather(side, axes)))
        for alpha, beta, gamma in POINTS:
            assert plan.seconds(s, [Link(alpha=alpha, beta=beta)], gamma) == on_torus(Fraction(side), axes, s).seconds(alpha, beta, gamma)


def test_the_conditions_are_needed() -> None:
    """Outside its condition, an algorithm has another result, or its closed form is not the time of its rounds."""
    for one in (one for one in FLAT if one.condition.text not in ("any n", "n >= 2")):
        n = next(n for n in range(3, 9) if not one.admits([n]))
        try:
            plan = one.plan([n])
            wrong = bool(faults(plan)) or plan.seconds(Fraction(1), linked((1, 1)), Fraction(1)) != one.at(n, Fraction(1)).seconds(
                Fraction(1), Fraction(1), Fraction(1)
            )
        except IndexError:
            wrong = True
        assert wrong, (one.kind, one.name, n)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("all_reduce", "ring"),
        ("reduce_scatter", "ring"),
        ("all_gather", "ring"),
        ("all_to_all", "pairwise"),
        ("all_reduce", "halving_doubling"),
    ],
)
def test_every_device_sends_what_the_table_says(kind: str, name: str) -> None:
    one = ALGORITHMS[kind][name]
    for n in (n for n in range(1, 17) if one.admits([n])):
        assert set(one.plan([n]).sent(Fraction(12))) == {COLLECTIVES[kind].sent(Fraction(n), Fraction(12))}


@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_along_a_chain_the_devices_send_what_the_table_says(kind: str) -> None:
    """All but the one at its end, in however many segments."""
    for count in (1, 5):
        sent = sorted(pipelined(kind, count).plan([6]).sent(Fraction(12)))
        assert sent == [0, *[COLLECTIVES[kind].sent(Fraction(6), Fraction(12))] * 5]


def test_no_algorithm_over_one_port_is_below_the_lower_bounds() -> None:
    """chan2007collective, table 1: ceil(log2 n) messages; and the bytes and sums of a reduce-scatter and of an all-gather."""
    passes = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
    reached: set[tuple[str, str]] = set()
    for one in (one for one in FLAT if one.kind in passes and one.ports == 1):
        for n in (n for n in range(2, 65) if one.admits([n])):
            found, others = one.at(n, Fraction(n)), n - 1
            assert found.messages >= steps(n)
            assert found.sent >= passes[one.kind] * others
            assert found.added >= (0 if one.kind == "all_gather" else others)
            reached |= {(one.kind, "bytes")} if found.sent == passes[one.kind] * others else set()
            reached |= {(one.kind, "messages")} if found.messages == steps(n) else set()
    assert reached == set(product(passes, ("bytes", "messages")))


# The definitions of the theorems.


@cache
def theorems() -> dict[str, Any]:
    found = load(["collectives_time"]).theorems
    return {t.name: t for t in found} | found[0].function.__globals__


def closed(kind: str, name: str) -> sympy.Expr:
    return ALGORITHMS[kind][name].terms(N, K, S).seconds(ALPHA, BETA, GAMMA)  # type: ignore[union-attr]


def test_the_theorems_speak_of_the_same_times() -> None:
    told = theorems()
    same = {
        ("all_reduce", "ring"): told["ring"](N, S, ALPHA, BETA, GAMMA),
        ("all_reduce", "halving_doubling"): told["halving_doubling"](N, K, S, ALPHA, BETA, GAMMA),
        ("all_reduce", "doubling"): told["doubling"](K, S, ALPHA, BETA, GAMMA),
        ("all_reduce", "tree"): told["tree"](K, S, ALPHA, BETA, GAMMA),
        ("broadcast", "scatter_gather"): told["scatter_gather"](N, K, S, ALPHA, BETA),
    }
    assert {key: sympy.simplify(closed(*key) - value.expr) for key, value in same.items()} == dict.fromkeys(same, 0)


@pytest.mark.parametrize(
    ("theorem", "kind", "one", "other"),
    [
        ("ring_is_faster_than_doubling_from_a_size_on", "all_reduce", "doubling", "ring"),
        ("scattered_broadcast_is_faster_from_a_size_on", "broadcast", "tree", "scatter_gather"),
        ("bruck_all_to_all_is_faster_up_to_a_size", "all_to_all", "pairwise", "bruck"),
    ],
)
def test_the_theorems_crossovers_are_ours(theorem: str, kind: str, one: str, other: str) -> None:
    """What is gained in the theorem is the difference of our times, and nothing at our crossover."""
    gained = theorems()[theorem].statement().goals[0].relation().left
    first, second = ALGORITHMS[kind][one], ALGORITHMS[kind][other]
    assert isinstance(first, Algorithm)
    assert isinstance(second, Algorithm)
    assert sympy.simplify(gained - closed(kind, one) + closed(kind, other)) == 0
    at = crossover(first, second, N, K, ALPHA, BETA, GAMMA)
    assert at.has(ALPHA)
    assert sympy.simplify(gained.subs(S, at)) == 0


def test_two_levels_save_what_the_theorem_says() -> None:
    m, g, far, beta_far = sympy.symbols("m g alpha_far beta_far")
    relation = theorems()["two_levels_save_latency_and_slow_bytes"].statement().goals[0].relation()
    names = {sympy.Symbol("n_0"): m, sympy.Symbol("n_1"): g, sympy.Symbol("alpha_0"): ALPHA, sympy.Symbol("beta_0"): BETA}
    names |= {sympy.Symbol("alpha_1"): far, sympy.Symbol("beta_1"): beta_far}
    flat, levels = times.formula("all_reduce", "ring", 2), times.formula("all_reduce", "hierarchical", 2)
    assert flat is not None
    assert levels is not None
    saved = (flat - levels).subs(names)
    assert sympy.simplify(saved - relation.left) == 0
    assert sympy.simplify(saved - relation.right) == 0


# Which is the fastest.


def test_crossovers_separate() -> None:
    """Below the size one algorithm is faster, above it the other one, and at it they take the same time."""
    link, gamma = Link(alpha=Fraction(7), beta=Fraction(1, 3)), Fraction(1, 11)
    separated = 0
    for one, other in ((a, b) for a in FLAT for b in FLAT if a.kind == b.kind and a.name < b.name):
        for n in (n for n in (6, 8, 13) if one.admits([n]) and other.admits([n])):

            def lead(s: Fraction, n: int = n, one: Algorithm = one, other: Algorithm = other) -> Fraction:
                return one.at(n, s).seconds(link.alpha, link.beta, gamma) - other.at(n, s).seconds(link.alpha, link.beta, gamma)

            try:
                at = crossover(one, other, Fraction(n), Fraction(steps(n)), link.alpha, link.beta, gamma)
            except ZeroDivisionError:
                assert lead(Fraction(1)) == lead(Fraction(1000))
                continue
            assert lead(at) == 0
            assert (lead(at - 1) > 0) is (lead(at + 1) < 0)
            separated += at > 0
    assert separated >= 10


def test_the_best_is_the_fastest_by_the_rounds() -> None:
    found = set()
    for kind, n, s in product(ALGORITHMS, (2, 6, 8, 13), map(Fraction, (1, 100, 100_000))):
        for link in (
            Link(alpha=Fraction(10), beta=Fraction(1, 10), ports=ports, ring=ring) for ports, ring in product((1, 2), (False, True))
        ):
            rows = [one for one in FLAT if one.kind == kind and one.admits([n]) and runs_on(one, [link])]
            if not rows:
                with pytest.raises(ValueError, match="empty"):
                    best(kind, n, s, link)
                continue
            least = min(one.plan([n]).seconds(s, [link]) for one in rows)
            one = best(kind, n, s, link)
            took = one.plan([n]).seconds(s, [link])
            assert took <= least if kind in ("broadcast", "reduce") else took == least
            assert one.ports <= link.ports
            assert one.neighbours or not link.ring
            found.add((kind, one.name.partition("(")[0]))
    assert {name for kind, name in found if kind == "all_reduce"} == {
        "ring",
        "halving_doubling",
        "folded",
        "doubling",
        "tree",
        "bidirectional",
    }
    assert {name for kind, name in found if kind == "all_to_all"} == {"pairwise", "bruck", "ring", "bidirectional"}


def test_the_number_of_segments_is_the_best() -> None:
    for kind, n, s, alpha in product(("broadcast", "reduce"), (1, 2, 3, 9), (1, 5, 1000), (0, 1, 50)):
        link, gamma = Link(alpha=Fraction(alpha), beta=Fraction(1, 3)), Fraction(2)
        took = (
            {c: pipelined(kind, c).at(n, Fraction(s)).seconds(link.alpha, link.beta, gamma) for c in range(1, s + 1)} if n > 1 else {1: 0}
        )
        assert took[segments(kind, n, Fraction(s), link, gamma)] == min(took.values())
