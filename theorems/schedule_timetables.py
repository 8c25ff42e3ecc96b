"""A timetable of ZB-H2: its passes can begin when it says.

F, B and W take T_F, T_B and T_W. There are p stages and m micro-batches, numbered from 0. A stage that k stages follow begins with 2 * k
forwards, and puts off the W of 2 * (p - 1 - k) micro-batches. A pass begins as soon as its input has come and the pass before it on its
stage has ended. Each theorem says of one kind of pass that, if these two ended when the timetable says, it can begin when the timetable
says. So none begins later; that the step cannot end earlier is said in `schedule_forms`.
"""

from placeproof.theory import (
    Integer,
    Natural,
    NonNegative,
    Proved,
    Real,
    holds,
    maximum,
    minimum,
    theorem,
)

from .zero_bubble import published_bubble


def first_f(j, k, p, T_F):
    """When a stage ends F of micro-batch j <= 2 * k: one after the other, from the first stage on."""
    return (p - k + j) * T_F


def b(j, k, p, m, T_F, T_B, T_W):
    """When it ends B of micro-batch j. After the last F, W only fill what would be waited for anyway."""
    delayed = maximum(0, minimum(j - 2 * (p - 1 - k), m - 2 * p + 1))
    return (p + j) * T_F + (k + j + 1) * T_B + delayed * T_W


def f(j, k, p, m, T_F, T_B, T_W):
    """When it ends F of micro-batch j > 2 * k: after B of micro-batch j - 1 - 2 * k and, from j = 2 * p - 1 on, a W."""
    return b(j - 1 - 2 * k, k, p, m, T_F, T_B, T_W) + maximum(0, minimum(1, j - 2 * p + 2)) * T_W + T_F


@theorem(expect=Proved(), cite="qi2024zerobubble")
def first_forwards_follow_one_another(j: Integer, k: Integer, p: Integer, T_F: Real):
    """A first forward follows that of the micro-batch before, and that of the stage before, without a pause."""
    begins = first_f(j, k, p, T_F) - T_F
    return holds(begins == first_f(j - 1, k, p, T_F), begins == first_f(j, k + 1, p, T_F))


first_forwards_follow_one_another.control(
    "two stages before", lambda j, k, p, T_F: first_f(j, k, p, T_F) - T_F == first_f(j, k + 2, p, T_F), refuted_at={"T_F": 1}
)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def the_next_forwards_find_inputs_of_first_ones(j: Integer, k: Integer, p: Integer, m: Integer, T_F: Real, T_B: Real, T_W: NonNegative):
    """The next two forwards of a stage, after its first 2 * k + 1, are first ones of the stage before; these have ended, if T_F <= T_B."""
    return holds(f(j, k, p, m, T_F, T_B, T_W) - T_F >= first_f(j, k + 1, p, T_F), given=[j >= 2 * k + 1, k >= 0, T_F >= 0, T_F <= T_B])


the_next_forwards_find_inputs_of_first_ones.control(
    "also if F takes longer than B",
    lambda j, k, p, m, T_F, T_B, T_W: holds(
        f(j, k, p, m, T_F, T_B, T_W) - T_F >= first_f(j, k + 1, p, T_F), given=[j >= 2 * k + 1, k >= 0, T_F >= 0, T_B >= 0]
    ),
    refuted_at={"j": 4, "k": 1, "p": 3, "m": 6, "T_F": 5, "T_B": 1, "T_W": 0},
)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def later_forwards_find_their_inputs(j: Integer, k: Integer, p: Integer, m: Integer, T_F: Real, T_B: Real, T_W: Real):
    """When it is a later forward's turn, the stage before has ended its own of that micro-batch."""
    begins = f(j, k, p, m, T_F, T_B, T_W) - T_F
    return holds(begins >= f(j, k + 1, p, m, T_F, T_B, T_W), given=[T_F + T_B >= 0])


later_forwards_find_their_inputs.control(
    "those that are two stages before, too, if B takes no time",
    lambda j, k, p, m, T_F, T_B, T_W: f(j, k, p, m, T_F, T_B, T_W) >= f(j, k + 1, p, m, T_F, T_B, T_W) + 3 * T_F,
    refuted_at={"T_F": 1, "T_B": 0},
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def gradients_come_in_time(j: Integer, k: Integer, p: Integer, m: Integer, T_F: Real, T_B: Real, T_W: NonNegative):
    """When it is the turn of B of a micro-batch, the next stage has ended its own."""
    begins = b(j, k, p, m, T_F, T_B, T_W) - T_B
    return holds(begins >= b(j, k - 1, p, m, T_F, T_B, T_W))


gradients_come_in_time.control(
    "and no earlier",
    lambda j, k, p, m, T_F, T_B, T_W: b(j, k, p, m, T_F, T_B, T_W) - T_B == b(j, k - 1, p, m, T_F, T_B, T_W),
    refuted_at={"j": 2, "k": 1, "p": 2, "m": 4, "T_W": 1},
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def the_first_gradient_comes_after_the_first_forwards(k: Natural, p: Integer, m: Integer, T_F: Real, T_B: Real, T_W: NonNegative):
    """Before its first B a stage has run 2 * k + 1 forwards, and they end in time, if T_F <= T_B."""
    return holds(b(0, k, p, m, T_F, T_B, T_W) - T_B >= first_f(2 * k, k, p, T_F), given=[T_F <= T_B])


the_first_gradient_comes_after_the_first_forwards.control(
    "also if F takes longer than B",
    lambda k, p, m, T_F, T_B, T_W: b(0, k, p, m, T_F, T_B, T_W) - T_B >= first_f(2 * k, k, p, T_F),
    refuted_at={"k": 1, "p": 2, "m": 3, "T_F": 2, "T_B": 1, "T_W": 0},
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def a_forward_ends_before_the_gradient_that_follows(j: Integer, k: Integer, p: Integer, m: Integer, T_F: Real, T_B: Real, T_W: Real):
    """While there are forwards, a stage runs F of micro-batch j + 2 * k before B of j, and it ends in time."""
    begins = b(j, k, p, m, T_F, T_B, T_W) - T_B
    return holds(begins >= f(j + 2 * k, k, p, m, T_F, T_B, T_W), given=[j + 2 * k <= m - 1])


a_forward_ends_before_the_gradient_that_follows.control(
    "also when there is no forward",
    lambda j, k, p, m, T_F, T_B, T_W: b(j, k, p, m, T_F, T_B, T_W) - T_B >= f(j + 2 * k, k, p, m, T_F, T_B, T_W),
    refuted_at={"j": 2, "k": 1, "p": 2, "m": 3, "T_W": 1},
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def a_weight_gradient_fits_where_a_forward_was(j: Integer, k: Integer, p: Integer, m: Integer, T_F: Real, T_B: Real, T_W: Real):
    """When there are no more forwards, a stage runs W between two B, which begin no later for it, if T_W <= T_F."""
    begins = b(j, k, p, m, T_F, T_B, T_W) - T_B
    return holds(begins >= b(j - 1, k, p, m, T_F, T_B, T_W) + T_W, given=[j + 2 * k >= m, T_W <= T_F])


a_weight_gradient_fits_where_a_forward_was.control(
    "however long it takes",
    lambda j, k, p, m, T_F, T_B, T_W: holds(
        b(j, k, p, m, T_F, T_B, T_W) - T_B >= b(j - 1, k, p, m, T_F, T_B, T_W) + T_W, given=[j + 2 * k >= m]
    ),
    refuted_at={"j": 2, "k": 1, "p": 2, "m": 3, "T_F": 1, "T_W": 2},
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def the_bubble_of_zb_h2(k: Integer, m: Integer, p: Integer, T_F: Real, T_B: Real, T_W: Real):
    """By the timetable, a stage that k stages follow waits k * (T_F + T_B - 2 * T_W) between its first F and its last W.

    Of stage 0, where k = p - 1, this is the bubble of table 2 of the source. A stage begins when the first F reaches it, and has
    2 * (p - 1 - k) + 1 W to run after its last B.
    """
    begins, ends = (p - 1 - k) * T_F, b(m - 1, k, p, m, T_F, T_B, T_W) + (2 * (p - 1 - k) + 1) * T_W
    waits = ends - begins - m * (T_F + T_B + T_W)
    return holds(waits == published_bubble("zb-h2", k + 1, T_F, T_B, T_W), given=[m >= 2 * p - 1, k >= 0])


the_bubble_of_zb_h2.control(
    "with any number of micro-batches",
    lambda k, m, p, T_F, T_B, T_W: holds(
        b(m - 1, k, p, m, T_F, T_B, T_W) + (2 * (p - 1 - k) + 1) * T_W - (p - 1 - k) * T_F - m * (T_F + T_B + T_W)
        == published_bubble("zb-h2", k + 1, T_F, T_B, T_W),
        given=[m >= 1, k >= 0],
    ),
    refuted_at={"k": 1, "m": 1, "p": 2, "T_W": 1},
)
