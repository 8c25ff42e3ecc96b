"""Traffic of data parallelism: what its stages, shards, micro-batches and widths send.

All quantities are derived from step programs: bytes that one device sends in a step, by ring algorithms. A step has one micro-batch unless
m is named. N is the number of devices.
"""

from placeproof.theory import (
    Degree,
    Integer,
    NonNegative,
    Positive,
    Proved,
    Real,
    Refuted,
    chain,
    collective,
    derived,
    holds,
    theorem,
    trains,
    without_call,
)

KEPT = "fsdp(reshard_after_forward=false)"


def sent(subject):
    """Bytes that a device sends in a step."""
    return derived(subject).sent


def gather(n, size):
    """Bytes that a device sends in an all-gather of some bytes over n devices."""
    return collective("all_gather").sent(n, size)


# The stages of ZeRO.


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def sharding_gradients_sends_nothing_more(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Stage 2 sends what stage 1 sends, whatever the widths."""
    return sent("zero2") == sent("zero1")


sharding_gradients_sends_nothing_more.control(
    "so does sharding parameters", lambda: sent("zero3") == sent("zero1"), refuted_at={"P": 1, "N": 2, "b_theta": 2}
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "li2020ddp"))
def stage_1_saves_the_gather_of_what_gradients_are_wider(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Stage 1 sends less than data parallelism by an all-gather of P (b_g - b_theta) bytes.

    An all-reduce moves gradients twice; stage 1 moves them once, and then parameters. So both send the same with equal widths, which
    section 7.2.1 has, stage 1 sends less with gradients in full precision, and more with gradients narrower than parameters.
    """
    return sent("ddp") - sent("zero1") == gather(N, P * (b_g - b_theta))


stage_1_saves_the_gather_of_what_gradients_are_wider.control(
    "it sends as much whatever the widths", lambda: sent("zero1") == sent("ddp"), refuted_at={"P": 1, "N": 2, "b_theta": 2, "b_g": 4}
).control("stage 2 never sends more", lambda: sent("zero2") <= sent("ddp"), refuted_at={"P": 1, "N": 2, "b_theta": 4, "b_g": 2})


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def stage_3_sends_one_gather_more_than_stage_2(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Stage 3 sends one all-gather of the parameters more than stage 2, whatever the widths.

    It gathers before forward and before backward. The gather of stage 2, after the update, is the first of these.
    """
    return sent("zero3") - sent("zero2") == gather(N, P * b_theta)


stage_3_sends_one_gather_more_than_stage_2.control(
    "it sends two more", lambda P, N, b_theta: sent("zero3") - sent("zero2") == 2 * gather(N, P * b_theta), refuted_at={"N": 2}
)

ALL_REDUCED = """
program("a sharded optimizer that reduces gradients to all")
mesh(dp)
place(parameters, dp="R")
place(optimizer, dp="S")
place(gradients, dp="R")
gradients = backward(parameters)
gradients = part(scale(all_reduce(gradients, dp), 1 / dp), dp)
parameters, optimizer = update(parameters, optimizer, gradients)
parameters = all_gather(parameters, dp)
"""


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def reducing_to_all_before_a_gather_sends_half_more(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """With equal widths, a sharded optimizer whose gradients are all-reduced sends 3/2 of what stage 1 sends, as much as stage 3.

    Each device needs the sum of its own part alone. The step is right all the same, which is the next theorem.
    """
    return holds(
        [2 * sent(ALL_REDUCED) == 3 * sent("zero1"), sent(ALL_REDUCED) == sent("zero3")],
        given=[b_g == b_theta],
    )


reducing_to_all_before_a_gather_sends_half_more.control(
    "it sends as much as data parallelism, since the gather repeats half of the all-reduce",
    lambda b_theta, b_g: holds(sent(ALL_REDUCED) == sent("ddp"), given=[b_g == b_theta]),
    refuted_at={"P": 1, "N": 2, "b_theta": 2, "b_g": 2},
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def reducing_to_all_before_a_gather_trains():
    """A sharded optimizer whose gradients are all-reduced trains what one device trains."""
    return trains(ALL_REDUCED)


reducing_to_all_before_a_gather_trains.control(
    "without the gather", lambda: trains(without_call(ALL_REDUCED, "all_gather")), breaks="state consistency"
)

# The number of devices.


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "patarasuk2009"))
def traffic_grows_to_a_limit(P: Positive, N: Degree, b_theta: Positive, b_g: Positive):
    """With each device more, a device sends more under data parallelism and stage 3, and lacks an N-th of 2 P b_g and P (2 b_theta + b_g)
    bytes, which are limits that it comes as near to as one likes.

    The papers' 2 and 3 bytes for each byte of the model are these limits.
    """
    limits = (("ddp", 2 * P * b_g), ("zero3", P * (2 * b_theta + b_g)))
    return [goal for s, limit in limits for goal in (sent(s) < sent(s).where(N=N + 1), limit - sent(s) == limit / N)]


traffic_grows_to_a_limit.control(
    "each device more adds as much", lambda N: sent("ddp").where(N=N + 1) - sent("ddp") == sent("ddp").where(N=2), refuted_at={"N": 2}
)


@theorem(
    expect=Refuted(witness={"P": 1, "N": 2, "b_g": 2}, because="the parts that travel become smaller as there are more of them"),
    cite="patarasuk2009",
)
def twice_the_devices_send_twice_as_much(P: Real, N: Integer, b_g: Real):
    """From two devices on, what a device sends under data parallelism grows in proportion to their number: twice as many send twice as
    much each."""
    return holds(sent("ddp").where(N=2 * N) == 2 * sent("ddp"), given=[N >= 2])


twice_the_devices_send_twice_as_much.control(
    "it sends P b_g / N bytes more",
    lambda P, N, b_g: holds(sent("ddp").where(N=2 * N) - sent("ddp") == P * b_g / N, given=[N >= 2]),
    proved=True,
)

# Micro-batches.


@theorem(expect=Proved(), cite=("li2020ddp", "rajbhandari2020zero"))
def accumulation_is_free_of_whole_gradients(P: Real, N: Degree, m: Integer, b_theta: Real, b_g: Real):
    """Data parallelism and stage 1 send as much for m micro-batches as for one."""
    return [sent(f"{s} * accumulate") == sent(s) for s in ("ddp", "zero1")]


accumulation_is_free_of_whole_gradients.control(
    "so does stage 2", lambda: sent("zero2 * accumulate") == sent("zero2"), refuted_at={"P": 1, "N": 2, "m": 2, "b_g": 2}
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N": 2, "m": 2, "b_theta": 2, "b_g": 2}, because="parameters are gathered and gradients scattered m times"
    ),
    cite="rajbhandari2020zero",
)
def stage_3_costs_half_more_whatever_the_schedule(P: Positive, N: Degree, m: Degree, b_theta: Positive, b_g: Positive):
    """With equal widths and m micro-batches, stage 3 sends at most 3/2 of what data parallelism sends."""
    return holds(2 * sent("zero3 * accumulate") <= 3 * sent("ddp * accumulate"), given=[b_g == b_theta])


stage_3_costs_half_more_whatever_the_schedule.control(
    "it sends 3 m/2 of it",
    lambda m, b_theta, b_g: holds(2 * sent("zero3 * accumulate") == 3 * m * sent("ddp * accumulate"), given=[b_g == b_theta]),
    proved=True,
).control("so each micro-batch costs what a step costs", lambda m: sent("zero3 * accumulate") == m * sent("zero3"), proved=True)

# Parameters that stay.


@theorem(
    expect=Refuted(witness={"P": 1, "N": 2, "b_theta": 2, "b_g": 2}, because="parameters that stay until backward are gathered once"),
    cite=("zhao2023fsdp", "grattafiori2024llama"),
)
def fsdp_costs_half_more(P: Positive, N: Degree, b_theta: Positive, b_g: Positive):
    """With equal widths, FSDP sends 3/2 of what data parallelism sends also if it keeps parameters from forward to backward."""
    return holds(2 * sent(KEPT) == 3 * sent("ddp"), given=[b_g == b_theta])


fsdp_costs_half_more.control("it sends what stage 2 sends, whatever the widths", lambda: sent(KEPT) == sent("zero2"), proved=True).control(
    "with three micro-batches it sends two gathers more than stage 2",
    lambda P, N, b_theta: (
        sent(f"{KEPT} * accumulate(microbatches=3)") == sent("zero2 * accumulate(microbatches=3)") + 2 * gather(N, P * b_theta)
    ),
    proved=True,
)


@theorem(expect=Proved(), cite="zhao2023fsdp")
def resharding_to_a_node_lies_between(P: NonNegative, N: Integer, N_node: Degree, b_theta: NonNegative, b_g: Real):
    """FSDP that reshards to sub-groups after forward sends at least what it sends if parameters stay whole, and at most what it sends if
    they are dropped.

    What it sends more than the first it sends within the sub-groups.
    """
    return holds(chain("<=", sent(KEPT), sent("fsdp(reshard_after_forward=N_node)"), sent("fsdp")), given=[N_node <= N])


resharding_to_a_node_lies_between.control(
    "it sends as little as if they stay",
    lambda: sent("fsdp(reshard_after_forward=N_node)") == sent(KEPT),
    refuted_at={"P": 1, "N": 16, "N_node": 8, "b_theta": 2},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp"))
def traffic_does_not_depend_on_the_unit(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Stage 3 sends the same whether it gathers a unit at a time, the next one ahead, or the whole model.

    These change the peak, and how often and when something is sent.
    """
    return [sent(f"zero3({option})") == sent("zero3") for option in ("unit=model", "unit=1000000", "prefetch=true", "bucket=unit")]


traffic_does_not_depend_on_the_unit.control(
    "nor on what becomes of a unit after forward", lambda: sent(KEPT) == sent("zero3"), refuted_at={"P": 1, "N": 2, "b_theta": 2}
)
