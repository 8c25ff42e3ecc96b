"""What no schedule of a pipeline can avoid: memory against idle time.

A schedule is arbitrary here: any times at which passes begin, as long as a pass begins after its input has come, and a device runs one
pass at a time. There are p stages on p devices, and m micro-batches; F, B, W and a message take T_F, T_B, T_W and T_send. A micro-batch is
in flight on stage 0 from the beginning of its forward there until the end of its B, which is as long as stage 0 keeps its activations.
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
    data,
    holds,
    maximum,
    minimum,
    recursive,
    schedule,
    theorem,
)

from .zero_bubble import row

# At most k micro-batches in flight. begins(j) is when stage 0 begins its forward of micro-batch j; micro-batches are numbered by these.

begins = data("begins")
out = data("out")


@recursive(on="g", reals=("trip",))
def keeps_to(g, k, trip):
    """0 if, in each of g rounds of k micro-batches, at most k are in flight as the next round begins, and less if not.

    Of the k before it, out(g) is one that is not in flight any more: it began no earlier than the first of them, and it has been through
    all stages and back, which takes ``trip``.
    """
    first, following, gone = begins((g - 1) * k), begins(g * k), begins(out(g))
    return 0, minimum(keeps_to(g - 1, k, trip), gone - first, following - gone - trip)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "qi2024controllable"))
def a_round_of_k_in_flight_takes_a_round_trip(g: Natural, k: Integer, trip: Real):
    """With at most k micro-batches in flight on stage 0, k micro-batches later is a round trip later, in whatever order they come back."""
    return by_induction(begins(g * k) >= begins(0) + g * trip, on=g, given=[keeps_to(g, k, trip) >= 0])


a_round_of_k_in_flight_takes_a_round_trip.control(
    "whatever is in flight", lambda g, k, trip: begins(g * k) >= begins(0) + g * trip, refuted_at={"g": 1, "k": 1, "trip": 1000}
)


def round_trip(p, T_F, T_B, T_W, T_send):
    """The least from the forward of a micro-batch on stage 0 until the end of its full backward there."""
    return p * (T_F + T_B + T_W) + 2 * (p - 1) * T_send


def step_of_k_in_flight(g, k, q, p, T_F, T_B, T_W, T_send):
    """When stage 0 has ended its last full backward, for g * k + q micro-batches: the last q begin after g rounds, one of them reaches the
    last stage, which runs q forwards and backwards, and a last gradient goes back. Each pass may be held back further."""
    down, a = row(p - 1, 1, begins(g * k), T_F + T_send)
    last, b = row(q, 2, down, T_F + T_B + T_W)
    up, c = row(p - 1, 3, last, T_send + T_B + T_W)
    rounds = a_round_of_k_in_flight_takes_a_round_trip.at(g=g, k=k, trip=round_trip(p, T_F, T_B, T_W, T_send))
    return up, [rounds, a, b, c]


def least_idle(g, k, p, T_F, T_B, T_W, T_send=0):
    """For how long a device idles at least, with more than g * k micro-batches of which at most k are in flight at once."""
    return (p - 1 + g * (p - k)) * (T_F + T_B + T_W) + 2 * (p - 1) * (g + 1) * T_send


@theorem(expect=Proved(), cite=("narayanan2021megatron", "qi2024controllable"))
def idle_time_of_k_in_flight(
    g: Natural, k: Integer, q: Degree, p: Degree, T_F: Real, T_B: Real, T_W: Real, T_send: Real
):  # fmt: skip
    """With g * k + q micro-batches, of which stage 0 has at most k in flight at once, each device idles for at least
    (p - 1 + g * (p - k)) * (T_F + T_B + T_W), and 2 * (p - 1) * (g + 1) messages, in whatever schedule of forwards and full backwards.

    So with k < p the idle time grows with the number of micro-batches. g may be 0: no memory makes the idle time less than that of g = 0.
    """
    end, lemmas = step_of_k_in_flight(g, k, q, p, T_F, T_B, T_W, T_send)
    idle = end - (g * k + q) * (T_F + T_B + T_W)
    trip = round_trip(p, T_F, T_B, T_W, T_send)
    given = [begins(0) >= 0, keeps_to(g, k, trip) >= 0]
    return by_induction(idle >= least_idle(g, k, p, T_F, T_B, T_W, T_send), on=g, given=given, lemmas=lemmas)


idle_time_of_k_in_flight.control(
    "whatever is in flight",
    lambda g, k, q, p, T_F, T_B, T_W, T_send: holds(
        step_of_k_in_flight(g, k, q, p, T_F, T_B, T_W, T_send)[0] - (g * k + q) * (T_F + T_B + T_W)
        >= least_idle(g, k, p, T_F, T_B, T_W, T_send),
        given=[begins(0) >= 0],
    ),
    refuted_at={"g": 1, "k": 1, "q": 1, "p": 4, "T_F": 100, "T_B": 100, "T_W": 100, "T_send": 0},
)


def in_flight(name):
    """How many micro-batches a schedule of the product has in flight on its first device, by the form of its peak."""
    return schedule(name).peak.where(d=0, M_B=1)


@theorem(expect=Proved(), cite=("huang2019gpipe", "narayanan2021megatron"))
def gpipe_and_1f1b_idle_no_longer_than_they_have_to(m: Integer, p: Degree, T_F: Real, T_B: Real, T_W: Real):
    """Without messages the forms of GPipe and of 1F1B are the least idle time of any memory; 1F1B keeps no more for it, and less with more
    micro-batches than devices."""
    whole = least_idle(0, in_flight("1f1b"), p, T_F, T_B, T_W)
    idle = [schedule(name).idle.where(T_send=0) for name in ("gpipe", "1f1b")]
    return [*(one == whole for one in idle), in_flight("gpipe") - in_flight("1f1b") == maximum(0, m - p)]


gpipe_and_1f1b_idle_no_longer_than_they_have_to.control(
    "with messages, too",
    lambda p, T_F, T_B, T_W: schedule("1f1b").idle.where(T_send=1) == least_idle(0, 1, p, T_F, T_B, T_W, 1),
    refuted_at={"m": 3, "p": 2, "T_F": 1, "T_B": 1, "T_W": 1},
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "qi2024controllable"))
def no_schedule_idles_as_little_as_1f1b_in_less_memory(
    g: Degree, k: Degree, q: Integer, p: Integer, T_F: NonNegative, T_B: NonNegative, T_W: Positive
):
    """Whatever has k micro-batches in flight on the first device, fewer than 1F1B by the form of its peak, idles for longer: by
    (p - k) * (T_F + T_B + T_W) for each k micro-batches but the last.

    Of the schedules of forwards and full backwards that idle least, 1F1B keeps least.
    """
    more = least_idle(g, k, p, T_F, T_B, T_W) - schedule("1f1b").idle.where(T_send=0)
    return holds(more == g * (p - k) * (T_F + T_B + T_W), more > 0, given=[k <= in_flight("1f1b").where(m=g * k + q) - 1])


no_schedule_idles_as_little_as_1f1b_in_less_memory.control(
    "nor in as much",
    lambda g, k, q, p, T_F, T_B, T_W: holds(
        least_idle(g, k, p, T_F, T_B, T_W) > schedule("1f1b").idle.where(T_send=0), given=[k <= in_flight("1f1b").where(m=g * k + q)]
    ),
    refuted_at={"g": 1, "k": 2, "q": 1, "p": 2, "T_F": 1, "T_B": 1, "T_W": 1},
)


@theorem(expect=Proved(), cite="narayanan2021megatron")
def messages_of_1f1b_are_waited_for_as_its_memory_demands(g: Integer, p: Degree, T_F: Real, T_B: Real, T_W: Real, T_send: Real):
    """With messages, too, the form of 1F1B's idle time is the least for as many in flight as there are devices, of g * p + 1
    micro-batches."""
    return schedule("1f1b").idle.where(m=g * p + 1) == least_idle(g, p, p, T_F, T_B, T_W, T_send)


messages_of_1f1b_are_waited_for_as_its_memory_demands.control(
    "of g * p + 3 micro-batches, of which the last waits once more",
    lambda g, p, T_F, T_B, T_W, T_send: schedule("1f1b").idle.where(m=g * p + 3) == least_idle(g, p, p, T_F, T_B, T_W, T_send),
    refuted_at={"g": 0, "p": 3, "T_F": 1, "T_B": 1, "T_W": 1, "T_send": 1},
)

# Backwards in two parts. Until its first gradient comes, a device can run forwards alone, and has at most k of them to run.


def wait_for_the_first_gradient(k, m, p, T_F, T_B, T_W):
    """When device 0 has run everything, at the earliest: after p F down and p - 1 B back come its own B, W, and the F that are not among
    the first k."""
    down, a = row(p, 0, 0, T_F)
    up, b = row(p - 1, 1, down, T_B)
    rest, c = row(m - k, 2, up, T_F)
    backward, d = row(m, 3, rest, T_B + T_W)
    return backward, [a, b, c, d]


def least_wait(k, p, T_F, T_B):
    """For how long device 0 waits at least with k micro-batches in flight at once."""
    return (p - 1) * T_B - (k - p) * T_F


@theorem(expect=Proved(), cite="qi2024zerobubble")
def wait_of_split_backwards_of_k_in_flight(k: Natural, m: Integer, p: Degree, T_F: Real, T_B: Real, T_W: Real):
    """If B and W are separate passes, and device 0 has at most k <= m micro-batches in flight at once, it waits for at least
    (p - 1) * T_B - (k - p) * T_F, in whatever schedule, however many weight gradients are put off."""
    end, lemmas = wait_for_the_first_gradient(k, m, p, T_F, T_B, T_W)
    return holds(end - m * (T_F + T_B + T_W) >= least_wait(k, p, T_F, T_B), given=[k <= m], lemmas=lemmas)


wait_of_split_backwards_of_k_in_flight.control(
    "one more in flight waits for as long",
    lambda k, m, p, T_F, T_B, T_W: holds(
        wait_for_the_first_gradient(k + 1, m, p, T_F, T_B, T_W)[0] - m * (T_F + T_B + T_W) >= least_wait(k, p, T_F, T_B), given=[k + 1 <= m]
    ),
    refuted_at={"k": 0, "m": 1, "p": 1, "T_F": 100, "T_B": 0, "T_W": 0},
)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def zb_h1_and_zb_h2_wait_no_longer_than_their_memory_demands(m: Integer, p: Degree, T_F: Real, T_B: Real, T_W: Real):
    """If W takes no less than F, the forms of the waits of ZB-H1 and of ZB-H2 are the least for as many micro-batches as they have in
    flight on their first devices: ZB-H1 as many as 1F1B, and ZB-H2 p - 1 more, which save (p - 1) * T_F."""
    goals = []
    for name, k in (("zb-h1", p), ("zb-h2", 2 * p - 1)):
        kept = schedule(name).peak.where(d=0, M_B=1, M_W=0)
        goals += [kept == k, schedule(name).wait == least_wait(kept, p, T_F, T_B)]
    return holds(goals, given=[m >= 2 * p - 1, T_F <= T_B, T_F <= T_W])


zb_h1_and_zb_h2_wait_no_longer_than_their_memory_demands.control(
    "if W takes less, ZB-H1 waits for longer: it has put off too few weight gradients",
    lambda m, p, T_F, T_B: holds(schedule("zb-h1").wait == least_wait(p, p, T_F, T_B), given=[m >= 2 * p - 1]),
    refuted_at={"m": 3, "p": 2, "T_F": 2, "T_B": 2, "T_W": 1},
)


@theorem(
    expect=Refuted(
        witness={"m": 3, "p": 2, "T_F": 1, "T_B": 2, "T_W": 2},
        because="splitting backwards changes what stages wait for, and 1F1B's form is the least of full backwards alone",
    ),
    cite="qi2024zerobubble",
)
def no_schedule_waits_less_than_1f1b_in_its_memory(m: Integer, p: Degree, T_F: Positive, T_B: Positive, T_W: Positive):
    """No schedule that has as many micro-batches in flight on its first device as 1F1B waits for less: ZB-H1 does not, either."""
    return holds(schedule("1f1b").wait.where(T_send=0) <= schedule("zb-h1").wait, given=[m >= p])


no_schedule_waits_less_than_1f1b_in_its_memory.control(
    "no wait in its memory is less than (p - 1) * T_B",
    lambda m, p, T_F, T_B: holds(schedule("zb-h1").wait >= least_wait(p, p, T_F, T_B), given=[m >= p]),
    proved=True,
)
