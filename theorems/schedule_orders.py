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
    by_induction,
    holds,
    indicator,
    maximum,
    recursive,
    theorem,
)

from .schedules import (
    a_wave_moves_one_stage_per_operation,
    above,
    integers_have_gaps,
    spent,
    time_spent_is_a_product,
    time_spent_is_not_negative,
    wave,
)

# ZB-H1. A stage that k stages follow begins with k forwards. Then it runs F and B in turn; from its B of micro-batch p - 1 - k on, each B is
# followed by the oldest W that is still to come.


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


@recursive(on="n", start=-1, reals=("s", "T_F", "T_B", "T_W"))
def split_steady(n, j, p, s, T_F, T_B, T_W):
    """When micro-batch j ends the pass before which its stage runs micro-batch q = n - j the other way, in steady ZB-H1.

    It is F where j > q, on stage p + q - j, and else B, on stage p - 1 + j - q. Before an F of a micro-batch from p on, the stage also runs
    a W. The input is micro-batch j's own from the stage before, with q - 1. Each stage's warm-up ends at s, with the F for which q is -1;
    stage 0 has all inputs by then.
    """
    fed, own = split_steady(n - 1, j, p, s, T_F, T_B, T_W), split_steady(n - 1, n - j, p, s, T_F, T_B, T_W)
    forward = above(2 * j, n)
    begins = maximum(fed + indicator(2 * j, n + p) * (s - fed), own + forward * (late(j, p, T_W) - late(j - 1, p, T_W)))
    warm = indicator(n + 1, j)
    return s, warm * s + (1 - warm) * (begins + T_B + forward * (T_F - T_B))


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def steady_zb_h1_is_periodic(n: Natural, j: Natural, p: Degree, s: Real, T_F: NonNegative, T_B: NonNegative, T_W: NonNegative):
    """In steady ZB-H1 a pass of micro-batch j, before which its stage runs q the other way, ends after q + 1 F and j B from s on if it is
    an F, after j F and q + 1 B if it is a B, and in both cases after one W for each micro-batch from p on that has had its F.

    Here n = j + q.
    """
    forward, q = above(2 * j, n), n - j
    ends_forward = spent(q + 1, T_F) + spent(j, T_B) + late(j, p, T_W)
    ends_backward = spent(j, T_F) + spent(q + 1, T_B) + late(q, p, T_W)
    gaps = [integers_have_gaps.at(a=a) for a in (j, n - j, 2 * j - n, n - 2 * j, n - 2 * j + p, p - 1 - n + 2 * j)]
    times = [time_spent_is_not_negative.at(k=k, t=t) for k in (j, n - j) for t in (T_F, T_B)]
    put_off = [late_operations_take_no_negative_time.at(k=k, p=p, t=T_W) for k in (j, n - j, j - 1, n - j - 1)]
    return by_induction(
        split_steady(n, j, p, s, T_F, T_B, T_W) == s + forward * ends_forward + (1 - forward) * ends_backward,
        on=n,
        given=[j <= n, n - 2 * j <= p - 1, 2 * j - n <= p],
        at=[{}, {"j": n + 1 - j}],
        lemmas=gaps + times + put_off,
    )


steady_zb_h1_is_periodic.control(
    "no W comes in between, as in 1F1B's order without W",
    lambda n, j, p, s, T_F, T_B, T_W: holds(
        split_steady(n, j, p, s, T_F, T_B, T_W) == s + spent(n - j + 1, T_F) + spent(j, T_B), given=[2 * j > n, j <= n]
    ),
    refuted_at={"n": 1, "j": 1, "p": 1, "T_W": 1},
)
