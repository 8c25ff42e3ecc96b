"""Costs of pipelines: bubbles as shares of time, activations in flight, and messages.

A share of a bubble is over the ideal time, for which a device is busy, or over the total time of the step; each statement says which. N
or p is the number of stages, m of micro-batches. Times follow from the recursions of the schedules, bytes from step programs.
"""

from fractions import Fraction

from placeproof.theory import (
    Count,
    Degree,
    Integer,
    NonNegative,
    Positive,
    Proved,
    Real,
    Refuted,
    chain,
    derived,
    holds,
    maximum,
    minimum,
    schedule,
    sign,
    theorem,
)

from .schedules import (
    a_wave_moves_one_stage_per_operation,
    drain,
    gpipe,
    gpipe_and_1f1b_take_equally_long,
    gpipe_waits_for_one_forward_and_backward_per_further_stage,
    half_the_stages_worth_is_in_flight_on_average,
    held_up_to,
    most_in_flight,
    the_most_in_flight_is_warm_up_plus_one,
    wave,
)

# Bubbles of GPipe and 1F1B as shares of time.


def busy(m, t_f, t_b):
    """The time for which a stage computes."""
    return m * (t_f + t_b)


def waiting(m, p, t_f, t_b):
    """What is known about GPipe's bubble."""
    return [gpipe_waits_for_one_forward_and_backward_per_further_stage.at(m=m, p=p, t_f=t_f, t_b=t_b)]


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def the_bubble_over_ideal_time(m: Degree, p: Degree, t_f: Positive, t_b: Positive):
    """Over the ideal time, GPipe's bubble is (p - 1) / m.

    This is the convention of section 2.2.1 of the source, and holds for 1F1B, too.
    """
    bubble = gpipe(m, p, t_f, t_b) - busy(m, t_f, t_b)
    return holds(bubble / busy(m, t_f, t_b) == over_ideal(m, p), over_ideal(m, p) == (p - 1) / m, lemmas=waiting(m, p, t_f, t_b))


the_bubble_over_ideal_time.control(
    "the share of the other convention",
    lambda m, p, t_f, t_b: (gpipe(m, p, t_f, t_b) - busy(m, t_f, t_b)) / busy(m, t_f, t_b) == (p - 1) / (m + p - 1),
    refuted_at={"m": 2, "p": 2},
)


@theorem(expect=Proved(), cite="huang2019gpipe", level=1)
def the_bubble_over_total_time(m: Degree, p: Degree, t_f: Positive, t_b: Positive):
    """Over the total time, GPipe's bubble is (p - 1) / (m + p - 1).

    This is the convention of section 2.3 of the source.
    """
    step = gpipe(m, p, t_f, t_b)
    share = over_total(m, p)
    return holds((step - busy(m, t_f, t_b)) / step == share, share == (p - 1) / (m + p - 1), lemmas=waiting(m, p, t_f, t_b))


the_bubble_over_total_time.control(
    "the share of the other convention, which is larger",
    lambda m, p, t_f, t_b: (gpipe(m, p, t_f, t_b) - busy(m, t_f, t_b)) / gpipe(m, p, t_f, t_b) == (p - 1) / m,
    refuted_at={"m": 2, "p": 2},
)


def shipped(what, m, p):
    """A form of 1F1B that the product ships, if all passes take one unit of time, and messages none."""
    return schedule("1f1b").form(what).where(m=m, p=p, T_F=1, T_B=1, T_W=1, T_send=0)


def over_ideal(m, p):
    """The bubble over the ideal time."""
    return shipped("idle", m, p) / shipped("busy", m, p)


def over_total(m, p):
    """The bubble over the total time."""
    return shipped("idle", m, p) / (shipped("idle", m, p) + shipped("busy", m, p))


@theorem(
    expect=Refuted(
        witness={"m": 2, "p": 4}, because="(p - 1) / m is over the ideal time, and 3 stages' wait is more than 2 micro-batches' work"
    ),
    cite="narayanan2021megatron",
)
def the_bubble_over_ideal_time_is_at_most_one(m: Degree, p: Degree):
    """(p - 1) / m, the bubble over the ideal time, is a part of the whole: at most 1."""
    return over_ideal(m, p) <= 1


the_bubble_over_ideal_time_is_at_most_one.control(
    "over the total time it is less than 1, and converts as x / (1 + x)",
    lambda m, p: [over_total(m, p) < 1, over_total(m, p) == over_ideal(m, p) / (1 + over_ideal(m, p))],
    proved=True,
)


@theorem(expect=Proved(), cite="huang2019gpipe")
def the_bubble_falls_with_micro_batches_and_grows_with_stages(m: Degree, p: Integer):
    """Over the total time, one micro-batch more makes the share of the bubble smaller, and one stage more makes it larger, if p >= 2."""
    return holds(chain("<", over_total(m + 1, p), over_total(m, p), over_total(m, p + 1)), given=[p >= 2])


the_bubble_falls_with_micro_batches_and_grows_with_stages.control(
    "as many more of both leave it as it is",
    lambda m, p: holds(over_total(2 * m, 2 * p) == over_total(m, p), given=[p >= 2]),
    refuted_at={"m": 2, "p": 2},
)


@theorem(expect=Proved(), cite="huang2019gpipe")
def how_many_micro_batches_a_share_needs(p: Real, x: Positive):
    """Over the total time, the bubble is the share x at m = (p - 1) * (1 - x) / x micro-batches.

    As it falls with m, it is below any share with more: it vanishes as m grows. To halve it takes more than twice the micro-batches.
    """
    return holds(over_total((p - 1) * (1 - x) / x, p) == x, given=[p > 1])


how_many_micro_batches_a_share_needs.control(
    "at (p - 1) / x, as over the ideal time",
    lambda p, x: holds(over_total((p - 1) / x, p) == x, given=[p > 1]),
    refuted_at={"p": 2, "x": "1/2"},
)


@theorem(
    expect=Refuted(witness={"p": 2}, because="with as many micro-batches as stages nearly half of the time is bubble"),
    cite="huang2019gpipe",
)
def no_bubble_with_as_many_micro_batches_as_stages(p: Degree):
    """With m = p micro-batches the pipeline is full, and the bubble vanishes."""
    return over_total(p, p) == 0


no_bubble_with_as_many_micro_batches_as_stages.control(
    "over the total time it is less than a half, and grows towards it with p",
    lambda p: chain("<", over_total(p, p), over_total(p + 1, p + 1), Fraction(1, 2)),
    proved=True,
)


@theorem(
    expect=Refuted(witness={"m": 2, "p": 2, "t_f": 1, "t_b": 2}, because="both wait for the other stages' first forward and last backward"),
    cite="narayanan2021megatron",
    level=1,
)
def one_forward_one_backward_has_a_smaller_bubble(m: Integer, p: Degree, t_f: NonNegative, t_b: NonNegative):
    """1F1B has a smaller bubble than GPipe: its step is shorter."""
    return holds(drain(m + p - 2, p - 1, m, p, wave(p - 1, p - 1, 0, 0, t_f), t_f, t_b) < gpipe(m, p, t_f, t_b), given=[m >= p])


one_forward_one_backward_has_a_smaller_bubble.control(
    "the steps take equally long",
    lambda m, p, t_f, t_b: holds(
        drain(m + p - 2, p - 1, m, p, wave(p - 1, p - 1, 0, 0, t_f), t_f, t_b) == gpipe(m, p, t_f, t_b),
        given=[m >= p],
        lemmas=[gpipe_and_1f1b_take_equally_long.at(m=m, p=p, t_f=t_f, t_b=t_b)],
    ),
    proved=True,
)


# More stages, for a model whose time per micro-batch is divided by them.


def divided(m, p, work, wait):
    """When a wave of m micro-batches ends: each stage takes a p-th of the work, and a wait, for a message say."""
    return wave(m + p - 2, p - 1, 0, 0, work / p + wait)


def as_a_wave(m, p, work, wait):
    """What is known about it."""
    return a_wave_moves_one_stage_per_operation.at(n=m + p - 2, i=p - 1, s=0, r=0, t=work / p + wait)


@theorem(expect=Proved(), cite="huang2019gpipe", level=1)
def a_pipeline_is_no_faster_than_micro_batches_allow(m: Degree, p: Degree, work: Positive):
    """A pipeline of p equal stages is at most min(m, p) times as fast as one device.

    The speed-up is m * p / (m + p - 1). So one micro-batch gains nothing from any number of stages.
    """
    return holds(m * work / divided(m, p, work, 0) <= minimum(m, p), lemmas=[as_a_wave(m, p, work, 0)])


a_pipeline_is_no_faster_than_micro_batches_allow.control(
    "it is p / 2 times as fast at least",
    lambda m, p, work: m * work / divided(m, p, work, 0) >= p / 2,
    refuted_at={"m": 1, "p": 4},
)


@theorem(
    expect=Refuted(witness={"m": 2, "p": 1, "work": 1, "wait": 1}, because="each further stage adds a wait to every micro-batch's way"),
    cite="huang2019gpipe",
    level=1,
)
def more_stages_always_train_faster(m: Degree, p: Degree, work: NonNegative, wait: NonNegative):
    """One stage more always makes a step shorter, if the stages stay equal."""
    return divided(m, p + 1, work, wait) < divided(m, p, work, wait)


more_stages_always_train_faster.control(
    "exactly if p * (p + 1) * wait < (m - 1) * work",
    lambda m, p, work, wait: holds(
        sign(divided(m, p, work, wait) - divided(m, p + 1, work, wait)) == sign((m - 1) * work - p * (p + 1) * wait),
        lemmas=[as_a_wave(m, p, work, wait), as_a_wave(m, p + 1, work, wait)],
    ),
    proved=True,
)


# Activations in flight: from schedules, and as derived from the program.


def activations(subject):
    """Bytes of activations on a device."""
    return derived(subject).memory("activations")


def most(w, m):
    """What is known about the most in flight after a step, with a warm-up of w forwards."""
    return the_most_in_flight_is_warm_up_plus_one.at(q=2 * m, w=w, m=m)


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def activations_are_those_in_flight_on_the_first_stage(A: Real, N: Degree, m: Degree, b_a: Real):
    """What is derived from a pipeline's program is what the first stage of 1F1B keeps: the activations of all that it has in flight.

    A / m is what the whole model keeps for one micro-batch.
    """
    return holds(activations("pp") == most_in_flight(2 * m, N - 1, m) * A * b_a / (N * m), lemmas=[most(N - 1, m)])


activations_are_those_in_flight_on_the_first_stage.control(
    "those in flight on the last one",
    lambda A, N, m, b_a: activations("pp") == most_in_flight(2 * m, 0, m) * A * b_a / (N * m),
    refuted_at={"A": 1, "N": 2, "m": 2, "b_a": 1},
)


@theorem(expect=Proved(), cite="huang2019gpipe")
def gpipe_keeps_all_micro_batches(A: Real, N: Degree, m: Degree, b_a: Real):
    """A stage of GPipe keeps the activations of all m micro-batches: its warm-up is all forwards."""
    return holds(activations("pp(schedule=gpipe)") == most_in_flight(2 * m, m, m) * A * b_a / (N * m), lemmas=[most(m, m)])


gpipe_keeps_all_micro_batches.control(
    "as many as there are stages",
    lambda A, N, m, b_a: activations("pp(schedule=gpipe)") == most_in_flight(2 * m, N - 1, m) * A * b_a / (N * m),
    refuted_at={"A": 1, "N": 1, "m": 2, "b_a": 1},
)


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def one_forward_one_backward_keeps_less_where_micro_batches_are_many(A: Positive, N: Degree, m: Degree, b_a: Positive):
    """1F1B keeps fewer activations than GPipe exactly if there are more micro-batches than stages."""
    return sign(activations("pp(schedule=gpipe)") - activations("pp")) == sign(maximum(0, m - N))


one_forward_one_backward_keeps_less_where_micro_batches_are_many.control(
    "always", lambda: activations("pp") < activations("pp(schedule=gpipe)"), refuted_at={"m": 2, "N": 2}
)


@theorem(
    expect=Refuted(witness={"p": 2, "m": 2, "M_B": 1}, because="the last stage runs each backward right after its forward"),
    cite="narayanan2021megatron",
)
def all_stages_have_as_many_in_flight(p: Degree, m: Degree, M_B: NonNegative):
    """Under 1F1B the last device keeps as much of activations as the first, by the product's form."""
    return schedule("1f1b").peak.where(d=p - 1) == schedule("1f1b").peak.where(d=0)


all_stages_have_as_many_in_flight.control(
    "the first keeps min(p, m) times as much",
    lambda p, m: schedule("1f1b").peak.where(d=0) == minimum(p, m) * schedule("1f1b").peak.where(d=p - 1),
    proved=True,
)


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def stages_keep_half_of_the_first_on_average(A: Real, N: Degree, m: Integer, b_a: Real):
    """With m >= N, the stages of 1F1B keep on average (N + 1) / (2 * N) of what the first stage keeps, which is what is derived."""
    mean = held_up_to(N - 1, N, m) / N * A * b_a / (N * m)
    lemma = half_the_stages_worth_is_in_flight_on_average.at(i=N - 1, p=N, m=m)
    return holds(mean == (N + 1) / (2 * N) * activations("pp"), given=[m >= N], lemmas=[lemma])


stages_keep_half_of_the_first_on_average.control(
    "all of it",
    lambda A, N, m, b_a: holds(held_up_to(N - 1, N, m) / N * A * b_a / (N * m) == activations("pp"), given=[m >= N]),
    refuted_at={"A": 1, "N": 2, "m": 2, "b_a": 1},
)


# Recomputation, and messages.


def kept(subject, m, A):
    """Bytes of activations at the peak, if the whole model keeps A elements for one micro-batch."""
    return (derived(subject).memory("activations") + derived(subject).memory("transient")).where(A=m * A)


@theorem(
    expect=Refuted(
        witness={"A": 34, "L": 2, "N": 2, "m": 64, "b": 1, "h": 1, "s": 1, "b_a": 2},
        because="it keeps an input of every layer for all micro-batches, which are any number",
    ),
    cite="huang2019gpipe",
)
def gpipe_with_recomputation_keeps_less_than_1f1b_without(
    A: Positive, L: Count, N: Degree, m: Count, b: Positive, h: Positive["element"], s: Positive, b_a: Positive
):
    """With at least as many micro-batches as stages, GPipe with recomputation keeps no more than 1F1B without it.

    Each layer keeps its input; A counts the elements that the model keeps for one micro-batch.
    """
    return holds(kept("pp(schedule=gpipe) * checkpoint", m, A) <= kept("pp", m, A), given=[m >= N])


gpipe_with_recomputation_keeps_less_than_1f1b_without.control(
    "if the inputs of a stage's layers, for all micro-batches, and a layer's activations are no more than the model's",
    lambda A, L, N, m, b, h, s: holds(
        kept("pp(schedule=gpipe) * checkpoint", m, A) <= kept("pp", m, A), given=[m >= N, m * (L / N) * b * h * s + A / L <= A]
    ),
    proved=True,
)


@theorem(expect=Proved(), cite="narayanan2021megatron")
def schedules_and_recomputation_send_the_same(N: Degree, m: Real, b: Real, h: Real, s: Real, b_a: Real):
    """GPipe, 1F1B, and 1F1B with recomputation send equally much: for each micro-batch, N - 1 messages forward and as many backward."""
    sent = [derived(subject).sent for subject in ("pp", "pp(schedule=gpipe)", "pp * checkpoint")]
    return chain("==", *sent, 2 * m * (N - 1) * b * h * s * b_a / N)


schedules_and_recomputation_send_the_same.control(
    "every stage sends in both directions", lambda m, b, h, s, b_a: derived("pp").sent == 2 * m * b * h * s * b_a, refuted_at={"N": 2}
)
