"""Traffic of several axes: hybrid shards, nodes, tensor and pipeline parallelism, offload.

All quantities are derived from step programs: bytes that one device sends in a step, by ring algorithms. Norms are taken to have no
parameters. What crosses the border of a node is what all its devices send to others; of a ring through all devices, that is what one sends.
"""

from placeproof.theory import (
    Degree,
    Integer,
    NonNegative,
    Positive,
    Proved,
    Real,
    Refuted,
    collective,
    derived,
    holds,
    theorem,
    without_call,
)


def sent(subject):
    """Bytes that a device sends in a step."""
    return derived(subject).sent


def gather(n, size):
    """Bytes that a device sends in an all-gather of some bytes over n devices."""
    return collective("all_gather").sent(n, size)


# Hybrid sharding. A replica has N_shard devices, and there are N_rep replicas.


@theorem(expect=Proved(), cite="zhao2023fsdp")
def hybrid_sharding_sends_less_of_gradients_below_twice_parameters(P: Real, N_rep: Degree, N_shard: Degree, b_theta: Real, b_g: Real):
    """Hybrid sharding sends less than FSDP on as many devices by P (2 b_theta - b_g) (N_rep - 1) / (N_rep N_shard) bytes.

    So it sends less with equal widths, as much with gradients twice as wide as parameters, and more with wider ones.
    """
    return sent("fsdp").where(N=N_rep * N_shard) - sent("hsdp") == P * (2 * b_theta - b_g) * (N_rep - 1) / (N_rep * N_shard)


hybrid_sharding_sends_less_of_gradients_below_twice_parameters.control(
    "it never sends more",
    lambda N_rep, N_shard: sent("hsdp") <= sent("fsdp").where(N=N_rep * N_shard),
    refuted_at={"P": 1, "N_rep": 2, "N_shard": 8, "b_theta": 1, "b_g": 4},
).control(
    "it sends as much less if parameters stay until backward",
    lambda P, N_rep, N_shard, b_theta, b_g: (
        sent("fsdp(reshard_after_forward=false)").where(N=N_rep * N_shard) - sent("hsdp(reshard_after_forward=false)")
        == P * (2 * b_theta - b_g) * (N_rep - 1) / (N_rep * N_shard)
    ),
    refuted_at={"P": 1, "N_rep": 2, "N_shard": 8, "b_theta": 2, "b_g": 2},
)


@theorem(expect=Proved(), cite="zhao2023fsdp")
def two_thirds_cross_a_replicas_border(P: NonNegative, N_rep: Degree, N_shard: Degree, b_theta: NonNegative, b_g: Real):
    """With equal widths, what crosses a replica's border under hybrid sharding is at most 2/3 of what crosses it under FSDP.

    What is within a replica stays there, and of the three bytes for each byte of the model two are left, of the gradient's all-reduce.
    """
    crossing = N_shard * derived("hsdp").over("rep")
    return holds(3 * crossing <= 2 * sent("fsdp").where(N=N_rep * N_shard), given=[b_g == b_theta])


two_thirds_cross_a_replicas_border.control(
    "it is divided by the size of a replica",
    lambda N_rep, N_shard, b_theta, b_g: holds(
        3 * N_shard * (N_shard * derived("hsdp").over("rep")) <= 2 * sent("fsdp").where(N=N_rep * N_shard), given=[b_g == b_theta]
    ),
    refuted_at={"P": 1, "N_rep": 2, "N_shard": 8, "b_theta": 2, "b_g": 2},
)


@theorem(expect=Proved(), cite="zhao2023fsdp")
def time_saved_by_hybrid_sharding_of_two_speeds(
    P: Real, N_rep: Degree, N_shard: Degree, b_theta: Real, b_g: Real, W_in: Positive["byte / second"], W_out: Positive["byte / second"]
):
    """With equal widths and links of W_in bytes a second within a replica and W_out between replicas, hybrid sharding saves
    ((3 N_rep N_shard - 2 N_rep - 1) / W_out - 3 N_rep (N_shard - 1) / W_in) P b_theta / (N_rep N_shard) seconds.

    FSDP's ring goes at the pace of its slowest link; nothing overlaps. So hybrid sharding is quicker already where all links are alike.
    Every device has a link of its own out of its replica: where the devices of a replica share one, what goes between replicas takes
    N_shard times as long.
    """
    hybrid = derived("hsdp").over("shard") / W_in + derived("hsdp").over("rep") / W_out
    gain = (3 * N_rep * N_shard - 2 * N_rep - 1) / W_out - 3 * N_rep * (N_shard - 1) / W_in
    saved = sent("fsdp").where(N=N_rep * N_shard) / W_out - hybrid
    return holds(saved == P * b_theta / (N_rep * N_shard) * gain, given=[b_g == b_theta])


time_saved_by_hybrid_sharding_of_two_speeds.control(
    "it saves as well where links within a replica are much slower",
    lambda N_rep, N_shard, b_theta, b_g, W_in, W_out: holds(
        derived("hsdp").over("shard") / W_in + derived("hsdp").over("rep") / W_out <= sent("fsdp").where(N=N_rep * N_shard) / W_out,
        given=[b_g == b_theta],
    ),
    refuted_at={"P": 1, "N_rep": 2, "N_shard": 8, "b_theta": 2, "b_g": 2, "W_in": 1, "W_out": 10},
)


@theorem(expect=Proved(), cite="zhao2023fsdp")
def replicas_reduce_once_a_step(P: Real, N_rep: Degree, N_shard: Degree, m: Real, b_theta: Real, b_g: Real):
    """With m micro-batches, hybrid sharding sends m times as much within a replica, and between replicas as much as with one.

    Shards of the gradient are added up before replicas exchange them.
    """
    found, one = derived("hsdp * accumulate"), derived("hsdp")
    return [found.over("shard") == m * one.over("shard"), found.over("rep") == one.over("rep")]


replicas_reduce_once_a_step.control(
    "it sends m times as much in all",
    lambda m: sent("hsdp * accumulate") == m * sent("hsdp"),
    refuted_at={"P": 1, "N_rep": 2, "N_shard": 2, "m": 2, "b_g": 2},
)

# ZeRO++. A node has N_node devices.


def int8_int4(b_theta, b_g, b_qw, b_qg):
    """The widths of ZeRO++: parameters travel in half of their bytes, gradients in a quarter."""
    return [b_g == b_theta, b_qw == b_theta / 2, b_qg == b_theta / 4]


def crossing(n_node):
    """Bytes that cross a node's border under ZeRO++: of one ring through all devices, and of n_node exchanges between nodes."""
    return derived("zeropp").over("dp") + n_node * derived("zeropp").over("dp_outer")


@theorem(expect=Proved(), cite="wang2023zeropp")
def a_quarter_crosses_a_nodes_border(P: Real, N: Degree, N_node: Degree, b_theta: Real, b_g: Real, b_qw: Real, b_qg: Real):
    """With parameters in half and gradients in a quarter of their bytes, four times what crosses a node's border under ZeRO++ is what
    crosses it under stage 3, less P b_theta (N_node - 1) / N bytes.

    So the paper's quarter, 0.75 M in place of 3 M, is an upper bound. The second gather does not leave a node; gradients are added up in
    a node before they do.
    """
    return holds(sent("zero3") - 4 * crossing(N_node) == P * b_theta * (N_node - 1) / N, given=int8_int4(b_theta, b_g, b_qw, b_qg))


a_quarter_crosses_a_nodes_border.control(
    "with parameters in half of their bytes alone it is less than a quarter, too",
    lambda N_node, b_theta, b_g, b_qw, b_qg: holds(
        4 * crossing(N_node) <= sent("zero3"), given=[b_g == b_theta, b_qw == b_theta / 2, b_qg == b_theta]
    ),
    refuted_at={"P": 1, "N": 16, "N_node": 8, "b_theta": 2, "b_g": 2, "b_qw": 1, "b_qg": 2},
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N": 16, "N_node": 8, "b_theta": 2, "b_g": 2, "b_qw": 1, "b_qg": "1/2"},
        because="within a node parameters are gathered once more in all their bytes",
    ),
    cite="wang2023zeropp",
)
def zeropp_sends_a_quarter_of_stage_3(
    P: Positive, N: Degree, N_node: Degree, b_theta: Positive, b_g: Positive, b_qw: Positive, b_qg: Positive
):
    """With parameters in half and gradients in a quarter of their bytes, a device sends at most a quarter of what it sends under stage 3,
    within its node and out of it."""
    return holds(4 * sent("zeropp") <= sent("zero3"), given=int8_int4(b_theta, b_g, b_qw, b_qg))


zeropp_sends_a_quarter_of_stage_3.control(
    "it sends at most 7/12",
    lambda N, N_node, b_theta, b_g, b_qw, b_qg: holds(
        12 * sent("zeropp") <= 7 * sent("zero3"), given=[N_node <= N, *int8_int4(b_theta, b_g, b_qw, b_qg)]
    ),
    proved=True,
).control(
    "without a secondary shard it sends 5/12",
    lambda b_theta, b_g, b_qw, b_qg: holds(12 * sent("zeropp(node=true)") == 5 * sent("zero3"), given=int8_int4(b_theta, b_g, b_qw, b_qg)),
    proved=True,
)


@theorem(expect=Proved(), cite=("wang2023zeropp", "zhao2023fsdp"))
def quantized_widths_add_up_whatever_the_node(P: Real, N: Degree, N_node: Degree, b_theta: Real, b_qw: Real, b_qg: Real):
    """ZeRO++ sends an all-gather of P (b_qw + b_qg) bytes over all devices, and one of the parameters over a node.

    Scattering gradients in a node and then between nodes sends as much as at once. Only where it is sent differs.
    """
    return sent("zeropp") == gather(N, P * (b_qw + b_qg)) + gather(N_node, P * b_theta)


quantized_widths_add_up_whatever_the_node.control(
    "the second gather is quantized, too",
    lambda P, N, N_node, b_qw, b_qg: sent("zeropp") == gather(N, P * (b_qw + b_qg)) + gather(N_node, P * b_qw),
    refuted_at={"P": 1, "N": 16, "N_node": 8, "b_theta": 2, "b_qw": 1},
)

# Tensor parallelism. A micro-batch is b sequences of s tokens, each of h elements.


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "narayanan2021megatron"))
def four_all_reduces_a_layer(L: Real, N: Degree, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real):
    """Tensor parallelism of degree t sends four all-reduces of b s h elements for each layer, 8 b s h (t - 1)/t elements.

    Section 3.2 of Narayanan et al. Two of them are in forward, and two in backward.
    """
    return sent("tp") == L * 4 * collective("all_reduce").sent(N, b * s * h * b_a)


four_all_reduces_a_layer.control(
    "there are two, those of forward",
    lambda L, N, b, s, h, b_a: sent("tp") == L * 2 * collective("all_reduce").sent(N, b * s * h * b_a),
    refuted_at={"N": 2, "L": 1, "b": 1, "s": 1, "h": 1, "b_a": 2},
)


@theorem(expect=Proved(), cite="korthikanti2022activations")
def sequence_parallelism_sends_nothing_more_of_kept_inputs(
    L: Real, N: Degree, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real
):
    """Sequence parallelism sends what tensor parallelism sends if the gathered input of each block is kept for backward.

    An all-reduce is a reduce-scatter and a gather, as section 4.2.2 argues. The section keeps a part of the input, and gathers it again.
    """
    # The third gather of the program is that of backward.
    return sent(without_call("tp * sp", "all_gather", 3)) == sent("tp")


sequence_parallelism_sends_nothing_more_of_kept_inputs.control(
    "also if a part of it is kept",
    lambda: sent("tp * sp") == sent("tp"),
    refuted_at={"N": 2, "L": 1, "b": 1, "s": 1, "h": 1, "b_a": 2},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "korthikanti2022activations"))
def recomputation_repeats_the_all_reduces_of_forward(
    L: Real, N: Degree, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real
):
    """With activation checkpoints, tensor parallelism sends 3/2 of what it sends without them.

    This makes the six all-reduces of section 8 of the ZeRO paper.
    """
    return 2 * sent("tp * checkpoint") == 3 * sent("tp")


recomputation_repeats_the_all_reduces_of_forward.control(
    "also with sequence parallelism",
    lambda: 2 * sent("tp * sp * checkpoint") == 3 * sent("tp * sp"),
    refuted_at={"N": 2, "L": 1, "b": 1, "s": 1, "h": 1, "b_a": 2},
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def partitioned_checkpoints_send_a_twelfth_more(
    L: Real, N: Degree, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real
):
    """ZeRO-R, which splits activation checkpoints over the tensor axis, sends 13/12 of what tensor parallelism with checkpoints sends.

    Section 8 says less than a tenth more: one gather beside six all-reduces.
    """
    return 12 * sent("tp * zero_r") == 13 * sent("tp * checkpoint")


partitioned_checkpoints_send_a_twelfth_more.control(
    "sequence parallelism, which splits them as well, is as cheap",
    lambda: sent("tp * sp * checkpoint") == sent("tp * zero_r"),
    refuted_at={"N": 2, "L": 1, "b": 1, "s": 1, "h": 1, "b_a": 2},
)


def layers(parameters, number, hidden):
    """Attention and MLP of each layer have 12 matrices of h by h."""
    matrices = 12 * number * hidden**2
    return [parameters == matrices]


@theorem(
    expect=Proved(),
    cite="narayanan2021megatron",
    skip={"dimensions": "a matrix of h by h has h^2 parameters, which have a dimension of their own"},
)
def tensor_parallelism_sends_more_of_long_batches(
    P: Real, L: Real, N: Degree, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real, b_g: Real
):
    """With 12 h^2 parameters a layer and activations as wide as gradients, tensor parallelism sends b s / (3 h) times what data parallelism
    over as many devices sends, b s being the tokens of a micro-batch."""
    return holds(3 * h * sent("tp") == b * s * sent("ddp"), given=[b_a == b_g, *layers(P, L, h)])


tensor_parallelism_sends_more_of_long_batches.control(
    "it sends less for up to 12 h tokens",
    lambda P, L, b, s, h, b_a, b_g: holds(sent("tp") <= sent("ddp"), given=[b_a == b_g, *layers(P, L, h), b * s <= 12 * h]),
    refuted_at={"P": 12, "L": 1, "N": 2, "b": 1, "s": 4, "h": 1, "b_a": 2, "b_g": 2},
)

# Pipelines, and all three.


@theorem(expect=Proved(), cite="narayanan2021megatron")
def tensor_parallelism_sends_4_L_times_a_pipeline(
    L: Real, N: Degree, m: Real, b: Real["sequence"], s: Real["token / sequence"], h: Real["element / token"], b_a: Real
):
    """For the same micro-batches on as many devices, tensor parallelism sends 4 L times what a pipeline sends, in the mean over its stages.

    A micro-batch crosses each of N - 1 borders between stages twice, whatever the number of layers.
    """
    return sent("tp * accumulate") == 4 * L * sent("pp")


tensor_parallelism_sends_4_L_times_a_pipeline.control(
    "each stage sends forward and backward, so that it is 4 L (N - 1)/N times",
    lambda L, N: sent("tp * accumulate") == 4 * L * sent("pp") * (N - 1) / N,
    refuted_at={"N": 2, "L": 1, "m": 1, "b": 1, "s": 1, "h": 1, "b_a": 2},
)


@theorem(expect=Proved(), cite="narayanan2021megatron")
def model_parallelism_divides_traffic_of_data_parallelism(
    P: Real, N_dp: Degree, N_tp: Degree, N_pp: Degree, m: Integer, b_theta: Real, b_g: Real
):
    """With tensor and pipeline parallelism, a device sends over the batch axis 1 / (N_tp N_pp) of what it sends there without them, under
    data parallelism and stage 1, whatever the number of micro-batches."""
    alone = {s: sent(s).where(N=N_dp) for s in ("ddp", "zero1")}
    return [derived(f"{s} * tp * pp").over("dp") == alone[s] / (N_tp * N_pp) for s in alone]


model_parallelism_divides_traffic_of_data_parallelism.control(
    "also under stage 3",
    lambda N_dp, N_tp, N_pp: derived("zero3 * tp * pp").over("dp") == sent("zero3").where(N=N_dp) / (N_tp * N_pp),
    refuted_at={"P": 1, "N_dp": 2, "N_tp": 2, "N_pp": 2, "m": 4, "b_g": 2, "b_theta": 2},
)

# Offload.


@theorem(expect=Proved(), cite=("ren2021offload", "rajbhandari2021infinity"))
def offload_sends_what_its_stage_sends(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Between devices, ZeRO-Offload sends what stage 2 sends, and ZeRO-Infinity what stage 3 sends."""
    return [sent("zero_offload") == sent("zero2"), sent("zero_infinity") == sent("zero3")]


offload_sends_what_its_stage_sends.control(
    "what crosses the host links is not sent between devices",
    lambda: sent("zero_offload") + derived("zero_offload").host_link == sent("zero2"),
    refuted_at={"P": 1, "N": 2, "b_g": 2},
)


@theorem(expect=Proved(), cite=("ren2021offload", "rajbhandari2021infinity"))
def host_links_share_the_transfers_of_one_model(P: Real, N: Degree, b_theta: Real, b_g: Real):
    """Over all devices' host links together go, under ZeRO-Offload, gradients once and parameters once, and under ZeRO-Infinity parameters
    once more.

    With ZeRO-Offload these are four bytes a parameter in 16 bits, and each device's link carries its part of them.
    """
    offload, infinity = derived("zero_offload").host_link, derived("zero_infinity").host_link
    return [offload == P * (b_g + b_theta) / N, infinity == P * (b_g + 2 * b_theta) / N]


host_links_share_the_transfers_of_one_model.control(
    "whole gradients and parameters cross each device's link",
    lambda P, b_theta, b_g: derived("zero_offload").host_link == P * (b_g + b_theta),
    refuted_at={"P": 1, "N": 2, "b_g": 2},
)
