"""Memory of compositions: what each axis divides, and what schedules and offload change.

All quantities are derived from step programs. N is the degree of the only axis, and with several axes N_dp, N_tp, ... are theirs.
"""

from placeproof.theory import Degree, Integer, Positive, Proved, Real, Refuted, derived, holds, theorem

from .memory import STAGES, peak, states, transient


def activations(subject):
    """Bytes of kept activations on a device."""
    return derived(subject).memory("activations")


# Axes that divide, and axes that do not.


@theorem(expect=Proved(), cite="zhao2023fsdp")
def hybrid_sharding_needs_what_one_replica_needs(
    P: Real, U: Real, A: Real, N_rep: Integer, N_shard: Degree, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real
):
    """The peak of hybrid sharding is that of FSDP on the devices of one replica."""
    return peak("hsdp") == peak("fsdp").where(N=N_shard)


hybrid_sharding_needs_what_one_replica_needs.control(
    "its states are divided by all devices",
    lambda N_rep, N_shard: peak("hsdp") == peak("fsdp").where(N=N_rep * N_shard),
    refuted_at={"N_rep": 2},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "narayanan2021megatron"))
def each_axis_divides_what_it_places_in_parts_of_stage_1(
    P: Real, N_dp: Degree, N_tp: Degree, N_pp: Degree, b_theta: Real, b_g: Real, b_omega: Real
):
    """With ZeRO stage 1, tensor and pipeline parallelism, optimizer state is divided by the product of the three degrees, and parameters
    and gradients by that of the last two.

    Norms are taken to have no parameters.
    """
    found = derived("zero1 * tp * pp")
    return [
        found.memory("optimizer") == P * b_omega / (N_dp * N_tp * N_pp),
        found.memory("parameters") == P * b_theta / (N_tp * N_pp),
        found.memory("gradients") == P * b_g / (N_tp * N_pp),
    ]


each_axis_divides_what_it_places_in_parts_of_stage_1.control(
    "gradients are divided by all three degrees, as under stage 2",
    lambda: derived("zero1 * tp * pp").memory("gradients") == derived("zero2 * tp * pp").memory("gradients"),
    refuted_at={"N_dp": 2},
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N_dp": 2, "N_tp": 2, "b_omega": 12},
        because="stage 1 divides it by all devices already, and a part is divided once",
    ),
    cite=("rajbhandari2020zero", "narayanan2021megatron"),
)
def tensor_parallelism_shrinks_the_state_of_stage_1(P: Positive, N_dp: Degree, N_tp: Degree, b_omega: Positive):
    """With ZeRO stage 1 on a fixed number of devices, tensor parallelism of degree t divides the optimizer state on a device by t."""
    composed, alone = derived("zero1 * tp"), derived("zero1")
    return N_tp * composed.memory("optimizer") == alone.memory("optimizer").where(N=N_dp * N_tp)


tensor_parallelism_shrinks_the_state_of_stage_1.control(
    "it leaves it as it is",
    lambda N_dp, N_tp: derived("zero1 * tp").memory("optimizer") == derived("zero1").memory("optimizer").where(N=N_dp * N_tp),
    proved=True,
)


@theorem(expect=Proved(), cite="korthikanti2022activations")
def sequence_parallelism_divides_what_tensor_parallelism_copies(A: Real, A_seq: Real, N: Degree, b_a: Real):
    """On the axis of tensor parallelism, sequence parallelism divides what lies outside of the parallel blocks, and saves nothing inside.

    Norms, dropout and the residual stream are outside: ten of the 34 s b h bytes that section 4 counts for a layer, attention scores apart.
    """
    return activations("tp") - activations("tp * sp") == A_seq * b_a * (N - 1) / N


sequence_parallelism_divides_what_tensor_parallelism_copies.control(
    "it divides all activations, which tensor parallelism copies",
    lambda A, N, b_a: activations("tp") - activations("tp * sp") == A * b_a * (N - 1) / N,
    refuted_at={"A": 34, "A_seq": 10, "N": 8, "b_a": 2},
).control(
    "tensor parallelism divides them without it",
    lambda N: N * activations("tp") == activations("ddp"),
    refuted_at={"A_seq": 10, "N": 8, "b_a": 2},
)


@theorem(
    expect=Refuted(witness={"A": 4, "m": 4, "N": 2, "b_a": 2}, because="a stage has as many micro-batches in flight as there are stages"),
    cite="narayanan2021megatron",
)
def twice_the_stages_halve_activations(A: Positive, m: Degree, N: Degree, b_a: Positive):
    """In a pipeline with the 1F1B schedule, and micro-batches for all stages, twice the stages halve the activations on the first stage."""
    return holds(2 * activations("pp").where(N=2 * N) == activations("pp"), given=[m >= 2 * N])


twice_the_stages_halve_activations.control(
    "they leave them as they are",
    lambda m, N: holds(activations("pp").where(N=2 * N) == activations("pp"), given=[m >= 2 * N]),
    proved=True,
).control(
    "they halve them with the GPipe schedule, which keeps all micro-batches",
    lambda N: 2 * activations("pp(schedule=gpipe)").where(N=2 * N) == activations("pp(schedule=gpipe)"),
    proved=True,
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "narayanan2021megatron"))
def tensor_parallelism_alone_divides_the_unit(P: Real, U: Real, N_tp: Degree, N_pp: Integer, b_theta: Real):
    """What stage 3 gathers at a time is divided by the degree of tensor parallelism, and not by that of pipeline parallelism.

    A stage has fewer units, and units of the same size.
    """
    return [transient("zero3 * tp") == transient("zero3") / N_tp, transient("zero3 * pp") == transient("zero3")]


tensor_parallelism_alone_divides_the_unit.control(
    "where the unit is the whole model, a stage does not divide it either",
    lambda: transient("zero3(unit=model) * pp") == transient("zero3(unit=model)"),
    refuted_at={"P": 8, "N_pp": 2, "b_theta": 2},
)

# Time for memory, and host for device.


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def accumulation_divides_activations_alone(P: Real, A: Real, N: Degree, m: Degree, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real):
    """Under every stage of ZeRO, m micro-batches divide the activations of a local batch by m, and leave each model state as it is."""
    apart = [activations(f"{s} * accumulate") == activations(s) / m for s in STAGES]
    kinds = ("parameters", "gradients", "optimizer")
    return apart + [derived(f"{s} * accumulate").memory(k) == derived(s).memory(k) for s in STAGES for k in kinds]


accumulation_divides_activations_alone.control(
    "it divides the gradients of stage 2, too",
    lambda m: derived("zero2 * accumulate").memory("gradients") == derived("zero2").memory("gradients") / m,
    refuted_at={"m": 4},
)


@theorem(expect=Proved(), cite=("chen2016sublinear", "korthikanti2022activations"))
def checkpoints_save_all_layers_but_one_less_their_inputs(
    P: Real, A: Real, L: Degree, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"],
    b_theta: Real, b_g: Real, b_omega: Real, b_a: Real,
):  # fmt: skip
    """Keeping each layer's input alone lowers the peak by A (L - 1)/L - L b s h elements.

    One layer is recomputed at a time, and its activations are alive beside the kept inputs. So the peak rises where the inputs are more
    than the activations of all layers but one.
    """
    return peak("ddp") - peak("ddp * checkpoint") == (A * (L - 1) / L - L * b * s * h) * b_a


checkpoints_save_all_layers_but_one_less_their_inputs.control(
    "the inputs are all that is alive",
    lambda A, L, b, s, h, b_a: peak("ddp") - peak("ddp * checkpoint") == (A - L * b * s * h) * b_a,
    refuted_at={"A": 100, "L": 2, "b_a": 2},
).control(
    "it never raises the peak",
    lambda: peak("ddp * checkpoint") <= peak("ddp"),
    refuted_at={"A": 34, "L": 1, "b": 1, "s": 1, "h": 1, "b_a": 2},
)


@theorem(expect=Proved(), cite="rajbhandari2021infinity")
def infinity_leaves_activations_and_a_unit(P: Real, N: Degree, U: Real, A: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real):
    """Under ZeRO-Infinity the peak of a device is its activations and one unit, whatever the size of the model, and all hosts together hold
    each model state once."""
    found = derived("zero_infinity")
    return [found.memory("peak") == A * b_a + U * b_theta, found.memory("host") == states("ddp") / N]


infinity_leaves_activations_and_a_unit.control(
    "it leaves activations alone", lambda A, b_a: peak("zero_infinity") == A * b_a, refuted_at={"U": 1, "b_theta": 2}
).control(
    "so does ZeRO-Offload",
    lambda A, U, b_theta, b_a: peak("zero_offload") == A * b_a + U * b_theta,
    refuted_at={"P": 10, "U": 1, "b_theta": 2},
)
