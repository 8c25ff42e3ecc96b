"""Timetables of schedules: when each pass can begin, for all devices and micro-batches, and that no step ends earlier.

A timetable says after how many F, B and W a device begins the r-th repetition of each phase of the order that the product ships; the passes
of a pattern follow one another. That it can be kept is proved case by case: a pass begins no earlier than the one before it on its device
has ended, whichever phases the device has, and no earlier than its input has been made, in whatever phase of whichever device that is. This
is claimed at extreme times of F, B and W: all others are sums of multiples of them, and what a timetable leaves is linear in the times. A
device runs each pass as soon as it can. So by induction over the passes none begins later than the timetable says.

That a step ends no earlier follows from paths: passes each of which waits for the one before, as an input or as the one before on its
device. They may be held back by whatever else there is. Messages take no time.
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
    schedule,
    theorem,
)

from .zero_bubble import row

#: Times of F, B and W. All times are sums of multiples of the first three; those with T_W <= T_F of the second, those with T_F <= T_W of
#: the third, and those with T_W <= T_F <= T_B of the last.
ONES = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
SHORT_W = ((1, 0, 0), (0, 1, 0), (1, 0, 1))
LONG_W = ((0, 0, 1), (0, 1, 0), (1, 0, 1))
AS_IN_TRANSFORMERS = ((0, 1, 0), (1, 1, 0), (1, 1, 1))


@theorem(expect=Proved(), cite="qi2024zerobubble")
def times_are_sums_of_extreme_ones(T_F: Real, T_B: Real, T_W: NonNegative, a: NonNegative, b: NonNegative, c: NonNegative):
    """What is linear in the times of F, B and W and is not negative at (0, 1, 0), (1, 1, 0) and (1, 1, 1) is not negative wherever
    T_W <= T_F <= T_B: it is a at the first, b at the second and c at the third."""
    linear = T_B * a + T_F * (b - a) + T_W * (c - b)
    return holds(linear >= 0, given=[T_W <= T_F, T_F <= T_B])


times_are_sums_of_extreme_ones.control(
    "wherever T_W <= T_F",
    lambda T_F, T_B, T_W, a, b, c: holds(T_B * a + T_F * (b - a) + T_W * (c - b) >= 0, given=[T_W <= T_F]),
    refuted_at={"T_F": 1, "T_B": 0, "T_W": 0, "a": 1, "b": 0, "c": 0},
)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def a_sum_is_no_more_than_as_much_of_what_is_greater(x: NonNegative, y: NonNegative, a: Real, b: Real, c: Real):
    """x times a and y times b are together at most x + y times what neither a nor b exceeds."""
    return holds(x * a + y * b <= (x + y) * c, given=[a <= c, b <= c])


a_sum_is_no_more_than_as_much_of_what_is_greater.control(
    "of the greater one alone", lambda x, y, a, b: holds(x * a + y * b <= (x + y) * a), refuted_at={"x": 1, "y": 1, "a": 1, "b": 2, "c": 2}
)


def kept(name, begins, ends, extremes):
    """That a timetable can be kept at extreme times, and that device d has ended by then."""
    table = schedule(name).timetable(begins, at=[dict(zip(("T_F", "T_B", "T_W"), times, strict=True)) for times in extremes])
    return [*table.kept(), table.ended(ends)]


def path(*parts):
    """When passes have ended that wait for one another: how many, and how long each takes, part by part. With what is known of them."""
    end, known = 0, []
    for number, (count, time) in enumerate(parts):
        end, lemma = row(count, number, end, time)
        known.append(lemma)
    return end, known


def forms_of(name):
    """For how long a device computes, waits and idles, by the forms of a schedule."""
    return (schedule(name).form(what).where(T_send=0) for what in ("busy", "wait", "idle"))


def by_timetable(name, p, d, T_F, ends, zero_of_two, one_of_two):
    """That no device waits or idles for longer than the forms say if device d begins after d forwards, and ends at ``ends(d)``; and that
    device 0 waits for as long. With what is known of sums.

    ``zero_of_two``, ``one_of_two``: for how long device 0 and device 1 of two idle. Devices between the first and the last idle for their
    share of each.
    """
    busy, wait, idle = forms_of(name)
    most = idle.where(p=2)
    shares = a_sum_is_no_more_than_as_much_of_what_is_greater.at(x=p - 1 - d, y=d, a=zero_of_two, b=one_of_two, c=most)
    goals = [ends(d) - d * T_F - busy <= wait, ends(0) - busy == wait, ends(d) - busy <= idle, maximum(zero_of_two, one_of_two) == most]
    return goals, [shares]


def by_paths(name, d, T_F, first, last):
    """That device 0 waits for no less than the form says, and one of the devices idles for no less, by paths to the ends of device 0 and
    of the last one; and that device d begins after d forwards. With what is known of paths."""
    busy, wait, idle = forms_of(name)
    made = [path((d, T_F)), *(path(*parts) for parts in (*first, last))]
    begins, *zero, other = (end for end, _ in made)
    zero = zero[0] if len(zero) == 1 else maximum(*zero)
    goals = [begins >= d * T_F, zero - busy >= wait, maximum(zero, other) - busy >= idle]
    return goals, [lemma for _, lemmas in made for lemma in lemmas]


# GPipe and 1F1B.


def in_gpipe(p, m, T_F, T_B, T_W):
    """When device d begins the r-th repetition of a phase of GPipe."""
    return lambda phase, r, d: ((r + d) * T_F, (m + p - 1) * T_F + (p - 1 - d + r) * (T_B + T_W))[phase - 1]


def in_1f1b(p, m, T_F, T_B, T_W):
    """When device d begins the r-th repetition of a phase of 1F1B."""
    return lambda phase, r, d: (
        (r + d) * T_F,
        (r + p - 1) * T_F + (p - 1 - d + r) * (T_B + T_W),
        (m + p - 1) * T_F + (m + r) * (T_B + T_W),
    )[phase - 1]


def end_of_full_backwards(p, m, d, T_F, T_B, T_W):
    """When device d has ended, in both."""
    return (m + p - 1) * T_F + (m + p - 1 - d) * (T_B + T_W)


@theorem(expect=Proved(), cite=("huang2019gpipe", "narayanan2021megatron"))
def gpipe_and_1f1b_take_no_longer_than_their_forms_say(
    p: Integer, m: Integer, d: Natural, r: Integer, T_F: NonNegative, T_B: Real, T_W: Real
):
    """Without messages, and with m >= p micro-batches, no device of GPipe or 1F1B waits, or idles, for longer than the forms say: they keep
    their timetables."""
    goals, known = [], []

    def ends(d):
        return end_of_full_backwards(p, m, d, T_F, T_B, T_W)

    for name, begins in (("gpipe", in_gpipe), ("1f1b", in_1f1b)):
        made, lemmas = by_timetable(name, p, d, T_F, ends, T_F + T_B + T_W, T_F)
        goals += [*kept(name, begins(p, m, T_F, T_B, T_W), ends(d), ONES), *made]
        known += lemmas
    return holds(goals, given=[d <= p - 1, m >= p, T_B + T_W >= 0], lemmas=known)


gpipe_and_1f1b_take_no_longer_than_their_forms_say.control(
    "with fewer micro-batches by the same timetable",
    lambda p, m, d, T_F, T_B, T_W: holds(
        kept("1f1b", in_1f1b(p, m, T_F, T_B, T_W), end_of_full_backwards(p, m, d, T_F, T_B, T_W), ONES), given=[d <= p - 1]
    ),
    refuted_at={"p": 3, "m": 1, "d": 0, "r": 0, "T_F": 1, "T_B": 1, "T_W": 1},
)


@theorem(expect=Proved(), cite=("huang2019gpipe", "narayanan2021megatron"))
def gpipe_and_1f1b_take_no_less_than_their_forms_say(p: Integer, m: Integer, d: Natural, T_F: Real, T_B: Real, T_W: Real):
    """Without messages some device of GPipe, and of 1F1B, waits for no less than the forms say, and idles for no less, whatever the times
    are: the path goes down with the first F, through what the last device runs, and up."""
    goals, known = [], []
    for name, phases in (("gpipe", (1, 2)), ("1f1b", (1, 2, 3))):
        last = [(p - 1, T_F), (1, schedule(name).work(*phases).where(d=p - 1))]
        made, lemmas = by_paths(name, d, T_F, [[*last, (p - 1, T_B + T_W)]], last)
        goals += made
        known += lemmas
    return holds(goals, given=[d <= p - 1], lemmas=known)


gpipe_and_1f1b_take_no_less_than_their_forms_say.control(
    "without the way up",
    lambda p, d, T_F: holds(
        by_paths("gpipe", d, T_F, [[(p - 1, T_F), (1, schedule("gpipe").work(1, 2))]], [(p - 1, T_F)])[0], given=[d <= p - 1]
    ),
    refuted_at={"p": 3, "m": 1, "d": 0, "T_F": 100, "T_B": 100, "T_W": 100},
)

# ZB-H1 and ZB-H2.


def in_zb_h1(p, m, T_F, T_B, T_W, w):
    """When device d begins the r-th repetition of a phase of ZB-H1. w: the lesser of T_F and T_W."""
    return lambda phase, r, d: (
        (r + d) * T_F,
        (r + p - 1) * T_F + (p - 1 - d + r) * T_B,
        (r + d + p - 1) * T_F + (r + p - 1) * T_B + r * T_W,
        (m + d) * T_F + (m + r) * T_B + (m - p + 1 + r) * T_W + (r + 1) * (T_F - w),
        (m + p - 1) * T_F + (m + p - 1 - d) * T_B + (m - d + r) * T_W - (p - 1 - d) * w,
    )[phase - 1]


def end_of_zb_h1(p, m, d, T_F, T_B, T_W, w):
    """When device d of ZB-H1 has ended."""
    return (m + d) * T_F + m * (T_B + T_W) + (p - 1 - d) * (T_F + T_B - w)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def zb_h1_takes_no_longer_than_its_forms_say(p: Integer, m: Integer, d: Natural, r: Natural, T_F: Real, T_B: NonNegative, T_W: Real):
    """With m >= p micro-batches no device of ZB-H1 waits, or idles, for longer than the forms say, whatever the times are: it keeps its
    timetable."""
    times, w = (T_F, T_B, T_W), minimum(T_F, T_W)
    goals, known = by_timetable("zb-h1", p, d, T_F, lambda d: end_of_zb_h1(p, m, d, *times, w), T_F + T_B - w, T_F)
    tables = [kept("zb-h1", in_zb_h1(p, m, *times, w), end_of_zb_h1(p, m, d, *times, w), at) for w, at in ((T_W, SHORT_W), (T_F, LONG_W))]
    return holds(*tables, goals, given=[d <= p - 1, m >= p], lemmas=known)


zb_h1_takes_no_longer_than_its_forms_say.control(
    "the timetable for short W, also for long ones",
    lambda p, m, d, T_F, T_B, T_W: holds(
        kept("zb-h1", in_zb_h1(p, m, T_F, T_B, T_W, T_W), end_of_zb_h1(p, m, d, T_F, T_B, T_W, T_W), LONG_W), given=[d <= p - 1, m >= p]
    ),
    refuted_at={"p": 2, "m": 2, "d": 0, "r": 0, "T_F": 1, "T_B": 1, "T_W": 1},
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def zb_h1_takes_no_less_than_its_forms_say(p: Integer, m: Integer, d: Natural, T_F: Real, T_B: Real, T_W: Real):
    """With m >= p micro-batches device 0 of ZB-H1 waits for no less than the form says, and some device idles for no less.

    Two paths lead to the end of device 0. One goes down with the first F, through all that the last device runs until its last B, and up.
    The other goes down and up with the first micro-batch, and through what device 0 runs from then on.
    """
    own = schedule("zb-h1").work
    first = (
        [(p - 1, T_F), (1, own(1, 2, 3).where(d=p - 1) - T_W), (p - 1, T_B), (1, T_W)],
        [(p, T_F), (p - 1, T_B), (1, own(3, 4, 5).where(d=0) - T_F)],
    )
    goals, known = by_paths("zb-h1", d, T_F, first, [(p - 1, T_F), (1, own(1, 2, 3, 4, 5).where(d=p - 1))])
    return holds(goals, given=[d <= p - 1, m >= p], lemmas=known)


zb_h1_takes_no_less_than_its_forms_say.control(
    "by the first path alone, if W takes long",
    lambda p, m, d, T_F, T_B, T_W: holds(
        by_paths("zb-h1", d, T_F, [[(p - 1, T_F), (m, T_F + T_B), (m - p + 1, T_W), (p - 1, T_B)]], [(p - 1, T_F)])[0],
        given=[d <= p - 1, m >= p],
    ),
    refuted_at={"p": 2, "m": 2, "d": 0, "T_F": 50, "T_B": 50, "T_W": 100},
)


def in_zb_h2(p, m, T_F, T_B, T_W):
    """When device d begins the r-th repetition of a phase of ZB-H2."""
    return lambda phase, r, d: (
        (r + d) * T_F,
        (r + p - 1) * T_F + (p - 1 - d + r) * T_B,
        (r + 2 * d + p - 1) * T_F + (r + d + p - 1) * T_B + r * T_W,
        (r + 2 * d - p + m + 2) * T_F + (r + d - p + m + 1) * T_B + (m - 2 * p + 1) * T_W,
        (m + p - 1) * T_F + (m + p - 1 - d) * T_B + (m - 2 * p + 2 + r) * T_W,
    )[phase - 1]


def end_of_zb_h2(p, m, d, T_F, T_B, T_W):
    """When device d of ZB-H2 has ended."""
    return (m + d) * T_F + m * (T_B + T_W) + (p - 1 - d) * (T_F + T_B - 2 * T_W)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def zb_h2_takes_no_longer_than_its_forms_say(p: Integer, m: Integer, d: Natural, r: Natural, T_F: Real, T_B: Real, T_W: Real):
    """With m >= 2 * p - 1 micro-batches and T_W <= T_F <= T_B no device of ZB-H2 waits, or idles, for longer than the forms say: it keeps
    its timetable."""

    def ends(d):
        return end_of_zb_h2(p, m, d, T_F, T_B, T_W)

    goals, known = by_timetable("zb-h2", p, d, T_F, ends, T_F + T_B - 2 * T_W, T_F)
    given = [d <= p - 1, m >= 2 * p - 1, T_W <= T_F, T_F <= T_B]
    return holds(kept("zb-h2", in_zb_h2(p, m, T_F, T_B, T_W), ends(d), AS_IN_TRANSFORMERS), goals, given=given, lemmas=known)


zb_h2_takes_no_longer_than_its_forms_say.control(
    "by the same timetable, if W takes longer than F",
    lambda p, m, d, T_F, T_B, T_W: holds(
        kept("zb-h2", in_zb_h2(p, m, T_F, T_B, T_W), end_of_zb_h2(p, m, d, T_F, T_B, T_W), LONG_W), given=[d <= p - 1, m >= 2 * p - 1]
    ),
    refuted_at={"p": 2, "m": 3, "d": 0, "r": 0, "T_F": 1, "T_B": 1, "T_W": 1},
)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def zb_h2_takes_no_less_than_its_forms_say(p: Integer, m: Integer, d: Natural, T_F: Real, T_B: Real, T_W: Real):
    """With m >= 2 * p - 1 micro-batches and T_W <= T_F <= T_B device 0 of ZB-H2 waits for no less than the form says, and some device
    idles for no less."""
    own = schedule("zb-h2").work
    first = [(p - 1, T_F), (1, own(1, 2, 3).where(d=p - 1) - T_W), (p - 1, T_B), (1, T_W)]
    goals, known = by_paths("zb-h2", d, T_F, [first], [(p - 1, T_F), (1, own(1, 2, 3, 4, 5).where(d=p - 1))])
    return holds(goals, given=[d <= p - 1, T_W <= T_F, T_F <= T_B], lemmas=known)


zb_h2_takes_no_less_than_its_forms_say.control(
    "whatever the times",
    lambda p, m, d, T_F, T_B, T_W: holds(
        by_paths("zb-h2", d, T_F, [[(p - 1, T_F), (m, T_F + T_B), (m - 2 * p + 2, T_W), (p - 1, T_B)]], [(p - 1, T_F)])[0],
        given=[d <= p - 1],
    ),
    refuted_at={"p": 2, "m": 3, "d": 0, "T_F": 100, "T_B": 100, "T_W": 300},
)

# ZB-V.


def in_zb_v(p, m, T_F, T_B, T_W):
    """When device d begins the r-th repetition of a phase of ZB-V."""
    return lambda phase, r, d: (
        (r + d) * T_F,
        (r - d + 2 * p - 1) * T_F + r * T_B,
        (r + 2 * p - 1) * T_F + (r + d) * T_B + r * T_W,
        (2 * r + 2 * p) * T_F + (2 * r - d + 2 * p - 1) * T_B + (2 * r - d + p) * T_W,
        (r + d - p + 2 * m + 1) * T_F + (2 * r + d - 2 * p + 2 * m + 1) * T_B + (2 * r + 2 * d - 4 * p + 2 * m + 3) * T_W,
        2 * m * T_F + (2 * r - d + 2 * m - 1) * T_B + (2 * m - 2 * p + 1) * T_W,
        2 * m * T_F + (2 * r + d + 2 * m - 1) * T_B + (2 * m - 2 * p + 1) * T_W,
        2 * m * T_F + (2 * m + 2 * p - 2 - d) * T_B + (r - 2 * p + 2 * m + 2) * T_W,
        2 * m * T_F + (2 * m + 2 * p - 2 - d) * T_B + (r + d - 2 * p + 2 * m + 2) * T_W,
    )[phase - 1]


def end_of_zb_v(p, m, d, T_F, T_B, T_W):
    """When device d of ZB-V has ended."""
    return 2 * m * (T_F + T_B + T_W) + (2 * (p - 1) - d) * (T_B - T_W) + d * T_W


@theorem(expect=Proved(), cite=("qi2024zerobubble", "qi2024controllable"), level=1)
def zb_v_takes_no_longer_than_its_forms_say(p: Integer, m: Integer, d: Natural, r: Natural, T_F: Real, T_B: Real, T_W: Real):
    """With m >= 2 * p - 1 micro-batches and T_W <= T_F <= T_B no device of ZB-V waits, or idles, for longer than the forms say: it keeps
    its timetable."""

    def ends(d):
        return end_of_zb_v(p, m, d, T_F, T_B, T_W)

    goals, known = by_timetable("zb-v", p, d, T_F, ends, 2 * (T_B - T_W), T_B)
    given = [d <= p - 1, m >= 2 * p - 1, T_W <= T_F, T_F <= T_B]
    return holds(kept("zb-v", in_zb_v(p, m, T_F, T_B, T_W), ends(d), AS_IN_TRANSFORMERS), goals, given=given, lemmas=known)


zb_v_takes_no_longer_than_its_forms_say.control(
    "by the same timetable, if F takes longer than B",
    lambda p, m, d, T_F, T_B, T_W: holds(
        kept("zb-v", in_zb_v(p, m, T_F, T_B, T_W), end_of_zb_v(p, m, d, T_F, T_B, T_W), SHORT_W), given=[d <= p - 1, m >= 2 * p - 1]
    ),
    refuted_at={"p": 2, "m": 3, "d": 0, "r": 0, "T_F": 1, "T_B": 1, "T_W": 1},
)


@theorem(expect=Proved(), cite=("qi2024zerobubble", "qi2024controllable"), level=1)
def zb_v_takes_no_less_than_its_forms_say(p: Integer, m: Integer, d: Natural, T_F: Real, T_B: Real, T_W: Real):
    """With m >= 2 * p - 1 micro-batches device 0 of ZB-V waits for no less than the form says, and some device idles for no less.

    The path goes through all stages with the first F, up to the last device with the first B, through what that device runs from then on
    (the W of this B, and phases 4 to 6) until its last B of the first chunk, and down to device 0 with this one.
    """
    own = schedule("zb-v").work
    until = [(2 * p, T_F), (p, T_B), (1, T_W)]
    first = [*until, (1, own(4, 5, 6).where(d=p - 1)), (p, T_B), (1, T_W)]
    goals, known = by_paths("zb-v", d, T_F, [first], [*until, (1, own(4, 5, 6, 7, 8, 9).where(d=p - 1))])
    return holds(goals, given=[d <= p - 1], lemmas=known)


zb_v_takes_no_less_than_its_forms_say.control(
    "without the first B's way up",
    lambda p, d, T_F, T_B: holds(
        by_paths("zb-v", d, T_F, [[(2 * p, T_F), (1, schedule("zb-v").work(4, 5, 6).where(d=p - 1)), (p, T_B)]], [(2 * p, T_F)])[0],
        given=[d <= p - 1],
    ),
    refuted_at={"p": 3, "m": 5, "d": 0, "T_F": 100, "T_B": 100, "T_W": 0},
)
