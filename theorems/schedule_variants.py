"""Variants of pipeline schedules: unequal stages, and several pieces of the model on each device.

Stages, devices and micro-batches are numbered from 0, as among the schedules of equal stages. Messages take no time.
"""

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
    data,
    holds,
    indicator,
    maximum,
    recursive,
    schedule,
    theorem,
)

from .schedules import (
    a_wave_moves_one_stage_per_operation,
    integers_have_gaps,
    wave,
)

# Stages that take different times: stage i takes takes(i) per micro-batch, whatever these times are.

takes = data("takes")


@recursive(on="i")
def path(i):
    """The time of one micro-batch on the stages 0 to i."""
    return takes(0), path(i - 1) + takes(i)


@recursive(on="i")
def slowest(i):
    """The time of the slowest of the stages 0 to i."""
    return takes(0), maximum(slowest(i - 1), takes(i))


@recursive(on="n")
def uneven(n, i):
    """When micro-batch n - i leaves stage i. Stage 0 waits for no other, and micro-batch 0 finds every stage free."""
    fed, free = uneven(n - 1, i - 1), uneven(n - 1, i)
    return takes(0), maximum(fed + indicator(i, 0) * (free - fed), free + indicator(i, n) * (fed - free)) + takes(i)


@theorem(expect=Proved(), cite="baccelli1992synchronization", level=1)
def the_slowest_stage_sets_the_pace(n: Natural, i: Natural):
    """Micro-batch j leaves stage i of unequal stages after the time of one micro-batch on all of them up to i, and j times that of the
    slowest.

    Here n = i + j, and the stages' times are arbitrary. To speed up a stage that is not the slowest saves its time once in a step.
    """
    gaps = [integers_have_gaps.at(a=i), integers_have_gaps.at(a=n - i)]
    ends = path(i) + (n - i) * slowest(i)
    return by_induction(uneven(n, i) == ends, on=n, given=[i <= n], at=[{}, {"i": i - 1}], lemmas=gaps)


the_slowest_stage_sets_the_pace.control(
    "the last stage sets it", lambda n, i: holds(uneven(n, i) == path(i) + (n - i) * takes(i), given=[i <= n]), refuted_at={"n": 2, "i": 1}
)


@theorem(expect=Proved(), cite="baccelli1992synchronization")
def no_stage_takes_longer_than_the_slowest(i: Natural):
    """A micro-batch needs for i + 1 stages at most i + 1 times as long as for the slowest of them."""
    return by_induction(path(i) <= (i + 1) * slowest(i), on=i)


no_stage_takes_longer_than_the_slowest.control(
    "as long as the last one on each", lambda i: path(i) <= (i + 1) * takes(i), refuted_at={"i": 1}
)


@theorem(expect=Proved(), cite=("huang2019gpipe", "baccelli1992synchronization"))
def equal_stages_are_the_fastest(m: Degree, p: Degree):
    """Of all ways to divide a model's time over p stages, equal stages end a wave of m micro-batches first.

    Equal stages need (m + p - 1) times the mean stage, and others what the slowest makes of it. The first source balances stages by their
    estimated times, in section 2.2.
    """
    ends = path(p - 1) + (m - 1) * slowest(p - 1)
    return holds(p * ends >= (m + p - 1) * path(p - 1), lemmas=[no_stage_takes_longer_than_the_slowest.at(i=p - 1)])


equal_stages_are_the_fastest.control(
    "unequal ones are as fast: only the mean stage counts",
    lambda m, p: p * (path(p - 1) + (m - 1) * slowest(p - 1)) == (m + p - 1) * path(p - 1),
    refuted_at={"m": 2, "p": 2},
)


# Interleaving: V pieces of the model on p devices; device i holds the pieces i, i + p, ... Micro-batches go through in groups, and a group
# is a wave over all pieces.


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def a_group_of_fewer_than_p_leaves_devices_idle(i: Natural, k: Degree, p: Natural, s: Real, t: NonNegative):
    """Between two pieces of its own, i and i + p, a device waits for the time of p - k operations, if k micro-batches form a group.

    So groups of p lose nothing, groups of fewer wait at every piece, and in groups of more a device would have two operations at once.
    Section 2.2.2 of the source asks for a multiple of p micro-batches: a last group of fewer would wait.
    """
    ends = a_wave_moves_one_stage_per_operation.at(n=i + k - 1, i=i, s=s, r=0, t=t)
    comes = a_wave_moves_one_stage_per_operation.at(n=i + p, i=i + p, s=s, r=0, t=t)
    waits = (wave(i + p, i + p, s, 0, t) - t) - wave(i + k - 1, i, s, 0, t)
    return holds(waits == (p - k) * t, lemmas=[ends, comes])


a_group_of_fewer_than_p_leaves_devices_idle.control(
    "groups of any size lose nothing",
    lambda i, k, p, s, t: wave(i + p, i + p, s, 0, t) - t == wave(i + k - 1, i, s, 0, t),
    refuted_at={"k": 1, "p": 2, "t": 1},
)


def interleaved(g, p, V, t_f, t_b):
    """When an interleaved step of g groups of p micro-batches ends, all forwards first: each group follows the one before at once."""
    forwards = wave(V + p - 2, V - 1, (g - 1) * V * t_f, 0, t_f)
    return wave(V + p - 2, V - 1, forwards + (g - 1) * V * t_b, 0, t_b)


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def the_bubble_of_interleaving_is_in_pieces(g: Integer, p: Degree, V: Degree, T_F: NonNegative, T_B: Real, T_W: Real):
    """With V pieces on p devices, and g groups of p micro-batches whose forwards all run first, the bubble is what the product's form says
    of interleaving without messages: the time of p - 1 forwards and backwards of one piece.

    A stage is v = V / p pieces, so the bubble is a v-th of that of whole stages. Each device is busy for g * V forwards and backwards of
    pieces. That the order of interleaved 1F1B waits for as long is computed in `schedule_forms`.
    """
    t_b = T_B + T_W
    s = (g - 1) * V * T_F
    forwards = a_wave_moves_one_stage_per_operation.at(n=V + p - 2, i=V - 1, s=s, r=0, t=T_F)
    s = wave(V + p - 2, V - 1, s, 0, T_F) + (g - 1) * V * t_b
    backwards = a_wave_moves_one_stage_per_operation.at(n=V + p - 2, i=V - 1, s=s, r=0, t=t_b)
    bubble = interleaved(g, p, V, T_F, t_b) - g * V * (T_F + t_b)
    return holds(bubble == schedule("interleaved").idle.where(T_send=0), given=[T_B + T_W >= 0], lemmas=[forwards, backwards])


the_bubble_of_interleaving_is_in_pieces.control(
    "a micro-batch fills all pieces first, as if each had a device",
    lambda g, p, V, T_F, T_B, T_W: (
        interleaved(g, p, V, T_F, T_B + T_W) - g * V * (T_F + T_B + T_W) == schedule("interleaved").idle.where(T_send=0, p=V)
    ),
    refuted_at={"g": 1, "p": 2, "V": 4},
)


def step_of_pieces(g, p, V, work, wait):
    """The length of an interleaved step, by the theorem above: a piece takes a part of the work, and waits for its messages."""
    return (g * V + p - 1) * (work / V + wait)


@theorem(
    expect=Refuted(
        witness={"g": 4, "p": 2, "V": 4, "work": 3, "wait": 1},
        because="a message is waited for at every piece, by every micro-batch",
    ),
    cite="narayanan2021megatron",
)
def interleaving_is_free(g: Positive, p: Degree, V: Degree, work: NonNegative, wait: NonNegative):
    """More pieces than devices never make a step longer, whatever messages take.

    The work is what the whole model takes for a micro-batch, forward and backward.
    """
    return holds(step_of_pieces(g, p, V, work, wait) <= step_of_pieces(g, p, p, work, wait), given=[p <= V])


interleaving_is_free.control(
    "if m * V * wait <= (p - 1) * work, where m is g * p",
    lambda g, p, V, work, wait: holds(
        step_of_pieces(g, p, V, work, wait) <= step_of_pieces(g, p, p, work, wait),
        given=[p <= V, g * p * V * wait <= (p - 1) * work],
    ),
    proved=True,
)


@theorem(
    expect=Refuted(
        witness={"p": 2, "v": 2, "m": 1},
        because="also from the last device to the first, p * v - 1 messages",
    ),
    cite="narayanan2021megatron",
)
def interleaving_multiplies_messages_by_the_pieces(p: Degree, v: Degree, m: Degree):
    """With v pieces on each of p devices, all of them together send v times as many messages as with one, by the product's forms.

    Section 2.2.2 of the source says so of the amount of communication. Exact is it only of a device inside the pipeline.
    """
    return schedule("interleaved").messages == v * schedule("1f1b").messages


interleaving_multiplies_messages_by_the_pieces.control(
    "v + (v - 1) / (p - 1) times as many, of p >= 2",
    lambda p, v: holds(schedule("interleaved").messages == (v + (v - 1) / (p - 1)) * schedule("1f1b").messages, given=[p >= 2]),
    proved=True,
)


@theorem(expect=Proved(), cite="korthikanti2022activations")
def interleaving_keeps_more(p: Degree, m: Integer, v: Degree, d: Integer, M_B: Real):
    """Where device 0 has p v + p - 1 pieces to run at least, it keeps what the source prints: 1 + (p - 1) / (p v) times what the p v pieces
    of the whole model keep for one micro-batch, which is what 1F1B's first device keeps.

    Section 4.2.3 of the source has this factor. It does not hold for p micro-batches: then as many pieces are in flight, and it is 1.
    """
    forms = schedule("interleaved")
    return holds(forms.peak == forms.printed("peak"), given=forms.printed_when("peak"))


interleaving_keeps_more.control(
    "also for as many micro-batches as stages",
    lambda d: holds(schedule("interleaved").peak == schedule("interleaved").printed("peak"), given=[d == 0]),
    refuted_at={"p": 2, "m": 2, "v": 2, "d": 0, "M_B": 1},
)


@theorem(
    expect=Refuted(witness={"m": 4, "p": 2, "M_B": 1}, because="its warm-up is 2 * (p - 1) forwards, and not p - 1"),
    cite="korthikanti2022activations",
)
def one_piece_per_device_is_1f1b(m: Degree, p: Degree, M_B: NonNegative):
    """The interleaved schedule with one piece on each device keeps on device 0 what 1F1B keeps, by the product's forms."""
    return schedule("interleaved").peak.where(v=1, d=0) == schedule("1f1b").peak.where(d=0)


one_piece_per_device_is_1f1b.control(
    "it keeps 2 * p - 1 micro-batches instead of p, if there are as many",
    lambda m, p, M_B: holds(
        schedule("interleaved").peak.where(v=1, d=0) == (2 * p - 1) * M_B,
        schedule("1f1b").peak.where(d=0) == p * M_B,
        given=[m >= 2 * p - 1],
    ),
    proved=True,
)
