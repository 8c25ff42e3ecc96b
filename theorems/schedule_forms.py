"""Closed forms of schedules, as the product ships them: what they say of waiting, of memory and of messages.

Forms are those of ``placeproof explain SCHEDULE``, in its symbols: p devices, m micro-batches, v runs of layers on a device d; T_F, T_B,
T_W and T_send are times, M_B and M_W sizes. Each form is held against its order's simulation at finitely many points, and for all p and m
where its order has been followed by recursion.
"""

from placeproof.schedules import names
from placeproof.theory import (
    Degree,
    Integer,
    Natural,
    NonNegative,
    Proved,
    Real,
    derived,
    holds,
    minimum,
    schedule,
    theorem,
)

from .schedule_messages import known_of_sent_gpipe, sent_gpipe
from .schedule_orders import (
    further,
    kept_in,
    stages_before_a_short_1f1b_pass_gradients_on,
    what_split_backwards_keep,
)
from .schedules import (
    drain,
    gpipe_and_1f1b_take_equally_long,
    most_in_flight,
    the_most_in_flight_is_warm_up_plus_one,
    time_spent_is_a_product,
    wave,
    waves,
)


def forms_hold(name, **points):
    """Every closed form of a schedule, and all that its sources print, is what its order takes, where it is said to."""
    forms = schedule(name)
    goals = [forms.off(what, number, **points) == 0 for what, number in forms.known()]
    return goals + [forms.printed_off(what, **points) == 0 for what in forms.prints()]


# At finitely many points: what the simulation gives for up to 4 devices, 9 micro-batches and 3 runs of layers, and several times and sizes.


@theorem(expect=Proved(), cite="huang2019gpipe")
def gpipe_takes_what_its_forms_say():
    """What GPipe's order takes, keeps and sends is what its closed forms say, on up to 4 devices."""
    return forms_hold("gpipe")


gpipe_takes_what_its_forms_say.control("and a message more", lambda: schedule("gpipe").off("messages", by=1) == 0, refuted_at={})


@theorem(expect=Proved(), cite="narayanan2021megatron")
def one_f_one_b_takes_what_its_forms_say():
    """What 1F1B's order takes, keeps and sends is what its closed forms say, with messages that take time, too."""
    return forms_hold("1f1b")


one_f_one_b_takes_what_its_forms_say.control(
    "what the source prints, with messages that take time", lambda: schedule("1f1b").printed_off("idle", anywhere=True) == 0, refuted_at={}
)


@theorem(expect=Proved(), cite="narayanan2021megatron")
def interleaving_takes_what_its_forms_say():
    """What interleaved 1F1B's order takes, keeps and sends is what its closed forms say, with up to 3 runs of layers on a device."""
    return forms_hold("interleaved")


interleaving_takes_what_its_forms_say.control(
    "with messages that take longer than a pass", lambda: schedule("interleaved").off("idle", anywhere=True) == 0, refuted_at={}
)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def zb_h1_takes_what_its_forms_say():
    """What ZB-H1's order takes, keeps and sends is what its closed forms say, where they speak."""
    return forms_hold("zb-h1")


zb_h1_takes_what_its_forms_say.control(
    "with fewer micro-batches than devices", lambda: schedule("zb-h1").off("idle", anywhere=True) == 0, refuted_at={}
)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def zb_h2_takes_what_its_forms_say():
    """What ZB-H2's order takes, keeps and sends is what its closed forms say, where they speak."""
    return forms_hold("zb-h2")


zb_h2_takes_what_its_forms_say.control(
    "what the source prints of its bubble, whatever the times",
    lambda: schedule("zb-h2").printed_off("wait", anywhere=True) == 0,
    refuted_at={},
)


@theorem(expect=Proved(), cite="qi2024controllable")
def zb_v_takes_what_its_forms_say():
    """What ZB-V's order takes, keeps and sends is what its closed forms say, where they speak."""
    return forms_hold("zb-v")


zb_v_takes_what_its_forms_say.control(
    "no bubble, whatever the times", lambda: schedule("zb-v").printed_off("wait", anywhere=True) == 0, refuted_at={}
)


#: Devices and micro-batches at which schedules of a building block are run: both residues of V-Half's, all three of V-Min's, twice.
REPEATED = {"p": range(1, 7), "m": range(1, 10)}


@theorem(expect=Proved(), cite="qi2024controllable")
def v_half_takes_what_its_forms_say():
    """What V-Half's order takes, keeps and sends is what its closed forms say, on up to 6 devices: it keeps (p + 2) // 2 micro-batches, as
    its authors print."""
    return forms_hold("v-half", **REPEATED)


v_half_takes_what_its_forms_say.control(
    "and a micro-batch less", lambda: schedule("v-half").off("peak", by=-2, **REPEATED) == 0, refuted_at={}
)


@theorem(expect=Proved(), cite="qi2024controllable")
def v_min_takes_what_its_forms_say():
    """What V-Min's order takes, keeps and sends is what its closed forms say, on up to 6 devices: it keeps (p + 4) // 3 micro-batches at
    most, as its authors print."""
    return forms_hold("v-min", **REPEATED)


v_min_takes_what_its_forms_say.control(
    "what its authors print, of every device and whatever W needs",
    lambda: schedule("v-min").printed_off("peak", anywhere=True, **REPEATED) == 0,
    refuted_at={},
)


@theorem(expect=Proved(), cite="deepseek2025dualpipe")
def dualpipe_takes_what_its_forms_say():
    """What DualPipe's order takes, keeps and sends is what its closed forms say, on up to 6 devices with up to 14 micro-batches."""
    return forms_hold("dualpipe", p=(2, 4, 6), m=range(4, 15, 2))


dualpipe_takes_what_its_forms_say.control(
    "what the source prints of its bubble, whatever the times",
    lambda: schedule("dualpipe").printed_off("idle", anywhere=True, p=(4,), m=(8,)) == 0,
    refuted_at={},
)


@theorem(expect=Proved(), cite="deepseek2025dualpipe")
def dualpipe_v_takes_what_its_forms_say():
    """What DualPipeV's order takes, keeps and sends is what its closed forms say, where they speak."""
    return forms_hold("dualpipe-v")


dualpipe_v_takes_what_its_forms_say.control(
    "whatever the times", lambda: schedule("dualpipe-v").off("wait", anywhere=True) == 0, refuted_at={}
)


#: Short forms for small sizes, of which the next one says the same and more.
SHORTER = (("dualpipe", "peak", 1), ("dualpipe-v", "peak", 1))


@theorem(expect=Proved(), cite="qi2024zerobubble")
def forms_speak_wherever_they_are_right():
    """No closed form is kept from what it is right about: where a relation under which it speaks is missed by one, it is wrong for some
    times or sizes, on 4 devices, or 6 of DualPipe and V-Min. Two short forms are, and the next ones say what is right there."""
    return [
        of.needless(what, number, p=6 if name in ("dualpipe", "v-min") else 4, m=range(1, 15)) == ((name, what, number) in SHORTER) * 1
        for name, of in ((name, schedule(name)) for name in names())
        for what, number in of.known()
        if of.when(what, number)
    ]


forms_speak_wherever_they_are_right.control(
    "of ZB-V's wait from another micro-batch on", lambda: schedule("zb-v").needless("wait", also="m >= 2 * p") == 0, refuted_at={}
)


# For all devices and micro-batches: waiting.


@theorem(expect=Proved(), cite="huang2019gpipe", level=1)
def gpipe_idles_as_its_form_says(m: Degree, p: Degree, T_F: NonNegative, T_B: Real, T_W: Real, T_send: NonNegative):
    """GPipe's step, two waves that wait for messages, is longer than a device's work by what the form of its idle time says."""
    bubble = sent_gpipe(m, p, T_F, T_B + T_W, T_send) - m * (T_F + T_B + T_W)
    form = schedule("gpipe").idle
    return holds(bubble == form, given=[T_B + T_W >= 0], lemmas=known_of_sent_gpipe(m, p, T_F, T_B + T_W, T_send))


gpipe_idles_as_its_form_says.control(
    "one stage more",
    lambda m, p, T_F, T_B, T_W, T_send: (
        sent_gpipe(m, p, T_F, T_B + T_W, T_send) - m * (T_F + T_B + T_W) == schedule("gpipe").idle.where(p=p + 1)
    ),
    refuted_at={"m": 1, "p": 1, "T_F": 1, "T_B": 1, "T_W": 1, "T_send": 0},
)


def steps_of_1f1b(m, p, t_f, t_b):
    """When a step of 1F1B ends with m >= p micro-batches."""
    return drain(m + p - 2, p - 1, m, p, wave(p - 1, p - 1, 0, 0, t_f), t_f, t_b)


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def one_f_one_b_idles_as_its_form_says(m: Integer, p: Degree, T_F: NonNegative, T_B: Real, T_W: Real):
    """With m >= p micro-batches, and messages that take no time, 1F1B's step is longer than a device's work by what the form of its idle
    time says."""
    t_b = T_B + T_W
    lemmas = [gpipe_and_1f1b_take_equally_long.at(m=m, p=p, t_f=T_F, t_b=t_b), *waves(m, p, T_F, t_b)]
    form = schedule("1f1b").idle.where(T_send=0)
    return holds(steps_of_1f1b(m, p, T_F, t_b) - m * (T_F + t_b) == form, given=[m >= p, T_B + T_W >= 0], lemmas=lemmas)


one_f_one_b_idles_as_its_form_says.control(
    "half as long",
    lambda m, p, T_F, T_B, T_W: holds(
        steps_of_1f1b(m, p, T_F, T_B + T_W) - m * (T_F + T_B + T_W) == schedule("1f1b").idle.where(T_send=0) / 2, given=[m >= p]
    ),
    refuted_at={"m": 2, "p": 2, "T_F": 1, "T_B": 1, "T_W": 1},
)


@theorem(expect=Proved(), cite="narayanan2021megatron", level=1)
def short_1f1b_idles_as_its_form_says(m: Degree, p: Integer, T_F: NonNegative, T_B: Real, T_W: Real):
    """With fewer micro-batches than stages, too, 1F1B's step is longer than a device's work by what the form says, without messages."""
    t_b = T_B + T_W
    lemmas = [
        stages_before_a_short_1f1b_pass_gradients_on.at(n=p - 2, i=p - 1 - m, m=m, p=p, t_f=T_F, t_b=t_b),
        time_spent_is_a_product.at(k=m - 1, t=T_F),
        time_spent_is_a_product.at(k=p - 1 + m, t=t_b),
    ]
    bubble = further(p - 2, p - 1 - m, m, p, T_F, t_b) - m * (T_F + t_b)
    return holds(bubble == schedule("1f1b").idle.where(T_send=0), given=[m <= p - 1, T_B + T_W >= 0], lemmas=lemmas)


short_1f1b_idles_as_its_form_says.control(
    "as if there were as many devices as micro-batches",
    lambda m, p, T_F, T_B, T_W: holds(
        further(p - 2, p - 1 - m, m, p, T_F, T_B + T_W) - m * (T_F + T_B + T_W) == schedule("1f1b").idle.where(T_send=0, p=m),
        given=[m <= p - 1],
    ),
    refuted_at={"m": 1, "p": 3, "T_F": 1, "T_B": 1, "T_W": 1},
)


# Memory: what devices keep follows from how often they run each phase, which is asked of the product, too.


@theorem(expect=Proved(), cite="narayanan2021megatron")
def one_f_one_b_keeps_what_its_form_says(m: Natural, p: Integer, d: Integer, M_B: Real):
    """A device that begins with as many forwards as 1F1B's first phase has keeps what the form of its peak says."""
    warm_up = schedule("1f1b").times(1)
    lemma = the_most_in_flight_is_warm_up_plus_one.at(q=2 * m, w=warm_up, m=m)
    return holds(most_in_flight(2 * m, warm_up, m) * M_B == schedule("1f1b").peak, given=[d <= p - 1], lemmas=[lemma])


one_f_one_b_keeps_what_its_form_says.control(
    "what device 0 keeps",
    lambda m, p, d, M_B: holds(
        most_in_flight(2 * m, schedule("1f1b").times(1), m) * M_B == schedule("1f1b").peak.where(d=0), given=[d <= p - 1]
    ),
    refuted_at={"m": 2, "p": 2, "d": 1, "M_B": 1},
)


@theorem(expect=Proved(), cite="huang2019gpipe")
def gpipe_keeps_what_its_form_says(m: Natural, M_B: Real):
    """A device that begins with as many forwards as GPipe's first phase has keeps what the form of its peak says."""
    warm_up = schedule("gpipe").times(1)
    lemma = the_most_in_flight_is_warm_up_plus_one.at(q=2 * m, w=warm_up, m=m)
    return holds(most_in_flight(2 * m, warm_up, m) * M_B == schedule("gpipe").peak, lemmas=[lemma])


gpipe_keeps_what_its_form_says.control(
    "one micro-batch more", lambda m, M_B: most_in_flight(2 * m, m, m) * M_B == schedule("gpipe").peak + M_B, refuted_at={"m": 1, "M_B": 1}
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "korthikanti2022activations"))
def interleaving_keeps_what_its_form_says(m: Integer, v: Integer, p: Integer, d: Integer, M_B: Real):
    """The form of interleaving's peak is one run of layers more than its first phase has forwards, and no more than a device runs in all.

    A device that begins with w forwards has that many in flight, by `schedules.the_most_in_flight_is_warm_up_plus_one`.
    """
    return minimum(schedule("interleaved").times(1) + 1, m * v) * M_B == schedule("interleaved").peak


interleaving_keeps_what_its_form_says.control(
    "what device 0 keeps",
    lambda m, v, M_B: minimum(schedule("interleaved").times(1) + 1, m * v) * M_B == schedule("interleaved").peak.where(d=0),
    refuted_at={"m": 4, "v": 2, "p": 2, "d": 1, "M_B": 1},
)


def kept_by_phases(name, s, m, M_B, M_W):
    """What a device keeps in step s that begins with the forwards of phase 1, and puts off the weight gradients of phase 2."""
    w, u = schedule(name).times(1), schedule(name).times(2)
    return kept_in(s, w, u, m, M_B, M_W), what_split_backwards_keep.at(s=s, w=w, u=u, m=m, M_B=M_B, M_W=M_W)


@theorem(expect=Proved(), cite="qi2024zerobubble", level=1)
def split_backwards_keep_what_their_forms_say(s: Natural, m: Degree, p: Integer, d: Natural, M_B: Real, M_W: NonNegative):
    """Devices of ZB-H1 and of ZB-H2 that begin with as many forwards as their first phase has, and put off as many weight gradients as
    their second, keep what the forms of their peaks say, if M_W <= M_B: in no step more, and as much after their last forward.
    """
    goals, lemmas = [], []
    for name in ("zb-h1", "zb-h2"):
        (kept, known), (last, _) = (kept_by_phases(name, step, m, M_B, M_W) for step in (s, m - 1))
        goals += [kept <= schedule(name).peak, last == schedule(name).peak]
        lemmas.append(known)
    return holds(goals, given=[d <= p - 1, *schedule("zb-h1").when("peak")], lemmas=lemmas)


split_backwards_keep_what_their_forms_say.control(
    "ZB-H1 keeps what 1F1B keeps",
    lambda m, p, d, M_B, M_W: holds(
        kept_by_phases("zb-h1", m - 1, m, M_B, M_W)[0] == schedule("1f1b").peak, given=[d <= p - 1, *schedule("zb-h1").when("peak")]
    ),
    refuted_at={"m": 2, "p": 2, "d": 1, "M_B": 2, "M_W": 1},
)


# Messages: what the forms count is what devices send by their programs.


@theorem(expect=Proved(), cite="narayanan2021megatron")
def forms_count_the_messages_that_programs_send(N: Degree, m: Real, b: Real, h: Real, s: Real, b_a: Real):
    """N times what a device sends by its program is the bytes of a message times the messages that the forms count, for GPipe, 1F1B,
    ZB-H1, ZB-H2 and ZB-V."""
    goals = []
    for name in ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v"):
        goals.append(N * derived(f"pp(schedule={name})").sent == schedule(name).messages.where(p=N) * b * h * s * b_a)
    return holds(goals)


forms_count_the_messages_that_programs_send.control(
    "ZB-V sends as many as 1F1B",
    lambda N, b, h, s, b_a: N * derived("pp(schedule=zb-v)").sent == schedule("1f1b").messages.where(p=N) * b * h * s * b_a,
    refuted_at={"N": 2, "m": 1, "b": 1, "h": 1, "s": 1, "b_a": 1},
)


@theorem(expect=Proved(), cite="narayanan2021megatron")
def interleaving_counts_the_messages_that_programs_send(N: Degree, m: Real, b: Real, h: Real, s: Real, b_a: Real):
    """With 2 or 3 runs of layers on a device, N times what a device sends by interleaving's program is the bytes of a message times the
    messages that the form counts."""
    goals = []
    for v in (2, 3):
        sent = N * derived(f"pp(schedule=interleaved, chunks={v})").sent
        goals.append(sent == schedule("interleaved").messages.where(p=N, v=v) * b * h * s * b_a)
    return holds(goals)


interleaving_counts_the_messages_that_programs_send.control(
    "v times as many as 1F1B",
    lambda N, b, h, s, b_a: (
        N * derived("pp(schedule=interleaved, chunks=2)").sent == 2 * schedule("1f1b").messages.where(p=N) * b * h * s * b_a
    ),
    refuted_at={"N": 2, "m": 1, "b": 1, "h": 1, "s": 1, "b_a": 1},
)
