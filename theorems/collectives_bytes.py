"""What collectives send. That no all-reduce sends less than a ring is in ``information_flow``.

Bytes are those that one device sends, unless all devices are spoken of. The product's formulas are those of its table of collectives.
"""

from __future__ import annotations

from placeproof.theory import (
    Degree,
    Integer,
    Natural,
    NonNegative,
    Positive,
    Proved,
    Real,
    Refuted,
    by_induction,
    collective,
    derived,
    holds,
    recursive,
    theorem,
)

from .collectives import binomial_tree_takes_no_more_rounds, pow2, reached
from .kernel import sum_of_constant_counts_points, sum_of_copies

ALL_REDUCE, REDUCE_SCATTER = collective("all_reduce").sent, collective("reduce_scatter").sent
ALL_GATHER, ALL_TO_ALL = collective("all_gather").sent, collective("all_to_all").sent
REDUCE, BROADCAST = collective("reduce").sent, collective("broadcast").sent

# The ring. The sum of t copies of m is what t messages of m bytes send.


@theorem(expect=Proved(), cite="thakur2005")
def ring_sends_an_nth_each_round(n: Degree, s: Real):
    """A reduce-scatter, an all-gather and an all-to-all of s bytes send what n - 1 messages of an n-th of s send.

    In an all-to-all, each other device is sent its part.
    """
    sent = sum_of_copies(n - 1, s / n)
    goals = [sent == REDUCE_SCATTER(n, s), sent == ALL_GATHER(n, s), sent == ALL_TO_ALL(n, s)]
    return holds(goals, lemmas=[sum_of_constant_counts_points.at(n=n - 1, k=s / n)])


ring_sends_an_nth_each_round.control(
    "n rounds, one for each device", lambda n, s: sum_of_copies(n, s / n) == ALL_GATHER(n, s), refuted_at={"n": 2, "s": 1}
)


@theorem(expect=Proved(), cite="patarasuk2009")
def data_parallelism_sends_two_passes_of_a_ring(P: Real, b_g: Real, N: Degree):
    """Data parallelism sends what a ring all-reduce of the gradients sends, in N - 1 rounds of reduce-scatter and N - 1 of all-gather."""
    part = P * b_g / N
    sent = sum_of_copies(N - 1, part) + sum_of_copies(N - 1, part)
    return holds(derived("ddp").sent == sent, lemmas=[sum_of_constant_counts_points.at(n=N - 1, k=part)])


data_parallelism_sends_two_passes_of_a_ring.control(
    "one pass", lambda P, b_g, N: derived("ddp").sent == sum_of_copies(N - 1, P * b_g / N), refuted_at={"P": 1, "b_g": 2, "N": 2}
)


@theorem(expect=Refuted(witness={"n": 2, "s": 1}, because="it is two passes of the ring"), cite="thakur2005")
def all_reduce_sends_what_all_gather_sends(n: Degree, s: Positive["byte"]):
    """An all-reduce of s bytes sends what an all-gather to s bytes sends."""
    return ALL_REDUCE(n, s) == ALL_GATHER(n, s)


all_reduce_sends_what_all_gather_sends.control(
    "with a reduce-scatter before it", lambda n, s: ALL_REDUCE(n, s) == REDUCE_SCATTER(n, s) + ALL_GATHER(n, s), proved=True
)


@theorem(expect=Proved(), cite="press2017tied")
def tied_weights_cost_an_all_reduce_of_two(n: Integer, s: Real):
    """Adding the gradients of a weight that the two ends of a pipeline share sends what an all-reduce between two devices sends."""
    return holds(collective("tied_reduce").sent(n, s) == ALL_REDUCE(n, s), given=[n == 2])


tied_weights_cost_an_all_reduce_of_two.control(
    "among all stages", lambda n, s: collective("tied_reduce").sent(n, s) == ALL_REDUCE(n, s), refuted_at={"n": 4, "s": 1}
)

# Chains, trees, Bruck's algorithm, two levels.


@theorem(expect=Refuted(witness={"n": 2, "s": 1}, because="along chains they send 2 s"), cite="patarasuk2009")
def reduce_and_broadcast_send_no_more(n: Degree, s: Positive["byte"]):
    """A reduce to one device and a broadcast from it send no more from a device than an all-reduce on a ring."""
    return REDUCE(n, s) + BROADCAST(n, s) <= ALL_REDUCE(n, s)


reduce_and_broadcast_send_no_more.control(
    "they send 2 s / n more", lambda n, s: REDUCE(n, s) + BROADCAST(n, s) == ALL_REDUCE(n, s) + 2 * s / n, proved=True
)


@recursive(on="k")
def messages(k):
    """Messages of a reduce or a broadcast on a binomial tree of 2^k devices: those of two smaller trees, and one between their roots."""
    return 0, 2 * messages(k - 1) + 1


@theorem(expect=Proved(), cite="graham1994concrete")
def powers_outgrow_exponents(k: Natural):
    """2^k is at least k + 1."""
    return by_induction(k + 1 <= pow2(k), on=k)


powers_outgrow_exponents.control("2 k + 1", lambda k: 2 * k + 1 <= pow2(k), refuted_at={"k": 1})


@theorem(expect=Proved(), cite="thakur2005")
def tree_sends_in_all_what_a_ring_sends(k: Natural, s: Real):
    """All devices together send on a binomial tree, in a reduce and a broadcast of s bytes, what they send in a ring all-reduce.

    The tree is no waste of bytes. It has them sent by few devices.
    """
    n = pow2(k)
    return by_induction(2 * messages(k) * s == n * ALL_REDUCE(n, s), on=k, lemmas=[powers_outgrow_exponents.at(k=k)])


tree_sends_in_all_what_a_ring_sends.control(
    "a message for each device", lambda k, s: 2 * pow2(k) * s == pow2(k) * ALL_REDUCE(pow2(k), s), refuted_at={"k": 1, "s": 1}
)


@theorem(expect=Proved(), cite="thakur2005")
def root_of_a_tree_sends_no_less_than_a_ring(k: Natural, s: NonNegative):
    """The root of a binomial tree of n = 2^k devices sends k messages of s bytes in a broadcast, no less than a device in a ring
    all-reduce."""
    return by_induction(ALL_REDUCE(pow2(k), s) <= k * s, on=k, lemmas=[powers_outgrow_exponents.at(k=k)])


root_of_a_tree_sends_no_less_than_a_ring.control(
    "on two devices it sends more", lambda k, s: ALL_REDUCE(pow2(k), s) < k * s, refuted_at={"k": 1, "s": 1}
)


@theorem(expect=Proved(), cite="bruck1997efficient")
def bruck_all_gather_sends_what_a_ring_sends(t: Natural, n: Degree, s: Real):
    """Bruck's all-gather sends what the ring sends, in t rounds as soon as 2^t is n or more, whether n is a power of two or not.

    A device gets the n - 1 blocks that it lacks once each, and sends as many as it gets.
    """
    got = (reached(t, n) - 1) * (s / n)
    lemmas = [binomial_tree_takes_no_more_rounds.at(t=t, n=n)]
    return by_induction(got == ALL_GATHER(n, s), on=t, given=[n <= pow2(t)], lemmas=lemmas)


bruck_all_gather_sends_what_a_ring_sends.control(
    "the last round doubles too",
    lambda t, n, s: holds((pow2(t) - 1) * (s / n) == ALL_GATHER(n, s), given=[n <= pow2(t)]),
    refuted_at={"t": 2, "n": 3, "s": 1},
)


@theorem(
    expect=Refuted(
        witness={"m": 8, "g": 2, "s": 1}, because="a flat ring leaves a node over one link, and the m devices of a hierarchy over m of them"
    ),
    cite="cho2019blueconnect",
    level=2,
)
def hierarchy_sends_an_mth_out_of_a_node(m: Degree, g: Degree, s: Positive["byte"]):
    """An all-reduce in two levels over g nodes of m devices sends one m-th of the bytes out of a node that a flat ring sends.

    Each device sends the other nodes its m-th of the tensor, and all m devices of a node do. The flat ring goes from node to node.
    """
    return m * (m * ALL_REDUCE(g, s / m)) <= ALL_REDUCE(g * m, s)


hierarchy_sends_an_mth_out_of_a_node.control(
    "it saves less than 2 s / g",
    lambda m, g, s: ALL_REDUCE(g * m, s) - m * ALL_REDUCE(g, s / m) == 2 * s / g * (m - 1) / m,
    proved=True,
)
