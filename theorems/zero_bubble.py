"""Zero-bubble schedules of pipelines: backwards in two parts, of which one may run later.

B gives the gradient of the input, which the stage before waits for; W gives the gradient of the weights. T_F, T_B and T_W are the times of
a forward and of the two parts on one stage, p is the number of stages, and m of micro-batches. A bubble is what stage 0 takes for a step
beyond m * (T_F + T_B + T_W), in the unit of these times: it is no share.
"""

from placeproof.theory import (
    Degree,
    Integer,
    Natural,
    Positive,
    Proved,
    Real,
    Refuted,
    by_induction,
    chain,
    data,
    holds,
    maximum,
    operations,
    recursive,
    schedule,
    theorem,
)

# What follows from the critical path. Nothing else is assumed of a schedule than what this runs through.

held_back = data("held_back", 2)


@recursive(on="k", reals=("s", "t"))
def ran(k, part, s, t):
    """When k operations in a row have ended that begin at s or later; each may be held back further, by whatever else there is."""
    return s, maximum(ran(k - 1, part, s, t), held_back(k, part)) + t


@theorem(expect=Proved(), cite="qi2024zerobubble")
def operations_in_a_row_take_their_sum(k: Natural, part: Integer, s: Real, t: Real):
    """Operations that wait for each other end no earlier than one after the other without a pause."""
    return by_induction(ran(k, part, s, t) >= s + k * t, on=k)


operations_in_a_row_take_their_sum.control(
    "and no later", lambda k, part, s, t: ran(k, part, s, t) == s + k * t, refuted_at={"k": 1, "s": -20}
)


def row(k, part, s, t):
    """Operations in a row, with what is known about their end."""
    return ran(k, part, s, t), operations_in_a_row_take_their_sum.at(k=k, part=part, s=s, t=t)


def row_of_a_step(m, p, u, T_F, T_B, T_W):
    """When stage 0 ends its last W: F on the stages before the last, what the last one runs up to its last B, and B on the others."""
    first, a = row(p - 1, 0, 0, T_F)
    last, b = row(m, 1, first, T_F + T_B)
    weights, c = row(m - 1 - u, 2, last, T_W)
    back, d = row(p - 1, 3, weights, T_B)
    return back + T_W, [a, b, c, d]


@theorem(expect=Proved(), cite="qi2024zerobubble")
def the_bubble_of_split_backwards(m: Natural, p: Degree, u: Integer, T_F: Real, T_B: Real, T_W: Real):
    """Stage 0 waits at least (p - 1) * (T_F + T_B) - u * T_W, if the last stage puts off u weight gradients beyond the last one.

    Hypotheses about the schedule: up to its last B, the last stage runs all F, all B and m - 1 - u W, in whatever order; and stage 0 runs a
    W after its own last B. The critical path runs through p - 1 F down, these, and p - 1 B up. By what they keep, u = p - 1 in ZB-H1 and
    u = 2 * (p - 1) in ZB-H2; table 2 of the source gives these bounds as their bubbles. u = 0 is 1F1B that passes a gradient on before W.
    """
    ends, lemmas = row_of_a_step(m, p, u, T_F, T_B, T_W)
    return holds(ends - m * (T_F + T_B + T_W) >= (p - 1) * (T_F + T_B) - u * T_W, given=[m >= u + 1], lemmas=lemmas)


the_bubble_of_split_backwards.control(
    "no less than if each stage ran W before it passed the gradient on",
    lambda m, p, u, T_F, T_B, T_W: holds(
        row_of_a_step(m, p, u, T_F, T_B, T_W)[0] - m * (T_F + T_B + T_W) >= (p - 1) * (T_F + T_B + T_W), given=[m >= u + 1]
    ),
    refuted_at={"m": 2, "p": 2, "u": 1, "T_W": 100},
)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def the_first_gradient_needs_all_stages(p: Degree, T_F: Real, T_B: Real):
    """Stage 0 gets no gradient before p * T_F + (p - 1) * T_B from the beginning of the step.

    A device has nothing but forwards to run until its first gradient: of ZB-H2's stage 0, 2 * p - 1, which leave it idle for
    (p - 1) * (T_B - T_F).
    """
    down, a = row(p, 0, 0, T_F)
    up, b = row(p - 1, 3, down, T_B)
    return holds(up >= p * T_F + (p - 1) * T_B, lemmas=[a, b])


the_first_gradient_needs_all_stages.control(
    "it comes when the last stage has it",
    lambda p, T_F, T_B: row(p - 1, 3, row(p, 0, 0, T_F)[0], T_B)[0] <= p * T_F + T_B,
    refuted_at={"p": 3, "T_B": 100, "T_F": 1},
)


def published_bubble(name, p, T_F, T_B, T_W):
    """What table 2 of the source prints, as the product's file of a schedule has it."""
    what = "idle" if name == "1f1b" else "wait"
    return schedule(name).printed(what).where(p=p, T_F=T_F, T_B=T_B, T_W=T_W)


def kept(p, i, k, M_B, M_W):
    """Activations on stage i, section 2.3 of the source: k = 1 for ZB-H1, 2 for ZB-H2. M_B is kept from F to B, and M_W from B to W."""
    return (1 + k * (p - 1 - i)) * M_B + k * i * M_W


@theorem(
    expect=Refuted(
        witness={"p": 2, "T_F": 1, "T_B": 2, "T_W": 2}, because="no W can run before the first gradient, so that long ones fill no bubble"
    ),
    cite="qi2024zerobubble",
)
def the_published_bubble_of_zb_h2_holds_for_all_times(p: Degree, T_F: Real, T_B: Real, T_W: Real):
    """The bubble (p - 1) * (T_F + T_B - 2 * T_W) of ZB-H2 is no less than what stage 0 waits for its first gradient, whatever the times.

    The source gives it in section 2.3 for times that are not equal, and has those of a transformer, where T_W < T_F < T_B. That stage 0
    waits for (p - 1) * (T_B - T_F) follows from its first gradient, above.
    """
    return (p - 1) * (T_B - T_F) <= published_bubble("zb-h2", p, T_F, T_B, T_W)


the_published_bubble_of_zb_h2_holds_for_all_times.control(
    "if T_W <= T_F, as in transformers",
    lambda p, T_F, T_B, T_W: holds((p - 1) * (T_B - T_F) <= published_bubble("zb-h2", p, T_F, T_B, T_W), given=[T_W <= T_F]),
    proved=True,
)


# The times of a transformer layer, in operations: those of its blocks' programs. Table 1 of the source has them in units of s * b * h.


def layer(h, s):
    """F, B and W of a layer of width h, with a feed-forward block of 4 times its width, for a sequence of s tokens."""
    sizes = {"batch": 1, "tokens": s, "keys": s, "hidden": h, "heads": 1, "width": h, "ffn": 4 * h}
    blocks = [operations(block) for block in ("attention_gpt", "mlp_gpt")]
    each = ([getattr(block, part).where(**sizes) for block in blocks] for part in ("forward", "inputs", "weights"))
    return tuple(first + second for first, second in each)


@theorem(
    expect=Refuted(witness={"p": 2, "h": 1, "s": 1}, because="attention has no weights, so that F and B take longer than W"),
    cite="qi2024zerobubble",
)
def zb_h2_has_no_bubble(p: Degree, h: Positive, s: Positive):
    """ZB-H2 has no bubble in a transformer: (p - 1) * (T_F + T_B - 2 * T_W) is 0."""
    return published_bubble("zb-h2", p, *layer(h, s)) == 0


zb_h2_has_no_bubble.control(
    "it is 12 * s^2 * h for each further stage, however short the sequence",
    lambda p, h, s: published_bubble("zb-h2", p, *layer(h, s)) == (p - 1) * 12 * s**2 * h,
    proved=True,
)


@theorem(
    expect=Refuted(witness={"p": 2, "h": 1, "s": 1}, because="it is a third if T_F + T_B = 2 * T_W, and attention makes it more"),
    cite="qi2024zerobubble",
)
def zb_h1_leaves_a_third_of_the_bubble(p: Degree, h: Positive, s: Positive):
    """In a transformer, ZB-H1's bubble is a third of the (p - 1) * (T_F + T_B + T_W) of 1F1B."""
    return 3 * published_bubble("zb-h1", p, *layer(h, s)) == published_bubble("1f1b", p, *layer(h, s))


zb_h1_leaves_a_third_of_the_bubble.control(
    "more than a third, and less than all of it, of p >= 2",
    lambda p, h, s: holds(
        chain("<", published_bubble("1f1b", p, *layer(h, s)) / 3, *(published_bubble(one, p, *layer(h, s)) for one in ("zb-h1", "1f1b"))),
        given=[p >= 2],
    ),
    proved=True,
)


@theorem(expect=Proved(), cite="qi2024zerobubble")
def stage_0_keeps_the_most(p: Integer, d: Natural, M_B: Real, M_W: Real):
    """No device is printed to keep more than device 0 does, if W needs no more than B: p * M_B in ZB-H1, (2 * p - 1) * M_B in ZB-H2.

    Section 2.3 and table 2 of the source. In a transformer layer M_W is 32 * s * b * h, and M_B at least 34 * s * b * h.
    """
    one, two = (schedule(name).printed("peak") for name in ("zb-h1", "zb-h2"))
    goals = [one <= one.where(d=0), two <= two.where(d=0), one.where(d=0) == p * M_B, two.where(d=0) == (2 * p - 1) * M_B]
    return holds(goals, given=[M_W <= M_B])


stage_0_keeps_the_most.control(
    "whatever W needs",
    lambda: schedule("zb-h1").printed("peak") <= schedule("zb-h1").printed("peak").where(d=0),
    refuted_at={"p": 2, "d": 1, "M_W": 2, "M_B": 1},
)


@theorem(
    expect=Refuted(witness={"p": 2, "m": 2, "d": 1, "M_B": 2, "M_W": 1}, because="device d puts off W of d micro-batches"),
    cite="qi2024zerobubble",
)
def zb_h1_keeps_what_1f1b_keeps(p: Integer, m: Integer, d: Natural, M_B: Positive, M_W: Positive):
    """ZB-H1 keeps on every device what 1F1B keeps there, by the product's forms, if W needs no more than B."""
    return holds(schedule("zb-h1").peak == schedule("1f1b").peak, given=[d <= p - 1, m >= p, *schedule("zb-h1").when("peak")])


zb_h1_keeps_what_1f1b_keeps.control(
    "d * M_W more",
    lambda p, m, d, M_W: holds(
        schedule("zb-h1").peak == schedule("1f1b").peak + d * M_W,
        given=[d <= p - 1, m >= p, *schedule("zb-h1").when("peak")],
    ),
    proved=True,
)
