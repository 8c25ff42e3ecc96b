"""Messages between stages that take time: what they add to a step of GPipe and of 1F1B.

There are p stages and m micro-batches, numbered from 0. A forward takes t_f and a backward t_b. A message takes c, from the end of an
operation until its result is at the next stage, and the sender goes on at once. Times are reals without a unit.
"""

from placeproof.theory import (
    Degree,
    Integer,
    Natural,
    NonNegative,
    Proved,
    Real,
    by_induction,
    holds,
    indicator,
    maximum,
    recursive,
    theorem,
)

from .schedules import integers_have_gaps, spent, time_spent_is_a_product, time_spent_is_not_negative
from .zero_bubble import operations_in_a_row_take_their_sum, ran

# GPipe: a wave of forwards down the stages, and one of backwards up.


@recursive(on="n", reals=("s", "t", "c"))
def sent_wave(n, i, s, t, c):
    """When micro-batch n - i leaves stage i of a wave of operations that take t each. Stage 0 has all inputs at s."""
    fed, free = sent_wave(n - 1, i - 1, s, t, c) + c, sent_wave(n - 1, i, s, t, c)
    return s + t, maximum(fed + indicator(i, 0) * (s - fed), free + indicator(i, n) * (s - free)) + t


@theorem(expect=Proved(), cite="huang2019gpipe", level=1)
def a_wave_waits_for_one_message_per_stage(n: Natural, i: Natural, s: Real, t: NonNegative, c: NonNegative):
    """Micro-batch j leaves stage i of a wave after i + j + 1 operations and i messages, whatever messages take. Here n = i + j."""
    gaps = [integers_have_gaps.at(a=i), integers_have_gaps.at(a=n - i)]
    times = [time_spent_is_not_negative.at(k=i, t=c)]
    return by_induction(
        sent_wave(n, i, s, t, c) == s + (n + 1) * t + spent(i, c), on=n, given=[i <= n], at=[{}, {"i": i - 1}], lemmas=gaps + times
    )


a_wave_waits_for_one_message_per_stage.control(
    "one for each micro-batch",
    lambda n, i, s, t, c: holds(sent_wave(n, i, s, t, c) == s + (n + 1) * t + spent(n - i, c), given=[i <= n]),
    refuted_at={"n": 1, "i": 0, "c": 1},
)


def sent_gpipe(m, p, t_f, t_b, c):
    """When GPipe's step ends: a wave down the stages, and one up."""
    return sent_wave(m + p - 2, p - 1, sent_wave(m + p - 2, p - 1, 0, t_f, c), t_b, c)


def known_of_sent_gpipe(m, p, t_f, t_b, c):
    """Its two waves, as lemmas."""
    down = a_wave_waits_for_one_message_per_stage.at(n=m + p - 2, i=p - 1, s=0, t=t_f, c=c)
    up = a_wave_waits_for_one_message_per_stage.at(n=m + p - 2, i=p - 1, s=sent_wave(m + p - 2, p - 1, 0, t_f, c), t=t_b, c=c)
    return [down, up, time_spent_is_a_product.at(k=p - 1, t=c)]


@theorem(expect=Proved(), cite="huang2019gpipe", level=1)
def gpipe_waits_for_two_messages_per_further_stage(m: Degree, p: Degree, t_f: NonNegative, t_b: NonNegative, c: NonNegative):
    """GPipe's bubble is (p - 1) * (t_f + t_b + 2 * c), however many micro-batches there are, if a message takes c."""
    bubble = sent_gpipe(m, p, t_f, t_b, c) - m * (t_f + t_b)
    return holds(bubble == (p - 1) * (t_f + t_b + 2 * c), lemmas=known_of_sent_gpipe(m, p, t_f, t_b, c))


gpipe_waits_for_two_messages_per_further_stage.control(
    "for two per micro-batch",
    lambda m, p, t_f, t_b, c: sent_gpipe(m, p, t_f, t_b, c) - m * (t_f + t_b) == (p - 1) * (t_f + t_b) + 2 * m * c,
    refuted_at={"m": 2, "p": 2, "c": 1},
)


# 1F1B: no more than p micro-batches are in flight, so that a round of p waits for the one before.


@recursive(on="g", reals=("t_f", "t_b", "c"))
def rounds(g, p, t_f, t_b, c):
    """When stage 0 of 1F1B ends the backward of micro-batch g * p - 1, if nothing else held it back than g rounds of p micro-batches.

    It runs the forward of a micro-batch after the backward of that which is p before. The micro-batch needs a forward and a backward on
    each stage, and p - 1 messages down and up. Whatever else there is may hold each of these back.
    """
    down = ran(p - 1, 3 * g, rounds(g - 1, p, t_f, t_b, c), t_f + c)
    return 0, ran(p - 1, 3 * g + 2, ran(1, 3 * g + 1, down, t_f + t_b), c + t_b)


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def a_1f1b_waits_for_messages_in_every_round(g: Natural, p: Degree, t_f: Real, t_b: Real, c: Real):
    """For g * p micro-batches 1F1B takes at least g times p * (t_f + t_b) + 2 * (p - 1) * c: each p micro-batches wait for their messages
    anew, because no more than p are in flight.
    """
    before = rounds(g - 1, p, t_f, t_b, c)
    down = ran(p - 1, 3 * g, before, t_f + c)
    last = ran(1, 3 * g + 1, down, t_f + t_b)
    lemmas = [
        operations_in_a_row_take_their_sum.at(k=p - 1, part=3 * g, s=before, t=t_f + c),
        operations_in_a_row_take_their_sum.at(k=1, part=3 * g + 1, s=down, t=t_f + t_b),
        operations_in_a_row_take_their_sum.at(k=p - 1, part=3 * g + 2, s=last, t=c + t_b),
    ]
    round_trip = p * (t_f + t_b) + 2 * (p - 1) * c
    return by_induction(rounds(g, p, t_f, t_b, c) >= g * round_trip, on=g, lemmas=lemmas)


a_1f1b_waits_for_messages_in_every_round.control(
    "and for two more",
    lambda g, p, t_f, t_b, c: rounds(g, p, t_f, t_b, c) >= g * (p * (t_f + t_b) + 2 * (p + 1) * c),
    refuted_at={"g": 1, "p": 1, "t_f": 1, "t_b": 1, "c": 100},
)


@theorem(expect=Proved(), cite=("huang2019gpipe", "narayanan2021megatron"), level=1)
def messages_can_make_1f1b_slower_than_gpipe(g: Degree, p: Integer, t_f: NonNegative, t_b: NonNegative, c: Real):
    """For g * p micro-batches on p >= 2 stages, 1F1B takes longer than GPipe, if 2 * (g - 1) * c > t_f + t_b.

    Without messages they take equally long.
    """
    lemmas = [
        a_1f1b_waits_for_messages_in_every_round.at(g=g, p=p, t_f=t_f, t_b=t_b, c=c),
        *known_of_sent_gpipe(g * p, p, t_f, t_b, c),
    ]
    return holds(
        rounds(g, p, t_f, t_b, c) > sent_gpipe(g * p, p, t_f, t_b, c),
        given=[p >= 2, 2 * (g - 1) * c > t_f + t_b],
        lemmas=lemmas,
    )


messages_can_make_1f1b_slower_than_gpipe.control(
    "whatever messages take",
    lambda g, p, t_f, t_b, c: holds(rounds(g, p, t_f, t_b, c) > sent_gpipe(g * p, p, t_f, t_b, c), given=[p >= 2]),
    refuted_at={"g": 1, "p": 2, "t_f": 1, "t_b": 1, "c": 0},
)
