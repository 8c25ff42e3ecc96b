"""What collectives take: latency, bandwidth and reduction.

A message of m bytes takes alpha + m beta seconds, and adding m bytes to others takes m gamma. A collective takes the sum over its rounds,
in each of which devices send at the same time. n is the number of devices; where it is a power of two, it is 2^k.
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
    algorithm,
    by_induction,
    collective,
    crossover,
    holds,
    recursive,
    sign,
    theorem,
)

from .collectives import pow2
from .collectives_bytes import powers_outgrow_exponents, root_of_a_tree_sends_no_less_than_a_ring
from .kernel import sum_of_constant_counts_points, sum_of_copies

ALL_REDUCE, REDUCE_SCATTER = collective("all_reduce").sent, collective("reduce_scatter").sent
ALL_GATHER, ALL_TO_ALL = collective("all_gather").sent, collective("all_to_all").sent

# Closed forms of the product. That they are the sums over rounds is proved below of some, and computed in `collective_forms` of all.


def ring(n, s, alpha, beta, gamma):
    """Seconds of a ring all-reduce of s bytes."""
    return algorithm("all_reduce", "ring").seconds(n=n, s=s, alpha=alpha, beta=beta, gamma=gamma)


def halving_doubling(n, k, s, alpha, beta, gamma):
    """Seconds of Rabenseifner's all-reduce: a reduce-scatter by halving, then an all-gather by doubling."""
    return algorithm("all_reduce", "halving_doubling").seconds(n=n, k=k, s=s, alpha=alpha, beta=beta, gamma=gamma)


def doubling(k, s, alpha, beta, gamma):
    """Seconds of an all-reduce by recursive doubling: k rounds of the whole tensor."""
    return algorithm("all_reduce", "doubling").seconds(k=k, s=s, alpha=alpha, beta=beta, gamma=gamma)


def tree(k, s, alpha, beta, gamma):
    """Seconds of a reduce and a broadcast on a binomial tree: k rounds of the whole tensor each."""
    return algorithm("all_reduce", "tree").seconds(k=k, s=s, alpha=alpha, beta=beta, gamma=gamma)


def scatter_gather(n, k, s, alpha, beta):
    """Seconds of van de Geijn's broadcast: a scatter on a binomial tree, then an all-gather on a ring."""
    return algorithm("broadcast", "scatter_gather").seconds(n=n, k=k, s=s, alpha=alpha, beta=beta, gamma=0)


def tree_broadcast(k, s, alpha, beta):
    """Seconds of a broadcast on a binomial tree: k rounds of the whole tensor."""
    return algorithm("broadcast", "tree").seconds(k=k, s=s, alpha=alpha, beta=beta, gamma=0)


@theorem(expect=Proved(), cite="thakur2005")
def ring_takes_its_rounds(n: Degree, s: Real, alpha: Real, beta: Real, gamma: Real):
    """n - 1 rounds that send an n-th of the tensor and add it, and n - 1 that send one, take 2 (n - 1) alpha, beta for each byte that an
    all-reduce sends and gamma for each byte that a reduce-scatter sends."""
    adding, passing = alpha + s / n * (beta + gamma), alpha + s / n * beta
    lemmas = [sum_of_constant_counts_points.at(n=n - 1, k=adding), sum_of_constant_counts_points.at(n=n - 1, k=passing)]
    return holds(sum_of_copies(n - 1, adding) + sum_of_copies(n - 1, passing) == ring(n, s, alpha, beta, gamma), lemmas=lemmas)


ring_takes_its_rounds.control(
    "both passes add",
    lambda n, s, alpha, beta, gamma: 2 * sum_of_copies(n - 1, alpha + s / n * (beta + gamma)) == ring(n, s, alpha, beta, gamma),
    refuted_at={"n": 2, "s": 1, "alpha": 0, "beta": 0, "gamma": 1},
)


@recursive(on="k", reals=("s", "alpha", "each"))
def halving(k, s, alpha, each):
    """Seconds of k rounds: a message of half of s bytes, and then the same with the half that is left."""
    return 0, alpha + s / 2 * each + halving(k - 1, s / 2, alpha, each)


@theorem(expect=Proved(), cite="thakur2005")
def halving_takes_a_reduce_scatter(k: Natural, s: Real, alpha: Real, each: Real):
    """k rounds that begin with half of the tensor, and send half as much each time, take k alpha and the bytes of a ring reduce-scatter
    over 2^k devices.

    Recursive halving, a scatter on a binomial tree, and backwards an all-gather by recursive doubling.
    """
    closed = k * alpha + REDUCE_SCATTER(pow2(k), s) * each
    return by_induction(halving(k, s, alpha, each) == closed, on=k, at=[{"s": s / 2}], lemmas=[powers_outgrow_exponents.at(k=k)])


halving_takes_a_reduce_scatter.control(
    "the whole tensor each round",
    lambda k, s, alpha, each: halving(k, s, alpha, each) == k * (alpha + s * each),
    refuted_at={"k": 1, "s": 1, "alpha": 0, "each": 1},
)


@theorem(expect=Proved(), cite="thakur2005")
def rabenseifner_takes_its_rounds(k: Natural, s: Real, alpha: Real, beta: Real, gamma: Real):
    """Rabenseifner's all-reduce among 2^k devices takes 2 k alpha, and beta and gamma for as many bytes as on a ring.

    Recursive halving, then recursive doubling.
    """
    passes = halving(k, s, alpha, beta + gamma) + halving(k, s, alpha, beta)
    lemmas = [
        powers_outgrow_exponents.at(k=k),
        halving_takes_a_reduce_scatter.at(k=k, s=s, alpha=alpha, each=beta + gamma),
        halving_takes_a_reduce_scatter.at(k=k, s=s, alpha=alpha, each=beta),
    ]
    return holds(passes == halving_doubling(pow2(k), k, s, alpha, beta, gamma), lemmas=lemmas)


rabenseifner_takes_its_rounds.control(
    "recursive doubling",
    lambda k, s, alpha, beta, gamma: doubling(k, s, alpha, beta, gamma) == halving_doubling(pow2(k), k, s, alpha, beta, gamma),
    refuted_at={"k": 1, "s": 1, "alpha": 1, "beta": 1, "gamma": 1},
)


@theorem(expect=Proved(), cite="thakur2005")
def scattered_broadcast_takes_its_rounds(k: Natural, n: Integer, s: Real, alpha: Real, beta: Real):
    """A broadcast to n = 2^k devices by a scatter on a binomial tree and an all-gather on a ring takes (k + n - 1) alpha, and beta for each
    byte of an all-reduce.

    The paper ascribes it to van de Geijn, for long messages.
    """
    passing = alpha + s / n * beta
    lemmas = [
        powers_outgrow_exponents.at(k=k),
        halving_takes_a_reduce_scatter.at(k=k, s=s, alpha=alpha, each=beta),
        sum_of_constant_counts_points.at(n=n - 1, k=passing),
    ]
    goal = halving(k, s, alpha, beta) + sum_of_copies(n - 1, passing) == scatter_gather(n, k, s, alpha, beta)
    return by_induction(goal, on=k, given=[n == pow2(k)], lemmas=lemmas)


scattered_broadcast_takes_its_rounds.control(
    "each device is sent the tensor once",
    lambda k, n, s, alpha, beta: holds(
        halving(k, s, alpha, beta) + sum_of_copies(n - 1, alpha + s / n * beta) == (k + n - 1) * alpha + s * beta, given=[n == pow2(k)]
    ),
    refuted_at={"k": 2, "n": 4, "s": 1, "alpha": 1, "beta": 1},
)

# Which all-reduce is faster.


@theorem(expect=Proved(), cite="thakur2005")
def ring_is_faster_than_doubling_from_a_size_on(
    n: Degree, k: Integer, s: Real["byte"], alpha: Real["second"], beta: Positive["second / byte"], gamma: NonNegative["second / byte"]
):
    """For n = 2^k of 4 devices or more, a ring all-reduce is faster than recursive doubling exactly for tensors of more than
    (2 (n - 1) - k) alpha / ((k - 2 (n - 1)/n) beta + (k - (n - 1)/n) gamma) bytes, which the product gives as their crossover.

    The difference is a positive multiple of what the size exceeds this by. To compare the formulas, n need not be 2^k.
    """
    each = (k - ALL_REDUCE(n, 1)) * beta + (k - REDUCE_SCATTER(n, 1)) * gamma
    size = crossover("all_reduce", "doubling", "ring")
    gained = doubling(k, s, alpha, beta, gamma) - ring(n, s, alpha, beta, gamma)
    return holds(gained == each * (s - size), each > 0, size == (2 * (n - 1) - k) * alpha / each, given=[k >= 2])


ring_is_faster_than_doubling_from_a_size_on.control(
    "by bandwidth alone",
    lambda n, k, s, alpha, beta, gamma: holds(
        sign(doubling(k, s, alpha, beta, gamma) - ring(n, s, alpha, beta, gamma)) == sign(s), given=[k >= 2]
    ),
    refuted_at={"n": 4, "k": 2, "s": 1, "alpha": 1, "beta": 1, "gamma": 1},
)


@theorem(
    expect=Refuted(
        witness={"s": 1, "alpha": 1, "beta": 1, "gamma": 1}, because="it has 14 messages one after the other, and recursive doubling 3"
    ),
    cite="thakur2005",
)
def ring_is_always_faster(
    s: Positive["byte"], alpha: Positive["second"], beta: Positive["second / byte"], gamma: Positive["second / byte"]
):
    """On 8 devices, a ring all-reduce is never slower than recursive doubling, since no all-reduce sends less."""
    return ring(8, s, alpha, beta, gamma) <= doubling(3, s, alpha, beta, gamma)


ring_is_always_faster.control(
    "for long tensors",
    lambda s, alpha, beta, gamma: holds(
        ring(8, s, alpha, beta, gamma) <= doubling(3, s, alpha, beta, gamma), given=[44 * alpha <= 5 * s * beta]
    ),
    proved=True,
)


@theorem(expect=Proved(), cite="thakur2005")
def rabenseifner_is_no_slower_than_a_ring(k: Natural, s: Real, alpha: NonNegative, beta: Real, gamma: Real):
    """On 2^k devices, Rabenseifner's all-reduce takes no longer than a ring: it sends the same bytes in no more messages."""
    n = pow2(k)
    goal = halving_doubling(n, k, s, alpha, beta, gamma) <= ring(n, s, alpha, beta, gamma)
    return holds(goal, lemmas=[powers_outgrow_exponents.at(k=k)])


rabenseifner_is_no_slower_than_a_ring.control(
    "on two devices it is faster",
    lambda k, s, alpha, beta, gamma: halving_doubling(pow2(k), k, s, alpha, beta, gamma) < ring(pow2(k), s, alpha, beta, gamma),
    refuted_at={"k": 1, "s": 1, "alpha": 1, "beta": 1, "gamma": 1},
)


@theorem(expect=Proved(), cite="thakur2005")
def rabenseifner_is_no_slower_than_a_tree(k: Natural, s: NonNegative, alpha: Real, beta: NonNegative, gamma: NonNegative):
    """On 2^k devices, Rabenseifner's all-reduce takes no longer than a reduce and a broadcast on a binomial tree, whatever the size."""
    n = pow2(k)
    goal = halving_doubling(n, k, s, alpha, beta, gamma) <= tree(k, s, alpha, beta, gamma)
    return holds(goal, lemmas=[powers_outgrow_exponents.at(k=k), root_of_a_tree_sends_no_less_than_a_ring.at(k=k, s=s)])


rabenseifner_is_no_slower_than_a_tree.control(
    "nor than recursive doubling",
    lambda k, s, alpha, beta, gamma: halving_doubling(pow2(k), k, s, alpha, beta, gamma) <= doubling(k, s, alpha, beta, gamma),
    refuted_at={"k": 2, "s": 1, "alpha": 10, "beta": 1, "gamma": 1},
)


@theorem(expect=Proved(), cite="cho2019blueconnect")
def two_levels_save_latency_and_slow_bytes(
    m: Degree,
    g: Degree,
    s: Real["byte"],
    alpha: Real["second"],
    beta: Real["second / byte"],
    gamma: Real["second / byte"],
    alpha_far: Real["second"],
    beta_far: Real["second / byte"],
):
    """Over g nodes of m devices, a reduce-scatter within nodes, an all-reduce across them and an all-gather within, all by rings, take
    2 (m - 1) (g alpha_far - alpha) + 2 (m - 1)/m s (beta_far - beta) less than one ring over all.

    So they are no slower, if links between nodes are no faster than those within. A round of the flat ring takes as long as its slowest
    message, which leaves a node.
    """
    near, far = (algorithm("all_reduce", "hierarchical").level(number) for number in (0, 1))
    links = ((near, alpha, beta), (far, alpha_far, beta_far))
    levels = sum(messages * latency + sent * each + added * gamma for (messages, sent, added), latency, each in links)
    levels = levels.where(n_0=m, n_1=g)
    saved = 2 * (m - 1) * (g * alpha_far - alpha) + ALL_REDUCE(m, s) * (beta_far - beta)
    return ring(g * m, s, alpha_far, beta_far, gamma) - levels == saved


two_levels_save_latency_and_slow_bytes.control(
    "they take no longer than a ring across nodes",
    lambda m, g, s, alpha, beta, gamma, alpha_far, beta_far: (
        2 * (m - 1) * alpha + ALL_REDUCE(m, s) * beta + REDUCE_SCATTER(m, s) * gamma + ring(g, s / m, alpha_far, beta_far, gamma)
        <= ring(g, s, alpha_far, beta_far, gamma)
    ),
    refuted_at={"m": 2, "g": 2, "s": 1, "alpha": 1, "beta": 1, "gamma": 1, "alpha_far": 1, "beta_far": 1},
)

# Which broadcast, and which all-to-all.


@theorem(expect=Proved(), cite="thakur2005")
def scattered_broadcast_is_faster_from_a_size_on(
    n: Degree, k: Integer, s: Real["byte"], alpha: Real["second"], beta: Positive["second / byte"]
):
    """For n = 2^k of 4 devices or more, van de Geijn's broadcast is faster than a binomial tree exactly for tensors of more than
    (n - 1) alpha / ((k - 2 (n - 1)/n) beta) bytes.

    The difference is a positive multiple of what the size exceeds this by.
    """
    each = (k - ALL_REDUCE(n, 1)) * beta
    gained = tree_broadcast(k, s, alpha, beta) - scatter_gather(n, k, s, alpha, beta)
    return holds(gained == each * (s - (n - 1) * alpha / each), each > 0, given=[k >= 2])


scattered_broadcast_is_faster_from_a_size_on.control(
    "on two devices",
    lambda n, k, s, alpha, beta: tree_broadcast(k, s, alpha, beta) > scatter_gather(n, k, s, alpha, beta),
    refuted_at={"n": 2, "k": 1, "s": 1000, "alpha": 1, "beta": 1},
)


@theorem(expect=Proved(), cite="bruck1997efficient")
def bruck_all_to_all_is_faster_up_to_a_size(n: Degree, k: Integer, s: Real["byte"], alpha: Real["second"], beta: Positive["second / byte"]):
    """For n = 2^k of 4 devices or more, Bruck's all-to-all, k rounds that each send half of the s bytes that a device holds, is faster than
    n - 1 messages, one to each other device, exactly if s is less than (n - 1 - k) alpha / ((k/2 - (n - 1)/n) beta), which the product
    gives as their crossover."""
    pairwise, bruck = (algorithm("all_to_all", name).seconds(gamma=0) for name in ("pairwise", "bruck"))
    each = (k / 2 - ALL_TO_ALL(n, 1)) * beta
    size = crossover("all_to_all", "pairwise", "bruck").where(gamma=0)
    return holds(pairwise - bruck == each * (size - s), each > 0, size == (n - 1 - k) * alpha / each, given=[k >= 2])


bruck_all_to_all_is_faster_up_to_a_size.control(
    "it sends less",
    lambda k: holds(algorithm("all_to_all", "bruck").sent < algorithm("all_to_all", "pairwise").sent, given=[k >= 2]),
    refuted_at={"n": 4, "k": 2, "s": 1},
)

# What does not hold of rings.


@theorem(
    expect=Refuted(
        witness={"n": 2, "s": 1, "alpha": 1, "beta": 1, "gamma": 1}, because="each further device is two more messages one after the other"
    ),
    cite="gibiansky2017hpc",
)
def ring_time_is_independent_of_devices(
    n: Degree, s: Positive["byte"], alpha: Positive["second"], beta: Positive["second / byte"], gamma: Positive["second / byte"]
):
    """A ring all-reduce over n + 1 devices takes no longer than one over n.

    What a device sends has a limit, and this is meant where it is called independent of the number of devices.
    """
    return ring(n + 1, s, alpha, beta, gamma) <= ring(n, s, alpha, beta, gamma)


ring_time_is_independent_of_devices.control(
    "a device sends 2 s / n less than the limit", lambda n, s: ALL_REDUCE(n, s) == 2 * s - 2 * s / n, proved=True
)


@theorem(
    expect=Refuted(
        witness={"n": 2, "s": 1, "b": 2, "alpha": 1, "beta": 1, "gamma": 1}, because="each bucket has 2 (n - 1) messages of its own"
    ),
    cite="li2020ddp",
)
def buckets_take_no_longer(
    n: Degree, s: Positive["byte"], b: Degree, alpha: Positive["second"], beta: Positive["second / byte"], gamma: Positive["second / byte"]
):
    """A ring all-reduce of s bytes in b equal buckets, one after the other, takes no longer than one of all s bytes.

    Buckets are there for overlap with backward, and small ones lose by latency what they gain.
    """
    return b * ring(n, s / b, alpha, beta, gamma) <= ring(n, s, alpha, beta, gamma)


buckets_take_no_longer.control(
    "they take 2 (n - 1) (b - 1) alpha longer",
    lambda n, s, b, alpha, beta, gamma: (
        b * ring(n, s / b, alpha, beta, gamma) == ring(n, s, alpha, beta, gamma) + 2 * (n - 1) * (b - 1) * alpha
    ),
    proved=True,
)
