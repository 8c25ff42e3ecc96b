"""Published times of collectives, bytes on buses and lower bounds: which our rounds take, and why others are not exact."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from functools import lru_cache

import pytest
import sympy
from collective_rounds import on_torus, torus_all_gather
from published import Check, Row, as_printed, rows, shows

from placeproof.collectives import COLLECTIVES
from placeproof.collectives.algorithms import ALGORITHMS, pipelined
from placeproof.collectives.patterns import steps
from placeproof.collectives.rounds import Link, Plan

OURS = re.compile(r"coll-|nccl-|jax-(All|Reduce|ag-)|playbook-allreduce$")
N, K, S, ALPHA, BETA, GAMMA, SEGMENTS, SIDE = sympy.symbols("n k s alpha beta gamma segments side")
NAMES = {"p": N, "n": S, "alpha": ALPHA, "beta": BETA, "gamma": GAMMA, "k": K}

#: Rows of thakur2005 and chen2005allgather: the algorithm whose time they print.
TIMES = {
    "coll-allgather-ring": ("all_gather", "ring"),
    "coll-allgather-recdbl": ("all_gather", "doubling"),
    "coll-alltoall-bruck": ("all_to_all", "bruck"),
    "coll-reduce-binomial": ("reduce", "tree"),
    "coll-allreduce-recdbl": ("all_reduce", "doubling"),
    "coll-allreduce-rabenseifner": ("all_reduce", "halving_doubling"),
    "coll-allreduce-ring": ("all_reduce", "ring"),
    "coll-scatter-binomial": ("scatter", "tree"),
    "coll-neighbor-exchange-allgather": ("all_gather", "neighbour_exchange"),
}
#: Rows of nccl-tests: bytes on the bus for each byte of the tensor are those that a device sends.
BUSES = {
    "nccl-busbw-AllReduce": ("all_reduce", "ring"),
    "nccl-busbw-ReduceScatter": ("reduce_scatter", "ring"),
    "nccl-busbw-AllGather": ("all_gather", "ring"),
    "nccl-busbw-AlltoAll": ("all_to_all", "pairwise"),
}
#: Rows that the rounds do not give as they are printed, and why. The checks show what is exact.
NOT_EXACT = {
    "coll-alltoall-pairwise": "it counts the bytes that a device keeps; exact are those of the n - 1 others",
    "coll-allreduce-hd-nonpow2": "it is an upper bound, without what the 2^k devices that halve and double among them save",
    "nccl-busbw-Broadcast": "it is the limit of a chain for many segments; n - 2 segments more pass a link while the chain fills",
    "nccl-busbw-Reduce": "it is the limit of a chain for many segments; n - 2 segments more pass a link while the chain fills",
    "jax-AllGather": "exact on one axis of even degree; on several, it is the limit for large sides of the torus",
    "jax-ReduceScatter": "exact on one axis of even degree; on several, it is the limit for large sides of the torus",
    "jax-AllReduce": "exact on one axis of even degree; on several, it is the limit for large sides of the torus",
    "jax-ag-v5e": "the book rounds 2EF to 34 MB, and cuts the result off",
}


#: Numbers of devices at which rounds are counted, and figures of links for which equal times have equal messages, bytes and sums.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 32, 33)
POINTS = [(1, 10**7, 10**14), (10**14, 10**7, 1)]


@lru_cache(maxsize=128)
def plan(kind: str, name: str, n: int) -> Plan:
    """The rounds of an algorithm, which are run on chunks in test_collective_times; ``name``: of a chain, the number of its segments."""
    one = pipelined(kind, int(name)) if name.isdigit() else ALGORITHMS[kind][name]
    return one.plan([n])


def seconds(kind: str, name: str, n: int, alpha: Fraction | int, beta: Fraction | int, gamma: Fraction | int = 0, s: int = 1) -> Fraction:
    """What the rounds take for s bytes."""
    return plan(kind, name, n).seconds(Fraction(s), [Link(alpha=Fraction(alpha), beta=Fraction(beta))], Fraction(gamma))


def busy(kind: str, name: str, n: int, s: int = 1) -> Fraction:
    """Bytes over a link for s bytes: a round takes as long as its longest message."""
    return seconds(kind, name, n, 0, 1, s=s)


def sizes(kind: str, name: str) -> list[int]:
    """At which the rounds are counted."""
    one = pipelined(kind, int(name)) if name.isdigit() else ALGORITHMS[kind][name]
    found = [n for n in SIZES if one.admits([n])]
    assert len(found) >= 5
    return found


def value(told: sympy.Expr, n: int, **put: Fraction | int) -> Fraction:
    """A printed formula at n devices, for one byte unless it is said."""
    at = {N: n, K: steps(n), S: put.get("s", 1), ALPHA: put.get("alpha", 0), BETA: put.get("beta", 0), GAMMA: put.get("gamma", 0)}
    number = sympy.Rational(told.subs(at))
    return Fraction(int(number.p), int(number.q))


def takes(kind: str, name: str, told: sympy.Expr) -> bool:
    """Whether a formula in alpha, beta and gamma is the time of the rounds."""
    return all(
        seconds(kind, name, n, alpha, beta, gamma) == value(told, n, alpha=alpha, beta=beta, gamma=gamma)
        for n in sizes(kind, name)
        for alpha, beta, gamma in POINTS
    )


def sends(kind: str, name: str, told: sympy.Expr) -> bool:
    """Whether a formula is what passes a link, and what each device sends, for one byte."""
    return all({busy(kind, name, n), *plan(kind, name, n).sent(Fraction(1))} == {value(told, n)} for n in sizes(kind, name))


def printed(text: str) -> sympy.Expr:
    """A formula as the row prints it. lg p is k, rounded in the row where we round it."""
    text = re.sub(r"\((?:approx|even p)\)", "", text)
    text = re.sub(r"ceil\(lg p\)|lg\(p\)", "k", text).replace("floor(lg p)", "(k - 1)")
    return sympy.sympify(text, locals=NAMES, rational=True)


def same(one: sympy.Expr, other: sympy.Expr) -> bool:
    return bool(sympy.simplify(one - other) == 0)


@shows("derived")
def check_time(row: Row) -> bool:
    return takes(*TIMES[row["id"]], printed(row["formula"]))


@shows("derived")
def check_pairwise(row: Row) -> bool:
    """What is printed beyond the exact bytes is the n-th that stays where it is."""
    return takes("all_to_all", "pairwise", printed(row["formula"]) - S / N * BETA)


@shows("derived")
def check_folded(row: Row) -> bool:
    """What is printed beyond the exact time, with p = 2^(k-1) devices among which halves are exchanged, vanishes for many of them."""
    saved = S / 2 ** (K - 1) * (2 * BETA + GAMMA)
    power = sympy.Symbol("power")
    assert sympy.limit(saved.subs(2**-K, 1 / power), power, sympy.oo) == 0
    return takes("all_reduce", "folded", printed(row["formula"]) - saved)


@shows("derived")
def check_patarasuk(row: Row) -> bool:
    """A ring sends as many bytes from each device as the bound says that one of them has to."""
    assert "2*(N-1)/N*M" in row["formula"]
    return sends("all_reduce", "ring", sympy.sympify("2*(N-1)/N*M", locals={"N": N, "M": S}))


@shows("derived")
def check_chan(row: Row) -> bool:
    """The bounds are attained, by doubling the one of messages, and by a ring those of bytes and sums; none is below, see
    test_collective_times."""
    told = row["formula"].replace("2(p", "2*(p")
    parts = re.fullmatch(
        r"lower bounds: latency (.*)\*alpha; bandwidth allgather/reduce-scatter (.*)\*beta, allreduce (.*)\*beta; compute (.*)\*gamma", told
    )
    assert parts is not None
    assert parts[1] == "ceil(log2 p)"
    once, twice, sums = (sympy.sympify(part, locals=NAMES) for part in parts.groups()[1:])
    added = all(seconds(kind, "ring", n, 0, 0, 1) == value(sums, n) for kind in ("reduce_scatter", "all_reduce") for n in SIZES)
    bruck = all(seconds("all_gather", "bruck", n, 1, 0) == steps(n) for n in SIZES)
    pairs = (("reduce_scatter", once), ("all_gather", once), ("all_reduce", twice))
    return added and bruck and all(sends(kind, "ring", bound) for kind, bound in pairs)


@shows("derived")
def check_bus(row: Row) -> bool:
    kind, name = BUSES[row["id"]]
    factor = sympy.sympify(row["formula"], locals={"n": N})
    return sends(kind, name, factor) and same(COLLECTIVES[kind].sent(N, S), factor * S)


@shows("derived")
def check_bus_of_a_chain(row: Row) -> bool:
    """Each device but the last sends s. While segments of s / c pass the last link, n - 2 + c of them take as long."""
    kind = row["id"].removeprefix("nccl-busbw-").lower()
    factor = sympy.Integer(int(row["formula"]))
    assert same(COLLECTIVES[kind].sent(N, S), factor * S)
    took = (N - 2 + SEGMENTS) / SEGMENTS
    assert all(busy(kind, str(c), n) == value(took.subs(SEGMENTS, c), n) for c in (1, 2, 16) for n in sizes(kind, str(c)))
    return bool(sympy.limit(took, SEGMENTS, sympy.oo) == factor)


@shows("derived")
def check_bytes_at(row: Row) -> bool:
    return busy("all_reduce", "ring", row["inputs"]["n"]) == Fraction(str(row["value"]))


@shows("derived")
def check_evaluated(row: Row) -> bool:
    """To the 12 digits that survive the floating point that the rows were computed in; and the note, to the digits that it has."""
    inputs = {key: Fraction(str(value)) for key, value in row["inputs"].items()}
    figures = inputs["alpha"], inputs["beta"], inputs["gamma"], int(inputs["bytes"])
    ring, halving = (seconds("all_reduce", name, int(inputs["p"]), *figures) for name in ("ring", "halving_doubling"))
    noted = Decimal(re.findall(r"\d[\d.e-]*", row["note"])[0])
    told = Fraction(str(row["value"]))
    return abs(ring - told) <= told / 10**12 and as_printed(halving, noted)


@shows("derived")
def check_ring_of_links(row: Row) -> bool:
    """bytes / W_bidir on one axis is exact where the degree is even, W_bidir being twice what a link carries one way."""
    kind = {"jax-AllGather": "all_gather", "jax-ReduceScatter": "reduce_scatter", "jax-AllReduce": "all_reduce"}[row["id"]]
    wide, axes, size = sympy.symbols("W_bidir n_axes bytes")
    told = sympy.sympify(row["formula"], locals={"W_bidir": wide, "n_axes": axes, "bytes": size})
    on_one = told.subs({axes: 1, wide: 2, size: S})
    assert all(busy(kind, "bidirectional", n) == value(on_one, n) for n in sizes(kind, "bidirectional"))
    passes = 2 if kind == "all_reduce" else 1
    for count, side in ((2, 2), (2, 4), (2, 6), (3, 2), (3, 4)):
        rounds = Plan(kind="all_gather", devices=side**count, parts=count * side**count, rounds=tuple(torus_all_gather(side, count)))
        exact = passes * rounds.seconds(Fraction(1), [Link(alpha=Fraction(0), beta=Fraction(1), ports=2 * count)])
        more = sum((Fraction(1, side**i) for i in range(count)), start=Fraction(0))
        assert exact == value(told.subs({axes: count, wide: 2, size: S}), side) * more
    return bool(sympy.limit(sum(1 / SIDE**i for i in range(3)), SIDE, sympy.oo) == 1)


@shows("derived")
def check_all_to_all(row: Row) -> bool:
    """Of an array of n s bytes, s on each device: one way round a ring half of an all-gather, and both ways a quarter of one both ways."""
    assert "bytes/(4*W_bidir)" in row["formula"]
    assert "(1/2 of AllGather on a unidirectional one)" in row["formula"]
    both = all(busy("all_to_all", "bidirectional", n) == Fraction(n, 4 * 2) for n in sizes("all_to_all", "bidirectional"))
    return both and all(busy("all_to_all", "ring", n) == busy("all_gather", "ring", n, s=n) / 2 for n in sizes("all_to_all", "ring"))


@shows("derived")
def check_one_way(row: Row) -> bool:
    told = sympy.sympify(row["formula"], locals={"V": S, "W_uni": 1, "N": N})
    return sends("all_gather", "ring", told)


@shows("derived")
def check_latency(row: Row) -> bool:
    """Here a message takes the longer of its latency and its bytes, and not their sum. All rounds are alike, so that the maxima add up to
    that of the sums, alpha for each message and beta for each byte."""
    told = sympy.sympify(row["formula"], locals={"Tmin": ALPHA, "N": N, "V": S, "W_bidir": 2 / BETA, "max": sympy.Max})
    for n in range(2, 33, 2):
        rounds = plan("all_gather", "bidirectional", n)
        assert {max(len(send.chunks) for send in each) for each in rounds.rounds} == {1}
        times = (len(rounds.rounds) * ALPHA, Fraction(len(rounds.rounds), rounds.parts) * S * BETA)
        if told.subs(N, n) != sympy.Max(*times):
            return False
    return True


@shows("derived")
def check_v5e(row: Row) -> bool:
    """Four devices of a ring, and both ways: exactly 372.8 us; the book's 377 are those of 34 MB, cut off."""
    inputs = row["inputs"]
    link = 1 / (Fraction(str(inputs["W"])) / 2)
    exact, rounded = (busy("all_gather", "bidirectional", 4, s=s) * link * 10**6 for s in (2 * inputs["E"] * inputs["F"], 34 * 10**6))
    assert as_printed(exact, Decimal(row["check"].split()[0]))
    assert not as_printed(exact, row["value"])
    return Decimal(int(rounded)).quantize(Decimal(1), rounding=ROUND_DOWN) == row["value"]


@shows("derived")
def check_line(row: Row) -> bool:
    """Ends that are not joined: an end gets all others' shards over one link."""
    shard, link = Fraction(str(row["inputs"]["shard"])), 1 / Fraction(str(row["inputs"]["W"]))
    n = row["inputs"]["hops"] + 1
    return as_printed(busy("all_gather", "line", n) * n * shard * link * 10**6, row["value"])


@shows("derived")
def check_line_latency(row: Row) -> bool:
    return seconds("all_gather", "line", 4, 1, 0) == row["value"] == int(row["formula"].partition(" ")[0])


@shows("derived")
def check_playbook(row: Row) -> bool:
    return sends("all_reduce", "ring", sympy.sympify(row["formula"], locals={"N": N, "K": S}))


CHECKS: dict[str, Check] = {
    **dict.fromkeys(TIMES, check_time),
    **dict.fromkeys(BUSES, check_bus),
    "coll-alltoall-pairwise": check_pairwise,
    "coll-allreduce-hd-nonpow2": check_folded,
    "coll-patarasuk": check_patarasuk,
    "coll-chan": check_chan,
    "coll-ring-eval-1-8": check_evaluated,
    "coll-ring-eval-1073741824-8": check_evaluated,
    "coll-ring-eval-1048576-64": check_evaluated,
    "nccl-busbw-Broadcast": check_bus_of_a_chain,
    "nccl-busbw-Reduce": check_bus_of_a_chain,
    "nccl-ar-n2": check_bytes_at,
    "nccl-ar-n8": check_bytes_at,
    "nccl-ar-n64": check_bytes_at,
    "jax-AllGather": check_ring_of_links,
    "jax-ReduceScatter": check_ring_of_links,
    "jax-AllReduce": check_ring_of_links,
    "jax-AllToAll": check_all_to_all,
    "jax-AllGather-unidir": check_one_way,
    "jax-AllGather-latency": check_latency,
    "jax-ag-v5e": check_v5e,
    "jax-ag-v5e-nowrap": check_line,
    "jax-ag-v5e-lat": check_line_latency,
    "playbook-allreduce": check_playbook,
}
SELECTED = {row["id"]: row for row in rows() if OURS.match(row["id"])}


@pytest.mark.parametrize("name", SELECTED)
def test_published(name: str) -> None:
    assert CHECKS[name](SELECTED[name])


def test_each_row_has_a_check() -> None:
    assert set(CHECKS) == set(SELECTED)
    assert set(NOT_EXACT) <= set(SELECTED)


def test_a_wrong_figure_is_not_reproduced() -> None:
    changed = {
        "coll-allgather-ring": {"formula": "(p-1)*alpha + n*beta"},
        "coll-alltoall-pairwise": {"formula": "(p-1)*alpha + 2*n*beta"},
        "coll-reduce-binomial": {"formula": "ceil(lg p)*(alpha + n*beta)"},
        "nccl-busbw-AllReduce": {"formula": "(n-1)/n"},
        "nccl-ar-n8": {"value": 1.5},
        "coll-ring-eval-1048576-64": {"value": Decimal("0.00065064385")},
        "jax-AllGather-unidir": {"formula": "V/W_uni"},
        "jax-ag-v5e-nowrap": {"value": 561},
        "playbook-allreduce": {"formula": "2*(N-1)*K"},
    }
    assert not [name for name, change in changed.items() if CHECKS[name]({**SELECTED[name], **change})]


def test_the_torus_of_the_closed_form_is_that_of_the_rounds() -> None:
    """The exact time on several axes, of which the published one is a limit, is that of rounds that gather everything."""
    plan = Plan(kind="all_gather", devices=36, parts=72, rounds=tuple(torus_all_gather(6, 2)))
    most = sum(max(len(send.chunks) for send in one) for one in plan.rounds)
    assert Fraction(most, plan.parts) == on_torus(Fraction(6), 2, Fraction(1)).sent == Fraction(1, 4) * (1 + Fraction(1, 6))
