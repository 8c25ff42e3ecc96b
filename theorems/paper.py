"""Placement Semantics: its claims, settled.

The claims are those of Mehta, arXiv 2601.02311, as its abstract words them. What a mode costs is read from the table of modes. What a
strategy places is the tuple that the paper's idea gives it, and is typed in: so the catalogue's own placements are held against it. All
placements that are accepted, and not those of the catalogue alone, are asked in the topic ``placement``; the two conditions in
``correctness``.
"""

from fractions import Fraction

from placeproof.collectives import COLLECTIVES
from placeproof.core.modes import MODES, Share
from placeproof.core.states import GRADIENTS, MODEL_STATES, PARAMETERS
from placeproof.core.symbols import symbol
from placeproof.theory import (
    Degree,
    Integer,
    NonNegative,
    Positive,
    Proved,
    Real,
    Refuted,
    derived,
    holds,
    sign,
    theorem,
)

#: Where parameters, optimizer state and gradients lie, on the axis of each strategy.
PLACED = {
    "ddp": ("R", "R", "R"),
    "zero1": ("R", "S", "R"),
    "zero2": ("R", "S", "S"),
    "zero3": ("S*", "S", "S"),
    "tp": ("S", "S", "S"),
    "pp": ("S", "S", "S"),
    "zero_offload": ("R", "O", "O"),
    "zero_infinity": ("O", "O", "O"),
}
TWO_AXES = ("zero1 * tp", "zero2 * tp", "zero3 * tp", "zero_offload * tp", "zero_infinity * tp")
ON_BATCH = ("ddp", "zero1", "zero2", "zero3", "zero_infinity")


def of_modes(subject, on_host=False):
    """Bytes of model states by the table of modes: each state's bytes, times what the mode on each axis leaves of them."""
    factors, total = subject.split(" * "), 0
    for number, state in enumerate(MODEL_STATES):
        modes = [(MODES[PLACED[factor][number]], factor) for factor in factors]
        size = symbol("P") * symbol(state.width)
        for mode, factor in modes:
            share = mode.host if on_host and mode.fetches else mode.device
            n = symbol("N" if len(factors) == 1 else "N_tp" if factor == "tp" else "N_dp")
            size = {Share.WHOLE: size, Share.PART: size / n, Share.NOTHING: 0}[share]
        total += size if not on_host or any(mode.fetches for mode, _ in modes) else 0
    return total


def by_modes(subject, n="N", among=1):
    """Bytes sent over an axis of samples by the table of modes: a gather for each use, and what turns partial sums into what is placed.

    ``n`` names the axis's degree; the parameters are spread ``among`` other devices.
    """
    count = symbol("P") / among
    parameters, optimizer, _ = (MODES[mode] for mode in PLACED[subject])
    uses = 2 if parameters.gathers else 1 if optimizer.split else 0  # in forward and in backward, or once, after the update
    reduction = COLLECTIVES["reduce_scatter" if optimizer.split else "all_reduce"]
    gathered = uses * COLLECTIVES["all_gather"].sent(symbol(n), count * symbol(PARAMETERS.width))
    return gathered + reduction.sent(symbol(n), count * symbol(GRADIENTS.width))


# Memory and communication follow from the placement.


@theorem(expect=Proved(), cite="mehta2026placement")
def model_states_follow_from_placement(P: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """For eight catalogue strategies with one axis, tensor and pipeline parallelism among them, the bytes of model states that the step
    program holds on a device are the sum, over the states, of what the state's mode leaves there: all of it, one N-th, or nothing.

    The abstract's first claim. The left sides are derived from programs; the right sides are the paper's tuples and the table of modes.
    """
    return [derived(s).memory("model_states") == of_modes(s) for s in PLACED]


model_states_follow_from_placement.control(
    "the placement of stage 1 gives the memory of stage 2",
    lambda: derived("zero2").memory("model_states") == of_modes("zero1"),
    refuted_at={"N": 2},
)


@theorem(expect=Proved(), cite="mehta2026placement")
def divisors_multiply_of_orthogonal_axes(P: Real, N_dp: Degree, N_tp: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """With a batch axis and a tensor axis, what is left of each state is the product of what its modes on the two axes leave.

    The composition rule for memory. Norms are taken to have no parameters.
    """
    return [derived(s).memory("model_states") == of_modes(s) for s in TWO_AXES]


divisors_multiply_of_orthogonal_axes.control(
    "every state is divided by the number of devices",
    lambda P, N_dp, N_tp, b_theta, b_g, b_omega: (
        derived("zero2 * tp").memory("model_states") == P * (b_theta + b_g + b_omega) / (N_dp * N_tp)
    ),
    refuted_at={"N_dp": 2},
)


@theorem(expect=Proved(), cite="mehta2026placement")
def host_memory_divides_by_every_axis(P: Real, N_dp: Degree, N_tp: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """With a batch axis and a tensor axis, each device's share of host memory is what the modes of offloaded states leave on both axes.

    The composition rule for memory, off the device. Of one axis it is ``placement.host_memory_follows_from_every_placement``.
    """
    return [derived(s).memory("host") == of_modes(s, on_host=True) for s in ("zero_offload * tp", "zero_infinity * tp")]


host_memory_divides_by_every_axis.control(
    "ZeRO-Offload has a copy of the parameters on the host, too",
    lambda: derived("zero_offload * tp").memory("host") == of_modes("zero_infinity * tp", on_host=True),
    refuted_at={"P": 1, "N_dp": 2, "N_tp": 2, "b_theta": 2, "b_g": 2, "b_omega": 2},
)


@theorem(expect=Proved(), cite="mehta2026placement")
def traffic_follows_from_placement(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """On a batch axis, the bytes that the step programs of five catalogue strategies send are a gather for each use of parameters that lie
    in parts, and the collective that turns partial gradients into the optimizer's layout.

    The abstract's second claim, for one micro-batch and parameters dropped after each use, with ring collectives.
    """
    return [derived(s).sent == by_modes(s) for s in ON_BATCH]


traffic_follows_from_placement.control(
    "stage 3 sends what the placement of stage 2 gives", lambda: derived("zero3").sent == by_modes("zero2"), refuted_at={"N": 2}
)


@theorem(expect=Proved(), cite="mehta2026placement")
def traffic_splits_by_axis_of_orthogonal_axes(P: Real, N_dp: Degree, N_tp: Degree, b_theta: Real, b_g: Real):
    """With a batch axis and a tensor axis, what is sent over the batch axis is what the batch axis's strategy sends alone, of one device's
    part of the matrices.

    The composition rule for communication. Norms are taken to have no parameters.
    """
    return [derived(f"{s} * tp").over("dp") == by_modes(s, n="N_dp", among=symbol("N_tp")) for s in ON_BATCH]


traffic_splits_by_axis_of_orthogonal_axes.control(
    "it is what that strategy sends alone, of the whole model",
    lambda: derived("zero1 * tp").over("dp") == by_modes("zero1", n="N_dp"),
    refuted_at={"N_dp": 2, "N_tp": 2},
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N": 2, "b_theta": 2, "b_g": 2},
        because="parameters that are kept from forward to backward are gathered once, and the placement does not say whether they are",
    ),
    cite=("mehta2026placement", "zhao2023fsdp"),
)
def traffic_follows_from_placement_alone(P: Positive, N: Degree, b_theta: Positive, b_g: Positive):
    """Two strategies with the same placement send the same, as the abstract's claim says if nothing is added.

    FSDP with and without resharding after forward place every state alike: a second gather, in backward, is a matter of the schedule.
    """
    return derived("fsdp").sent == derived("fsdp(reshard_after_forward=false)").sent


traffic_follows_from_placement_alone.control(
    "the difference is one gather of the parameters",
    lambda P, N, b_theta: (
        derived("fsdp").sent - derived("fsdp(reshard_after_forward=false)").sent == COLLECTIVES["all_gather"].sent(N, P * b_theta)
    ),
    proved=True,
)


@theorem(
    expect=Refuted(
        witness={"P": 10, "N": 2, "U": 1, "A": 1, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2},
        because="what is gathered at once is a unit, and the placement does not say how large a unit is",
    ),
    cite="mehta2026placement",
)
def peak_follows_from_placement_alone(
    P: Positive, N: Degree, U: Positive, A: Positive, b_theta: Positive, b_g: Positive, b_omega: NonNegative, b_a: Positive
):
    """Two strategies with the same placement have the same peak."""
    return derived("zero3").memory("peak") == derived("zero3(unit=model)").memory("peak")


peak_follows_from_placement_alone.control(
    "the difference is that between the model and a unit",
    lambda P, U, b_theta: derived("zero3(unit=model)").memory("peak") - derived("zero3").memory("peak") == (P - U) * b_theta,
    proved=True,
)

# Eight times less memory.


@theorem(
    expect=Refuted(
        witness={"P": 1, "N": 4, "b_theta": 2, "b_g": 2, "b_omega": 12}, because="the factor is the number of devices, whatever the widths"
    ),
    cite=("mehta2026placement", "rajbhandari2020zero"),
)
def zero3_takes_an_eighth_of_data_parallelism(P: Positive, N: Degree, b_theta: Positive, b_g: Positive, b_omega: NonNegative):
    """ZeRO stage 3 holds an eighth of the model states of data parallelism on any number of devices, as the abstract words it.

    In the ZeRO paper the factor 8 is the limit of stage 2 for many devices; that of stage 3 is their number.
    """
    return derived("ddp").memory("model_states") / derived("zero3").memory("model_states") == 8


zero3_takes_an_eighth_of_data_parallelism.control(
    "the factor is the number of devices",
    lambda N: N * derived("zero3").memory("model_states") == derived("ddp").memory("model_states"),
    proved=True,
)


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def the_factor_is_eight_at_eight_devices_alone(P: Positive, N: Degree, b_theta: Positive, b_g: Positive, b_omega: NonNegative):
    """ZeRO stage 3 holds more than an eighth of the model states of data parallelism on fewer than eight devices, exactly an eighth on
    eight, and less on more.

    The unit that is gathered is neglected. So the abstract's figure is that of one size of machine.
    """
    return sign(derived("ddp").memory("model_states") / derived("zero3").memory("model_states") - 8) == sign(N - 8)


the_factor_is_eight_at_eight_devices_alone.control(
    "so does stage 2",
    lambda N: sign(derived("ddp").memory("model_states") / derived("zero2").memory("model_states") - 8) == sign(N - 8),
    refuted_at={"N": 8},
)


@theorem(expect=Proved(), cite="mehta2026placement")
def the_factor_is_less_with_the_unit(P: Real, U: Positive, N: Degree, b_theta: Positive, b_g: Real, b_omega: Real):
    """With the gathered unit counted, ZeRO stage 3 saves strictly less than N-fold: N times its model states and unit exceed the model
    states of data parallelism."""
    ours = derived("zero3")
    return N * (ours.memory("model_states") + ours.memory("transient")) > derived("ddp").memory("model_states")


the_factor_is_less_with_the_unit.control(
    "N-fold all the same",
    lambda N: N * (derived("zero3").memory("model_states") + derived("zero3").memory("transient")) == derived("ddp").memory("model_states"),
    refuted_at={"N": 8},
)

# At one and a half times the communication.


@theorem(expect=Proved(), cite=("mehta2026placement", "rajbhandari2020zero"))
def traffic_is_one_and_a_half_times_of_equal_widths(P: Positive, N: Integer, b_theta: Real, b_g: Positive):
    """With gradients as wide as parameters, ZeRO stage 3 sends 3/2 of what data parallelism sends, exactly, on any two devices or more."""
    return holds(derived("zero3").sent / derived("ddp").sent == Fraction(3, 2), given=[N >= 2, b_theta == b_g])


traffic_is_one_and_a_half_times_of_equal_widths.control(
    "so does stage 2",
    lambda N, b_theta, b_g: holds(2 * derived("zero2").sent == 3 * derived("ddp").sent, given=[N >= 2, b_theta == b_g]),
    refuted_at={"N": 2, "b_theta": 2, "b_g": 2},
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N": 2, "b_theta": 2, "b_g": 4}, because="with gradients twice as wide as parameters, both send the same"
    ),
    cite="mehta2026placement",
)
def traffic_is_one_and_a_half_times(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """ZeRO stage 3 sends 3/2 of what data parallelism sends, whatever the widths."""
    return 2 * derived("zero3").sent == 3 * derived("ddp").sent


traffic_is_one_and_a_half_times.control(
    "the ratio is 1/2 + b_theta/b_g",
    lambda b_theta, b_g: 2 * b_g * derived("zero3").sent == (b_g + 2 * b_theta) * derived("ddp").sent,
    proved=True,
)

# Instances.

#: How many devices a sub-group has that keeps a copy after forward.
KEPT_AMONG = (2, 4, 8)


@theorem(expect=Proved(), cite=("mehta2026placement", "zhao2023fsdp"))
def fsdp_kept_after_forward_trades_a_gather_for_the_model(
    P: Real, U: Real, A: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real
):
    """FSDP that keeps parameters from forward to backward has the peak of ZeRO stage 3 with the whole model as its unit, and sends what
    stage 2 sends: a gather less than stage 3. Against stage 2 it holds one more shard of the parameters.

    Stage 3 and both forms of FSDP have one placement, ``(S*, S, S, R)``. So FSDP is stage 3 as long as its option is left alone; with it,
    the placement says neither the peak nor the traffic. That both are one program by default is
    ``placement.strategies_are_the_papers_tuples``.
    """
    kept, stage_2, stage_3 = derived("fsdp(reshard_after_forward=false)"), derived("zero2"), derived("zero3")
    return [
        kept.memory("peak") == derived("zero3(unit=model)").memory("peak"),
        kept.sent == stage_2.sent,
        stage_3.sent - kept.sent == COLLECTIVES["all_gather"].sent(N, P * b_theta),
        kept.memory("peak") - stage_2.memory("peak") == P * b_theta / N,
    ]


fsdp_kept_after_forward_trades_a_gather_for_the_model.control(
    "it has the peak of stage 2", lambda: derived("fsdp(reshard_after_forward=false)").memory("peak") == derived("zero2").memory("peak"),
    refuted_at={"P": 1, "N": 2, "b_theta": 2, "U": 0, "A": 0, "b_g": 0, "b_omega": 0, "b_a": 0},
)  # fmt: skip


@theorem(expect=Proved(), cite=("mehta2026placement", "zhao2023fsdp"))
def fsdp_kept_among_k_devices_gathers_over_k(P: Real, U: Real, A: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real):
    """FSDP that keeps a shard over sub-groups of 2, 4 or 8 devices after forward holds a k-th of the parameters more at its peak than stage
    3, and its second gather is one over k devices.

    A second dial that no placement of four states on one axis shows.
    """
    relations = []
    for k in KEPT_AMONG:
        ours, theirs, gather = derived(f"fsdp(reshard_after_forward={k})"), derived("zero3"), COLLECTIVES["all_gather"]
        relations.append(ours.memory("peak") - theirs.memory("peak") == P * b_theta / k)
        relations.append(theirs.sent - ours.sent == gather.sent(N, P * b_theta) - gather.sent(k, P * b_theta))
    return relations


fsdp_kept_among_k_devices_gathers_over_k.control(
    "it always sends less than stage 3",
    lambda: derived("fsdp(reshard_after_forward=8)").sent < derived("zero3").sent,
    refuted_at={"P": 1, "N": 8, "U": 0, "A": 0, "b_theta": 2, "b_g": 2, "b_omega": 0, "b_a": 0},
)
