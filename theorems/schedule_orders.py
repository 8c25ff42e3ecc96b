"""Orders of pipelines in which backward is run in two parts: how long they take and what they keep, by the passes that devices run.

B gives the gradient of a stage's input and W that of its weights; T_F, T_B and T_W are their times, and those of a forward. There are p
stages and m micro-batches, numbered from 0. Every time is defined by recursion: a pass begins when its input has come and the pass before
it on its stage has ended. Messages take no time, unless a statement says so.
"""

from placeproof.theory import (
    Degree,
    Integer,
    Natural,
    NonNegative,
    Proved,
    Real,
    Refuted,
    by_induction,
    holds,
    indicator,
    maximum,
    minimum,
    recursive,
    schedule,
    theorem,
)

from .schedules import (
    a_wave_moves_one_stage_per_operation,
    above,
    drain,
    integers_have_gaps,
    most_in_flight,
    spent,
    the_end_of_1f1b_keeps_its_pace,
    the_most_in_flight_is_warm_up_plus_one,
    time_spent_is_a_product,
    time_spent_is_not_negative,
    wave,
)
from .zero_bubble import kept as published_memory

# ZB-H1. A stage that k stages follow begins with k forwards. Then it runs F and B in turn; from its B of micro-batch p - 1 - k on, each B
# is followed by the oldest W that is still to come.


@recursive(on="k", reals=("t",))
def late(k, p, t):
    """The time of those of k operations that come after the first p - 1."""
    return 0, late(k - 1, p, t) + above(k, p - 1) * t


@theorem(expect=Proved(), cite="qi2024zerobubble")
def late_operations_take_no_negative_time(k: Natural, p: Integer, t: NonNegative):
    """Operations that are put off take no negative time."""
    return by_induction(late(k, p, t) >= 0, on=k)


late_operations_take_no_negative_time.control("at least that of one", lambda k, p, t: late(k, p, t) >= t, refuted_at={"k": 0, "p": 1})


@theorem(expect=Proved(), cite="qi2024zerobubble")
def late_operations_are_all_but_the_first(k: Natural, p: Integer, t: Real):
    """Of k >= p - 1 operations, k - p + 1 come after the first p - 1."""
    gaps = [integers_have_gaps.at(a=k + 1 - p), integers_have_gaps.at(a=k + 2 - p)]
    return by_induction(late(k, p, t) == maximum(0, k - p + 1) * t, on=k, given=[p >= 1], lemmas=gaps)


late_operations_are_all_but_the_first.control(
    "all of them", lambda k, p, t: holds(late(k, p, t) == k * t, given=[p >= 1]), refuted_at={"k": 1, "p": 2}
)


@recursive(on="n", start=-1, reals=("T_F", "T_B", "T_W"))
def split_steady(n, j, p, T_F, T_B, T_W):
    """When micro-batch j ends the pass before which its stage runs micro-batch q = n - j the other way, in steady ZB-H1.

    It is F where j > q, on stage p + q - j, and else B, on stage p - 1 + j - q. Before an F of a micro-batch from p on, the stage also
    runs a W. The input is micro-batch j's own from the stage before, with q - 1. Time begins as each stage's warm-up ends, with the F for
    which q is -1; stage 0 has all inputs by then.
    """
    fed, own = split_steady(n - 1, j, p, T_F, T_B, T_W), split_steady(n - 1, n - j, p, T_F, T_B, T_W)
    forward = above(2 * j, n)
    begins = maximum((1 - indicator(2 * j, n + p)) * fed, own + forward * above(j, p - 1) * T_W)
    return 0, (1 - indicator(n + 1, j)) * (begins + forward * T_F + (1 - forward) * T_B)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=2)
def steady_zb_h1_is_periodic(n: Natural, j: Natural, p: Integer, T_F: NonNegative, T_B: NonNegative, T_W: NonNegative):
    """In steady ZB-H1 a pass of micro-batch j, before which its stage runs q the other way, ends after q + 1 F and j B if it is an F, after
    j F and q + 1 B if it is a B, and in both cases after one W for each micro-batch from p on that has had its F.

    Here n = j + q.
    """
    forward, q = above(2 * j, n), n - j
    ends_forward = spent(q + 1, T_F) + spent(j, T_B) + late(j, p, T_W)
    ends_backward = spent(j, T_F) + spent(q + 1, T_B) + late(q, p, T_W)
    gaps = [integers_have_gaps.at(a=a) for a in (j, n - j, 2 * j - n, n - 2 * j, n - 2 * j + p)]
    times = [time_spent_is_not_negative.at(k=k, t=t) for k in (j, n - j) for t in (T_F, T_B)]
    put_off = [late_operations_take_no_negative_time.at(k=k, p=p, t=T_W) for k in (j - 1, n - j - 1)]
    return by_induction(
        split_steady(n, j, p, T_F, T_B, T_W) == forward * ends_forward + (1 - forward) * ends_backward,
        on=n,
        given=[j <= n, n - 2 * j <= p - 1, 2 * j - n <= p],
        at=[{}, {"j": n + 1 - j}],
        lemmas=gaps + times + put_off,
    )


steady_zb_h1_is_periodic.control(
    "no W comes in between, as in 1F1B's order without W",
    lambda n, j, p, T_F, T_B, T_W: holds(
        split_steady(n, j, p, T_F, T_B, T_W) == spent(n - j + 1, T_F) + spent(j, T_B), given=[2 * j > n, j <= n, 2 * j - n <= p]
    ),
    refuted_at={"n": 1, "j": 1, "p": 1, "T_W": 1},
)


@recursive(on="n", start=lambda m: m - 1, reals=("T_F", "T_B", "T_W"))
def split_drain(n, k, m, p, T_F, T_B, T_W):
    """When the stage that k stages follow ends the B of micro-batch n - k, after the last F of its own. A W comes between two B.

    It has run an F before the B of micro-batch m - 1 - k, and none after; so this one is the last of the steady state.
    """
    fed, own = split_drain(n - 1, k - 1, m, p, T_F, T_B, T_W), split_drain(n - 1, k, m, p, T_F, T_B, T_W)
    return split_steady(2 * m - 2 - k, m - 1 - k, p, T_F, T_B, T_W), maximum(fed, own + T_W) + T_B


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def the_end_of_zb_h1_goes_on_at_the_slower_of_f_and_w(
    n: Integer, k: Integer, m: Integer, p: Integer, T_F: NonNegative, T_B: NonNegative, T_W: NonNegative
):
    """After its last F, a stage ends its B one B and one F after each other, as it waits for the next stage; or one B and one W, if W takes
    longer than F.
    """
    slower = maximum(T_F, T_W)
    ends = spent(m - 1 - k, T_F) + spent(n + 1, T_B) + late(m - 1, p, T_W) + spent(n - m + 1, slower)
    lemmas = [
        steady_zb_h1_is_periodic.at(n=2 * m - 2 - k, j=m - 1 - k, p=p, T_F=T_F, T_B=T_B, T_W=T_W),
        integers_have_gaps.at(a=k),
    ]
    return by_induction(
        split_drain(n, k, m, p, T_F, T_B, T_W) == ends,
        on=n,
        start=m - 1,
        given=[k <= m - 1, k <= p - 1, n <= m - 1 + k],
        at=[{}, {"k": k - 1}],
        lemmas=lemmas,
    )


the_end_of_zb_h1_goes_on_at_the_slower_of_f_and_w.control(
    "always at the pace of F",
    lambda n, k, m, p, T_F, T_B, T_W: holds(
        split_drain(n, k, m, p, T_F, T_B, T_W) == spent(m - 1 - k, T_F) + spent(n + 1, T_B) + late(m - 1, p, T_W) + spent(n - m + 1, T_F),
        given=[k <= m - 1, k <= p - 1, n <= m - 1 + k, n >= m],
    ),
    refuted_at={"n": 2, "k": 1, "m": 2, "p": 2, "T_F": 1, "T_W": 2},
)


def zb_h1(m, p, T_F, T_B, T_W):
    """When stage 0 ends its last W: one after its last B. Every stage's warm-up ends with the last stage's first F."""
    return wave(p - 1, p - 1, 0, 0, T_F) + split_drain(m + p - 2, p - 1, m, p, T_F, T_B, T_W) + T_W


def known_of_zb_h1(m, p, T_F, T_B, T_W):
    """What has been shown of the passes of stage 0, as lemmas."""
    return [
        the_end_of_zb_h1_goes_on_at_the_slower_of_f_and_w.at(n=m + p - 2, k=p - 1, m=m, p=p, T_F=T_F, T_B=T_B, T_W=T_W),
        a_wave_moves_one_stage_per_operation.at(n=p - 1, i=p - 1, s=0, r=0, t=T_F),
        time_spent_is_a_product.at(k=m - p, t=T_F),
        time_spent_is_a_product.at(k=m + p - 1, t=T_B),
        time_spent_is_a_product.at(k=p - 1, t=maximum(T_F, T_W)),
        late_operations_are_all_but_the_first.at(k=m - 1, p=p, t=T_W),
    ]


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def the_bubble_of_zb_h1(m: Integer, p: Degree, T_F: NonNegative, T_B: NonNegative, T_W: NonNegative):
    """Stage 0 of ZB-H1 waits for (p - 1) * (T_B + max(T_F, T_W) - T_W) in a step of m >= p micro-batches, whatever the times are.

    It is the bound of `zero_bubble.the_bubble_of_split_backwards` with u = p - 1, and attained, if T_W <= T_F.
    """
    bubble = zb_h1(m, p, T_F, T_B, T_W) - m * (T_F + T_B + T_W)
    return holds(bubble == (p - 1) * (T_B + maximum(T_F, T_W) - T_W), given=[m >= p], lemmas=known_of_zb_h1(m, p, T_F, T_B, T_W))


the_bubble_of_zb_h1.control(
    "as if the last stage had put off no W",
    lambda m, p, T_F, T_B, T_W: holds(
        zb_h1(m, p, T_F, T_B, T_W) - m * (T_F + T_B + T_W) == (p - 1) * (T_B + maximum(T_F, T_W)), given=[m >= p]
    ),
    refuted_at={"m": 2, "p": 2, "T_W": 1},
)


@theorem(
    expect=Refuted(
        witness={"m": 2, "p": 2, "T_F": 1, "T_B": 1, "T_W": 2},
        because="stage 0 waits (p - 1) * T_B for its first gradient, with p F to run",
    ),
    cite="qi2024zerobubble",
)
def the_published_bubble_of_zb_h1_holds_for_all_times(m: Integer, p: Degree, T_F: NonNegative, T_B: NonNegative, T_W: NonNegative):
    """ZB-H1's bubble is (p - 1) * (T_F + T_B - T_W), as in table 2 of the source, whatever the times are."""
    return holds(zb_h1(m, p, T_F, T_B, T_W) - m * (T_F + T_B + T_W) == schedule("zb-h1").printed("wait"), given=[m >= p])


the_published_bubble_of_zb_h1_holds_for_all_times.control(
    "if T_W <= T_F, as in transformers",
    lambda m, p, T_F, T_B, T_W: holds(
        zb_h1(m, p, T_F, T_B, T_W) - m * (T_F + T_B + T_W) == schedule("zb-h1").printed("wait"),
        given=[m >= p, T_W <= T_F],
        lemmas=known_of_zb_h1(m, p, T_F, T_B, T_W),
    ),
    proved=True,
)


# What a stage keeps if backward is run in two parts. It begins with w F; from then on each step runs F and B, and from u steps later on W,
# too, until there is none left. In ZB-H1 w = p - 1 - i and u = i on stage i, in ZB-H2 twice as many.


@recursive(on="s")
def has_run(s, a, m):
    """How many of m passes have run before step s, if the first runs in step a, and one in each step from then on."""
    before = has_run(s - 1, a, m)
    return 0, before + maximum(0, minimum(1, s - a, m - before))


@theorem(expect=Proved(), cite="qi2024zerobubble")
def passes_run_from_their_step_on(s: Natural, a: Natural, m: Integer):
    """Before step s, s - a passes have run, but none before step a, and m at most."""
    gaps = [integers_have_gaps.at(a=s - a), integers_have_gaps.at(a=s - a - m)]
    return by_induction(has_run(s, a, m) == maximum(0, minimum(s - a, m)), on=s, lemmas=gaps)


passes_run_from_their_step_on.control(
    "one in each step from the first on", lambda s, a, m: has_run(s, a, m) == minimum(s, m), refuted_at={"s": 1, "a": 1, "m": 1}
)


def waiting(s, u, m):
    """For how many micro-batches a stage has run F, and not yet the pass that it runs u steps later: in step s, after its F."""
    return has_run(s + 1, 0, m) - has_run(s, u, m)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def passes_wait_for_those_that_are_put_off(s: Natural, u: Natural, m: Integer):
    """At most min(m, u + 1) micro-batches wait for a pass that is run u steps after their F; and as many wait after the last F."""
    known = [passes_run_from_their_step_on.at(s=s + 1, a=0, m=m), passes_run_from_their_step_on.at(s=s, a=u, m=m)]
    known += [passes_run_from_their_step_on.at(s=m, a=0, m=m), passes_run_from_their_step_on.at(s=m - 1, a=u, m=m)]
    most = minimum(m, u + 1)
    return holds(waiting(s, u, m) <= most, waiting(m - 1, u, m) == most, given=[m >= 1], lemmas=known)


passes_wait_for_those_that_are_put_off.control(
    "no more than u", lambda s, u, m: holds(waiting(s, u, m) <= u, given=[m >= 1]), refuted_at={"s": 0, "u": 0, "m": 1}
)


def kept_in(s, w, u, m, M_B, M_W):
    """What is kept in step s after its F: M_W from F until W, and what M_B is more only until B."""
    return waiting(s, w, m) * (M_B - M_W) + waiting(s, w + u, m) * M_W


@theorem(expect=Proved(), cite="qi2024zerobubble")
def more_micro_batches_keep_more(a: Real, b: Real, M: NonNegative):
    """Of tensors of one size, more of them take more."""
    return holds(a * M <= b * M, given=[a <= b])


more_micro_batches_keep_more.control(
    "they take less", lambda a, b, M: holds(b * M <= a * M, given=[a <= b]), refuted_at={"a": 0, "b": 1, "M": 1}
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def what_split_backwards_keep(s: Natural, w: Natural, u: Natural, m: Integer, M_B: Real, M_W: NonNegative):
    """A stage that begins with w F, and puts off u W, keeps M_B for min(m, w + 1) micro-batches, and M_W for those of min(m, w + u + 1)
    that are more: in no step more, and as much after its last F. B leaves M_W of M_B.
    """
    most = minimum(m, w + 1) * (M_B - M_W) + minimum(m, w + u + 1) * M_W
    lemmas = [passes_wait_for_those_that_are_put_off.at(s=s, u=a, m=m) for a in (w, w + u)]
    lemmas += [more_micro_batches_keep_more.at(a=waiting(s, a, m), b=minimum(m, a + 1), M=M) for a, M in ((w, M_B - M_W), (w + u, M_W))]
    return holds(
        kept_in(s, w, u, m, M_B, M_W) <= most, kept_in(m - 1, w, u, m, M_B, M_W) == most, given=[m >= 1, M_W <= M_B], lemmas=lemmas
    )


what_split_backwards_keep.control(
    "no more than without putting off W",
    lambda s, w, u, m, M_B, M_W: holds(kept_in(s, w, u, m, M_B, M_W) <= minimum(m, w + 1) * M_B, given=[m >= 1, M_W <= M_B]),
    refuted_at={"s": 1, "w": 0, "u": 1, "m": 2, "M_B": 1, "M_W": 1},
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def zb_h1_and_zb_h2_keep_what_is_printed(s: Natural, i: Natural, p: Integer, m: Integer, k: Natural, M_B: Real, M_W: NonNegative):
    """If m > k * (p - 1), with k = 1 for ZB-H1 and 2 for ZB-H2, stage i keeps (1 + k * (p - 1 - i)) * M_B + k * i * M_W: in no step more,
    and as much after its last F.

    It begins with k * (p - 1 - i) forwards and puts off k * i weight gradients. Section 2.3 of the source.
    """
    w, u = k * (p - 1 - i), k * i
    printed = published_memory(p, i, k, M_B, M_W)
    return holds(
        kept_in(s, w, u, m, M_B, M_W) <= printed,
        kept_in(m - 1, w, u, m, M_B, M_W) == printed,
        given=[i <= p - 1, m >= k * (p - 1) + 1, M_W <= M_B],
        lemmas=[what_split_backwards_keep.at(s=s, w=w, u=u, m=m, M_B=M_B, M_W=M_W)],
    )


zb_h1_and_zb_h2_keep_what_is_printed.control(
    "for any number of micro-batches",
    lambda i, p, m, k, M_B, M_W: holds(
        kept_in(m - 1, k * (p - 1 - i), k * i, m, M_B, M_W) == published_memory(p, i, k, M_B, M_W), given=[i <= p - 1, m >= 1, M_W <= M_B]
    ),
    refuted_at={"i": 0, "p": 2, "m": 1, "k": 1, "M_B": 1},
)


# Interleaving: V pieces of the model on p devices. Device i warms up with V - p + 2 * (p - 1 - i) forwards of pieces, and runs M of them.


@theorem(expect=Proved(), cite=("narayanan2021megatron", "korthikanti2022activations"))
def interleaving_keeps_two_pieces_less_on_each_further_device(i: Natural, p: Integer, V: Integer, M: Integer):
    """Device i keeps V + p - 1 - 2 * i pieces at its peak, and the last one V - p + 1, if it runs V + p - 1 of them at least.

    Section 4.2.3 of the second source speaks of device 0, section 2.2.2 of the first of the order.
    """
    w = V - p + 2 * (p - 1 - i)
    lemma = the_most_in_flight_is_warm_up_plus_one.at(q=2 * M, w=w, m=M)
    return holds(most_in_flight(2 * M, w, M) == V + p - 1 - 2 * i, given=[i <= p - 1, p <= V, V + p - 1 <= M], lemmas=[lemma])


interleaving_keeps_two_pieces_less_on_each_further_device.control(
    "all keep what device 0 keeps",
    lambda i, p, V, M: holds(most_in_flight(2 * M, V - p + 2 * (p - 1 - i), M) == V + p - 1, given=[i <= p - 1, p <= V, V + p - 1 <= M]),
    refuted_at={"i": 1, "p": 2, "V": 2, "M": 4},
)


# 1F1B with fewer micro-batches than stages. A stage that m or more stages follow runs all its forwards first.


@recursive(on="n", reals=("t_f", "t_b"))
def further(n, i, m, p, t_f, t_b):
    """When the stage that m + i stages follow ends the backward of micro-batch n - i, if m < p.

    The next stage, of i = 0, is the first that has a steady state. The first backward waits for the stage's own last forward, too.
    """
    s, forwards = wave(p - 1, p - 1, 0, 0, t_f), wave(p - 2 - i, p - 1 - m - i, 0, 0, t_f)
    next_stage, free = drain(m - 1 + n, m - 1, m, p, s, t_f, t_b), further(n - 1, i, m, p, t_f, t_b)
    fed = further(n - 1, i - 1, m, p, t_f, t_b)
    begins = maximum(fed + indicator(i, 0) * (next_stage - fed), free + indicator(i, n) * (forwards - free))
    return maximum(next_stage, forwards) + t_b, begins + t_b


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def stages_before_a_short_1f1b_pass_gradients_on(n: Natural, i: Natural, m: Integer, p: Integer, t_f: NonNegative, t_b: NonNegative):
    """A stage that m + i stages follow ends its backward of micro-batch j after p + j forwards and m + i + j + 1 backwards. Here n = i + j.

    So each backward is run as soon as its gradient has come.
    """
    s = wave(p - 1, p - 1, 0, 0, t_f)
    lemmas = [
        the_end_of_1f1b_keeps_its_pace.at(n=m - 1 + n, k=m - 1, m=m, p=p, s=s, t_f=t_f, t_b=t_b),
        a_wave_moves_one_stage_per_operation.at(n=p - 1, i=p - 1, s=0, r=0, t=t_f),
        a_wave_moves_one_stage_per_operation.at(n=p - 2 - i, i=p - 1 - m - i, s=0, r=0, t=t_f),
        time_spent_is_not_negative.at(k=n + m, t=t_b),
        *(integers_have_gaps.at(a=a) for a in (i, n - i)),
    ]
    return by_induction(
        further(n, i, m, p, t_f, t_b) == p * t_f + spent(n - i, t_f) + spent(n + m + 1, t_b),
        on=n,
        given=[i <= n, i <= p - 1 - m, n <= m - 1 + i],
        at=[{}, {"i": i - 1}],
        lemmas=lemmas,
    )


stages_before_a_short_1f1b_pass_gradients_on.control(
    "one backward after the other",
    lambda n, i, m, p, t_f, t_b: holds(
        further(n, i, m, p, t_f, t_b) == p * t_f + spent(n + m + 1, t_b), given=[i <= n, i <= p - 1 - m, n <= m - 1 + i]
    ),
    refuted_at={"n": 1, "i": 0, "m": 2, "p": 3, "t_f": 1},
)


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def the_bubble_of_1f1b_with_few_micro_batches(m: Degree, p: Integer, t_f: NonNegative, t_b: NonNegative):
    """With fewer micro-batches than stages, too, 1F1B's bubble is (p - 1) * (t_f + t_b), as it is with more."""
    lemmas = [
        stages_before_a_short_1f1b_pass_gradients_on.at(n=p - 2, i=p - 1 - m, m=m, p=p, t_f=t_f, t_b=t_b),
        time_spent_is_a_product.at(k=m - 1, t=t_f),
        time_spent_is_a_product.at(k=p - 1 + m, t=t_b),
    ]
    step = further(p - 2, p - 1 - m, m, p, t_f, t_b)
    return holds(step - m * (t_f + t_b) == (p - 1) * (t_f + t_b), given=[m <= p - 1], lemmas=lemmas)


the_bubble_of_1f1b_with_few_micro_batches.control(
    "only as many stages wait as there are micro-batches",
    lambda m, p, t_f, t_b: holds(further(p - 2, p - 1 - m, m, p, t_f, t_b) - m * (t_f + t_b) == m * (t_f + t_b), given=[m <= p - 1]),
    refuted_at={"m": 1, "p": 3, "t_f": 1},
)
