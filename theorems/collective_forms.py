"""Closed forms of collectives' algorithms, as the product ships them: messages, bytes sent and bytes added, one after the other.

n is the number of devices, s the bytes of the collective, and k is log2 n, rounded up where n is no power of two. Each form is held against
the algorithm's rounds, who sends which chunks to whom, for groups of up to 17 devices, or of two and three levels; those that follow by
recursion for all n are in `collectives_time`.
"""

from itertools import product

from placeproof.theory import Degree, Integer, NonNegative, Positive, Proved, Real, algorithm, collective, crossover, holds, theorem

FLAT = {
    "all_reduce": ("ring", "halving_doubling", "folded", "doubling", "tree", "bidirectional"),
    "reduce_scatter": ("ring", "halving", "bidirectional"),
    "all_gather": ("ring", "doubling", "bruck", "neighbour_exchange", "bidirectional", "line"),
    "all_to_all": ("pairwise", "bruck", "ring", "bidirectional"),
    "broadcast": ("tree", "scatter_gather", "chain"),
    "reduce": ("tree", "chain"),
    "scatter": ("tree",),
    "send": ("message",),
}
HIERARCHICAL = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")
#: Algorithms whose rounds each lie within blocks of a power of two devices, or between them; and those of which neither that nor its
#: opposite holds.
NESTED = {
    ("all_reduce", "halving_doubling"), ("all_reduce", "doubling"), ("all_reduce", "tree"), ("reduce_scatter", "halving"),
    ("all_gather", "doubling"), ("broadcast", "tree"), ("broadcast", "scatter_gather"), ("reduce", "tree"), ("scatter", "tree"),
}  # fmt: skip
NO_LEVELS = {("all_reduce", "folded"), ("all_gather", "neighbour_exchange"), ("all_gather", "line"), ("send", "message")}
#: How many blocks each level joins, from the inside out.
LEVELS = (*product((1, 2, 3, 4), repeat=2), *product((1, 2, 3), repeat=3))


def rounds_take(*kinds):
    """The closed forms of all algorithms of some collectives are what their rounds take."""
    return [algorithm(kind, name).off() == 0 for kind in kinds for name in FLAT[kind]]


@theorem(expect=Proved(), cite=("thakur2005", "rabenseifner2004"))
def algorithms_of_all_reduce_take_what_their_forms_say():
    """Rings, halving and doubling, folded or not, trees and rings in both directions take for an all-reduce what their forms say."""
    return rounds_take("all_reduce")


algorithms_of_all_reduce_take_what_their_forms_say.control(
    "a ring needs one message more", lambda: algorithm("all_reduce", "ring").off(by=1) == 0, refuted_at={}
)


@theorem(expect=Proved(), cite=("thakur2005", "chan2007collective"))
def algorithms_of_its_passes_take_what_their_forms_say():
    """Algorithms of a reduce-scatter and of an all-gather take what their forms say."""
    return rounds_take("reduce_scatter", "all_gather")


algorithms_of_its_passes_take_what_their_forms_say.control(
    "a ring needs as many rounds as devices", lambda: algorithm("all_gather", "ring").off((4,), by=1) == 0, refuted_at={}
)


@theorem(expect=Proved(), cite=("thakur2005", "bruck1997efficient"))
def algorithms_of_all_to_all_take_what_their_forms_say():
    """Algorithms of an all-to-all take what their forms say."""
    return rounds_take("all_to_all")


algorithms_of_all_to_all_take_what_their_forms_say.control(
    "Bruck's needs as many rounds as devices", lambda: algorithm("all_to_all", "bruck").off((8,), by=5) == 0, refuted_at={}
)


@theorem(expect=Proved(), cite=("thakur2005", "patarasuk2009"))
def algorithms_from_one_device_take_what_their_forms_say():
    """Algorithms of a broadcast, a reduce, a scatter and a message take what their forms say; chains in up to 4 segments, too."""
    chains = [algorithm(kind, "chain", segments=count).off() == 0 for kind in ("broadcast", "reduce") for count in (2, 3, 4)]
    return rounds_take("broadcast", "reduce", "scatter", "send") + chains


algorithms_from_one_device_take_what_their_forms_say.control(
    "a chain in 3 segments needs no more messages than in 1",
    lambda: algorithm("broadcast", "chain", segments=3).off((4,), by=-2) == 0,
    refuted_at={},
)


def every():
    """Each algorithm, with the groups of two and three levels that a closed form of it is for, which follows from which of its messages
    leave a block: some of each round; or all of some rounds and none of others, where blocks are powers of two; or those of a chain, in
    numbers alone. Of others there is a form where one level alone joins several devices, and none in symbols."""
    for kind, names in {**FLAT, **{kind: (*FLAT[kind], "hierarchical") for kind in HIERARCHICAL}}.items():
        for name in names:
            nested, other = (kind, name) in NESTED, (kind, name) in NO_LEVELS
            fit = [s for s in LEVELS if (not nested or _powers_within(s)) and (not other or _one_level(s))]
            yield algorithm(kind, name), fit, int(not other and name != "chain")


def _powers_within(sizes):
    used = [size for size in sizes if size > 1]
    return all(size & (size - 1) == 0 for size in used[:-1])


def _one_level(sizes):
    return sum(size > 1 for size in sizes) <= 1


@theorem(expect=Proved(), cite=("cho2019blueconnect", "rajbhandari2022moe", "thakur2005"))
def algorithms_over_levels_take_what_their_forms_say():
    """Over every group of two levels of up to 4 blocks each, and of three of up to 3, each algorithm takes on each level what its form says
    of it, with symbols as with numbers."""
    return [one.off(fit) == 0 for one, fit, _ in every()]


algorithms_over_levels_take_what_their_forms_say.control(
    "one message more", lambda: algorithm("all_gather", "hierarchical").off(LEVELS, by=1) == 0, refuted_at={}
)


@theorem(expect=Proved(), cite=("cho2019blueconnect", "thakur2005"))
def algorithms_have_a_form_over_levels_where_they_say():
    """Of these groups, an algorithm has a form in all whose number of devices it is for, if some message of each round leaves its block, or
    if it is a chain; in those whose inner levels are powers of two, if a round lies within blocks or between them as a whole; and else in
    those where one level alone joins devices."""
    goals = []
    for one, fit, known in every():
        goals += [one.known_over(LEVELS) == one.known_over(fit), one.known_over(fit) >= 1, one.in_symbols() == known]
    return holds([goal for goal in goals if not goal.trivial()])


algorithms_have_a_form_over_levels_where_they_say.control(
    "a tree over any levels", lambda: algorithm("broadcast", "tree").known_over([(3, 2), (2, 3)]) == 2, refuted_at={}
)


@theorem(expect=Proved(), cite=("cho2019blueconnect", "austin2025scale"))
def algorithms_carry_over_links_what_their_rounds_send():
    """What a device is said to send over each level of links is the mean of what its rounds send over them, whichever the algorithm, in
    groups of up to 12 devices: over nodes of 4, and nodes of 2 in pods of 6, of which the last may be smaller."""
    return [one.carried_off(*joins) == 0 for one, *_ in every() for joins in ((4,), (2, 6))]


algorithms_carry_over_links_what_their_rounds_send.control(
    "and a byte more", lambda: algorithm("all_reduce", "ring").carried_off(4, by=1) == 0, refuted_at={}
)


# What holds of forms for all numbers of devices.


@theorem(expect=Proved(), cite=("thakur2005", "patarasuk2009"))
def rings_send_what_the_table_says(n: Degree, s: Real):
    """By its form a ring sends of an all-reduce, a reduce-scatter and an all-gather what the table of collectives says, one after the
    other; so do an all-to-all in pairs, and an all-reduce by halving and doubling."""
    pairs = [(kind, "ring") for kind in ("all_reduce", "reduce_scatter", "all_gather")]
    pairs += [("all_to_all", "pairwise"), ("all_reduce", "halving_doubling"), ("reduce_scatter", "halving"), ("all_gather", "doubling")]
    return holds([algorithm(kind, name).sent == collective(kind).sent(n, s) for kind, name in pairs])


rings_send_what_the_table_says.control(
    "an all-to-all on a ring",
    lambda n, s: algorithm("all_to_all", "ring").sent == collective("all_to_all").sent(n, s),
    refuted_at={"n": 3, "s": 1},
)


@theorem(expect=Proved(), cite="chan2007collective")
def a_ring_all_reduce_is_its_two_passes(n: Degree, s: Real, alpha: Real, beta: Real, gamma: Real):
    """By their forms a ring all-reduce takes as long as a ring reduce-scatter and then a ring all-gather."""
    passes = algorithm("reduce_scatter", "ring").seconds() + algorithm("all_gather", "ring").seconds()
    return algorithm("all_reduce", "ring").seconds() == passes


a_ring_all_reduce_is_its_two_passes.control(
    "both passes add",
    lambda: algorithm("all_reduce", "ring").seconds() == 2 * algorithm("reduce_scatter", "ring").seconds(),
    refuted_at={"n": 4, "s": 1, "alpha": 1, "beta": 1, "gamma": 1},
)


@theorem(expect=Proved(), cite="austin2025scale")
def both_directions_halve_what_a_ring_sends(n: Integer, s: Real):
    """By their forms, a reduce-scatter and an all-gather in both directions of a ring have half as many messages one after the other as in
    one direction, and half a message more; and n / (n - 1) times half as many bytes over a link."""
    goals = []
    for kind in ("reduce_scatter", "all_gather"):
        both, one = algorithm(kind, "bidirectional"), algorithm(kind, "ring")
        goals += [2 * both.messages == one.messages + 1, 2 * both.sent == one.sent * n / (n - 1)]
    return holds(goals, given=[n >= 2])


both_directions_halve_what_a_ring_sends.control(
    "exactly half as many messages",
    lambda: 2 * algorithm("all_gather", "bidirectional").messages == algorithm("all_gather", "ring").messages,
    refuted_at={"n": 2, "s": 1},
)


@theorem(expect=Proved(), cite="thakur2005", level=1)
def at_a_crossover_both_take_equally_long(n: Degree, k: Integer, alpha: Real, beta: Positive, gamma: NonNegative):
    """At the size that the product gives as the crossover of a ring and of recursive doubling, both take equally long, on 4 devices or
    more; so it is for a tree and van de Geijn's broadcast."""
    goals = []
    for kind, one, other in (("all_reduce", "doubling", "ring"), ("broadcast", "tree", "scatter_gather")):
        size = crossover(kind, one, other)
        goals.append(algorithm(kind, one).seconds(s=size) == algorithm(kind, other).seconds(s=size))
    return holds(goals, given=[k >= 2])


def gained(factor):
    """What a ring takes less than recursive doubling for so many times the bytes of their crossover."""
    size = factor * crossover("all_reduce", "doubling", "ring")
    return algorithm("all_reduce", "doubling").seconds(s=size) - algorithm("all_reduce", "ring").seconds(s=size)


at_a_crossover_both_take_equally_long.control(
    "at twice the size, too", lambda: gained(2) == 0, refuted_at={"n": 4, "k": 2, "alpha": 1, "beta": 1, "gamma": 1}
)
