"""One device more: what grows and what shrinks with each degree.

The peak counts activations and gathered units, for as many samples a device as before. Where a claim of growth or of shrinking fails it is
kept, with its witness.
"""

from placeproof.core.symbols import symbol
from placeproof.theory import Degree, NonNegative, Positive, Proved, Real, Refuted, derived, holds, theorem

#: Strategies on one axis that splits samples.
SAMPLES = (
    "ddp", "zero1", "zero1(back=broadcast)", "zero2", "zero2(bucket=unit)", "zero3", "zero3(prefetch=true)", "zero3(bucket=unit)",
    "fsdp(reshard_after_forward=false)", "zero_offload", "zero_infinity", "zero1 * accumulate", "zero2 * accumulate", "zero3 * accumulate",
    "zero3 * clip",
)  # fmt: skip
#: The same, where adapters alone are trained, or where matrices are updated whole.
UPDATED = (
    "ddp * lora",
    "zero1 * lora",
    "zero2 * lora",
    "zero3 * lora",
    "ddp * muon",
    "zero1 * muon",
    "zero1 * muon(owned)",
    "zero3 * muon",
)
#: Where the second moment of matrices is in factors, which every device has.
FACTORED = ("ddp * adafactor", "zero1 * adafactor", "zero1 * adafactor(owned)", "zero3 * adafactor")
#: Strategies on one axis that splits what is computed.
MODEL = ("tp", "tp * sp", "tp * checkpoint", "tp * sp * checkpoint", "tp * zero_r")
#: Pipelines whose devices keep no more activations with more stages.
PIPELINES = ("pp", "pp(schedule=gpipe)", "pp(schedule=zb-h1)")


def grows(subject, degree="N"):
    """That a step sends at least as much with one device more."""
    sent = derived(subject).sent
    return sent <= sent.where(**{degree: symbol(degree) + 1})


def shrinks(subject, degree="N"):
    """That a device needs at most as much memory with one device more."""
    peak = derived(subject).memory("peak")
    return peak.where(**{degree: symbol(degree) + 1}) <= peak


# Axes of samples.


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def traffic_grows_with_devices_that_have_samples(
    P: NonNegative, N: Degree, m: NonNegative, b_theta: NonNegative, b_g: NonNegative, b_s: NonNegative
):
    """A device of data parallelism, of ZeRO of any stage, of FSDP and of both kinds of offload sends at least as much with one device
    more."""
    return [grows(s) for s in SAMPLES]


traffic_grows_with_devices_that_have_samples.control(
    "it sends twice as much with twice as many",
    lambda N: derived("zero3").sent.where(N=2 * N) >= 2 * derived("zero3").sent,
    refuted_at={"P": 1, "N": 2, "b_theta": 1, "b_g": 1, "m": 1},
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def memory_shrinks_with_devices_that_have_samples(
    P: NonNegative, N: Degree, b_theta: NonNegative, b_g: NonNegative, b_omega: NonNegative, U: Real, A: Real, b_a: Real, m: Degree
):
    """The peak of each of them that keeps a state in parts on the device does not grow with one device more, gathered units, collected
    gradients and activations included."""
    return [shrinks(s) for s in SAMPLES if s not in ("ddp", "zero_offload", "zero_infinity")]


memory_shrinks_with_devices_that_have_samples.control(
    "it halves with twice as many",
    lambda N: 2 * derived("zero3").memory("peak").where(N=2 * N) <= derived("zero3").memory("peak"),
    refuted_at={"P": 1, "N": 1, "b_theta": 1, "b_g": 1, "b_omega": 1, "U": 1, "A": 1, "b_a": 1, "m": 1},
)


@theorem(expect=Proved(), cite="shi2023shampoo")
def traffic_grows_and_memory_shrinks_with_owners_of_matrices(
    P: NonNegative, N: Degree, b_theta: NonNegative, b_g: NonNegative, b_omega: NonNegative, b_pre: NonNegative, sigma: NonNegative,
    U: Real, A: Real, b_a: Real,
):  # fmt: skip
    """With Shampoo a device sends at least as much with one device more, and its peak does not grow."""
    subjects = ("ddp * shampoo", "zero1 * shampoo", "zero3 * shampoo")
    return [*map(grows, subjects), *map(shrinks, subjects)]


traffic_grows_and_memory_shrinks_with_owners_of_matrices.control(
    "it sends twice as much with twice as many",
    lambda N: derived("zero1 * shampoo").sent.where(N=2 * N) >= 2 * derived("zero1 * shampoo").sent,
    refuted_at={"P": 1, "N": 2, "b_theta": 1, "b_g": 1},
)


@theorem(expect=Proved(), cite="shazeer2018adafactor")
def traffic_grows_and_memory_shrinks_beside_factors(
    P: NonNegative, N: Degree, rho: NonNegative, b_theta: NonNegative, b_g: NonNegative, b_s: NonNegative, tau: NonNegative,
    b_master: NonNegative, b_nu: NonNegative, U: Real, A: Real, b_a: Real,
):  # fmt: skip
    """With Adafactor, too, a device sends at least as much with one device more, and its peak does not grow."""
    return [*map(grows, FACTORED), *map(shrinks, FACTORED)]


traffic_grows_and_memory_shrinks_beside_factors.control(
    "what the optimizer holds halves with twice as many",
    lambda N: 2 * derived("zero1 * adafactor").memory("optimizer").where(N=2 * N) <= derived("zero1 * adafactor").memory("optimizer"),
    refuted_at={"P": 1, "N": 1, "rho": 1, "b_master": 1, "b_nu": 1},
)


@theorem(
    expect=Refuted(
        witness={"P": 1, "N_rep": 8, "N_shard": 1, "b_theta": 1, "b_g": 4},
        because="replicas then reduce smaller parts, and that saves more than gathers and scatters cost",
    ),
    cite="zhao2023fsdp",
)
def traffic_of_hybrid_sharding_grows_with_each_degree(P: Positive, N_rep: Degree, N_shard: Degree, b_theta: Positive, b_g: Positive):
    """Under hybrid sharding, too, a device sends at least as much with one device more in each shard group."""
    return grows("hsdp", "N_shard")


traffic_of_hybrid_sharding_grows_with_each_degree.control(
    "gradients are at most twice as wide as parameters",
    lambda b_theta, b_g: holds(grows("hsdp", "N_shard"), grows("hsdp", "N_rep"), given=[b_g <= 2 * b_theta]),
    proved=True,
)


@theorem(expect=Proved(), cite=("wang2023zeropp", "liu2023ring"))
def traffic_grows_with_nodes_and_tokens(
    P: NonNegative, N: Degree, N_node: Degree, b_theta: NonNegative, b_g: NonNegative, b_qw: NonNegative, b_qg: NonNegative
):
    """Under ZeRO++ a device sends at least as much with one device more, and with one device more in a node of as many devices in all, and
    under context parallelism with one device more among which tokens lie."""
    return [grows("zeropp"), grows("zeropp", "N_node"), grows("cp")]


traffic_grows_with_nodes_and_tokens.control(
    "under ZeRO++ it stays as it is",
    lambda N: derived("zeropp").sent.where(N=N + 1) <= derived("zeropp").sent,
    refuted_at={"P": 1, "N": 2, "N_node": 2, "b_theta": 1, "b_g": 1, "b_qw": 1, "b_qg": 1},
)


@theorem(expect=Proved(), cite=("wang2023zeropp", "zhao2023fsdp", "liu2023ring"))
def memory_shrinks_with_nodes_shards_and_tokens(
    P: NonNegative, N: Degree, N_node: Degree, N_shard: Degree, b_theta: NonNegative, b_g: NonNegative, b_omega: NonNegative,
    U: Real, A: NonNegative, b_a: NonNegative,
):  # fmt: skip
    """No peak grows with one device more in all or in a node of ZeRO++, in a shard group of hybrid sharding, or among which tokens lie."""
    return [shrinks("zeropp"), shrinks("zeropp", "N_node"), shrinks("hsdp", "N_shard"), shrinks("cp")]


memory_shrinks_with_nodes_shards_and_tokens.control(
    "it shrinks with the number of tokens' devices as activations do",
    lambda N: N * derived("cp").memory("peak") <= derived("cp").memory("peak").where(N=1),
    refuted_at={"P": 1, "N": 2, "N_node": 1, "N_shard": 1, "b_theta": 1, "b_g": 1, "b_omega": 1, "U": 1, "A": 1, "b_a": 1},
)


@theorem(expect=Proved(), cite=("hu2022lora", "liu2025moonlight"))
def traffic_grows_where_adapters_or_whole_matrices_are_updated(
    P: Real, P_adapter: NonNegative, N: Degree, b_theta: NonNegative, b_g: NonNegative, b_frozen: NonNegative
):
    """Where adapters alone are trained, or matrices are updated whole, too, a device sends at least as much with one device more."""
    return holds(*[grows(s) for s in UPDATED], given=[P_adapter <= P])


traffic_grows_where_adapters_or_whole_matrices_are_updated.control(
    "adapters send in proportion to devices",
    lambda N: derived("zero3 * lora").sent.where(N=2 * N) >= 2 * derived("zero3 * lora").sent,
    refuted_at={"P": 1, "P_adapter": 1, "N": 2, "b_theta": 1, "b_g": 1, "b_frozen": 1},
)


@theorem(expect=Proved(), cite=("hu2022lora", "liu2025moonlight"))
def memory_shrinks_where_adapters_or_whole_matrices_are_updated(
    P: Positive, P_adapter: NonNegative, N: Degree, b_theta: NonNegative, b_g: NonNegative, b_omega: NonNegative, b_frozen: NonNegative,
    U: Real, A: Real, b_a: Real,
):  # fmt: skip
    """Nor does a peak grow there with one device more: that of weights that are frozen and in parts included."""
    return holds(*[shrinks(s) for s in UPDATED], given=[P_adapter <= P])


memory_shrinks_where_adapters_or_whole_matrices_are_updated.control(
    "frozen weights that each device has whole are halved with twice as many",
    lambda N: 2 * derived("zero1 * lora").memory("peak").where(N=2 * N) <= derived("zero1 * lora").memory("peak"),
    refuted_at={"P": 2, "P_adapter": 1, "N": 1, "b_theta": 1, "b_g": 1, "b_omega": 1, "b_frozen": 1, "U": 1, "A": 1, "b_a": 1},
)


# Axes that split the model.


@theorem(expect=Proved(), cite="korthikanti2022activations")
def traffic_grows_with_devices_that_share_layers(
    L: NonNegative, N: Degree, b: NonNegative["sequence"], s: NonNegative["token / sequence"], h: NonNegative["element / token"],
    b_a: NonNegative,
):  # fmt: skip
    """A device of tensor parallelism sends at least as much with one device more, with sequence parallelism, recomputation, and partitioned
    checkpoints too."""
    return [grows(s) for s in MODEL]


traffic_grows_with_devices_that_share_layers.control(
    "it stays as it is", lambda: derived("tp").sent.where(N=4) <= derived("tp").sent.where(N=2),
    refuted_at={"L": 1, "N": 2, "b": 1, "s": 1, "h": 1, "b_a": 1},
)  # fmt: skip


@theorem(expect=Proved(), cite="lee2019freezing")
def traffic_grows_and_memory_shrinks_where_a_part_is_frozen(
    P: Positive, P_frozen: NonNegative, N: Degree, b_theta: NonNegative, b_g: NonNegative, b_omega: NonNegative, b_frozen: NonNegative,
    U: Real, A: Real, b_a: Real,
):  # fmt: skip
    """Where a part of the parameters is not trained, a device sends at least as much with one device more, and needs no more memory."""
    subjects = ("ddp * freeze", "zero2 * freeze", "zero3 * freeze")
    return holds(*[grows(s) for s in subjects], *[shrinks(s) for s in subjects], given=[P_frozen <= P])


traffic_grows_and_memory_shrinks_where_a_part_is_frozen.control(
    "gradients of all are sent",
    lambda P, N, b_g: N * derived("ddp * freeze").sent >= 2 * (N - 1) * P * b_g,
    refuted_at={
        "P": 2, "P_frozen": 1, "N": 2, "b_theta": 1, "b_g": 1, "b_omega": 1, "b_frozen": 1, "U": 1, "A": 1, "b_a": 1,
    },
)  # fmt: skip


@theorem(expect=Proved(), cite="korthikanti2022activations")
def memory_shrinks_with_devices_that_share_layers(
    P: NonNegative, N: Degree, A: NonNegative, A_seq: Real, L: Positive, b: NonNegative["sequence"],
    s: NonNegative["token / sequence"], h: NonNegative["element / token"],
    b_theta: NonNegative, b_g: NonNegative, b_omega: NonNegative, b_a: NonNegative,
):  # fmt: skip
    """The peak of each of them does not grow with one device more, if what is copied outside the parallel regions is a part of the
    activations."""
    return holds([shrinks(s) for s in MODEL], given=[A_seq <= A])


memory_shrinks_with_devices_that_share_layers.control(
    "twice the devices halve it",
    lambda N: 2 * derived("tp").memory("peak").where(N=2 * N) <= derived("tp").memory("peak"),
    refuted_at={
        "P": 1, "N": 1, "A": 2, "A_seq": 1, "L": 1, "b": 1, "s": 1, "h": 1, "b_theta": 1, "b_g": 1, "b_omega": 1, "b_a": 1,
    },
)  # fmt: skip


def kept(subject):
    """What a device keeps of the activations of a batch, where all of them are one byte."""
    return derived(subject).memory("activations").where(A=1, b_a=1)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "qi2024zerobubble"))
def activations_shrink_with_stages(N: Degree, m: Degree):
    """A device of a pipeline under GPipe, 1F1B and ZB-H1 keeps no more activations with one stage more, though under the last two more
    micro-batches are then in flight."""
    return [kept(s).where(N=N + 1) <= kept(s) for s in PIPELINES]


activations_shrink_with_stages.control("strictly", lambda N: kept("pp").where(N=N + 1) < kept("pp"), refuted_at={"N": 1, "m": 2})


@theorem(
    expect=Refuted(
        witness={"N": 1, "m": 4},
        because="the first of two stages keeps three micro-batches of half the layers each, and one stage keeps one of all",
    ),
    cite="qi2024zerobubble",
)
def activations_of_zb_h2_shrink_with_stages(N: Degree, m: Degree):
    """A device of a pipeline under ZB-H2 keeps no more activations with one stage more."""
    return kept("pp(schedule=zb-h2)").where(N=N + 1) <= kept("pp(schedule=zb-h2)")


activations_of_zb_h2_shrink_with_stages.control(
    "they stay below those of two micro-batches", lambda m: m * kept("pp(schedule=zb-h2)") < 2, proved=True
).control(
    "nor does a device of an interleaved pipeline",
    lambda N: kept("pp(schedule=interleaved, chunks=2)").where(N=N + 1) <= kept("pp(schedule=interleaved, chunks=2)"),
    refuted_at={"N": 1, "m": 4},
)

#: Pipelines that keep one copy of each layer.
ONE_COPY = (*PIPELINES, "pp(schedule=zb-h2)", "pp(schedule=zb-v)", "pp(schedule=dualpipe-v)", "pp(schedule=interleaved, chunks=2)")


@theorem(expect=Proved(), cite=("narayanan2021megatron", "qi2024zerobubble"))
def traffic_grows_with_stages(
    N: Degree, m: NonNegative, b: NonNegative["sequence"], s: NonNegative["token / sequence"], h: NonNegative["element / token"],
    b_a: NonNegative,
):  # fmt: skip
    """A device of a pipeline sends at least as much, on average, with one stage more, under each schedule that keeps one copy of each
    layer."""
    return [grows(schedule) for schedule in ONE_COPY]


traffic_grows_with_stages.control(
    "it stays as it is with a second stage", lambda: derived("pp").sent.where(N=2) <= derived("pp").sent.where(N=1),
    refuted_at={"N": 1, "m": 1, "b": 1, "s": 1, "h": 1, "b_a": 1},
)  # fmt: skip


@theorem(
    expect=Refuted(
        witness={"P": 100, "N_pp": 2, "m": 1, "b": 1, "s": 1, "h": 1, "b_g": 2, "b_a": 2},
        because="each layer is on two devices, and with more stages each of them sends the gradients of fewer layers",
    ),
    cite="deepseek2024technical",
)
def traffic_of_dualpipe_grows_with_stages(
    P: Positive, N_pp: Degree, m: Positive, b: Positive["sequence"], s: Positive["token / sequence"], h: Positive["element / token"],
    b_g: Positive, b_a: Positive,
):  # fmt: skip
    """So does a device under DualPipe."""
    return grows("pp(schedule=dualpipe)", "N_pp")


traffic_of_dualpipe_grows_with_stages.control(
    "activations and their gradients do, over the stages", lambda N_pp: _over_stages(N_pp) <= _over_stages(N_pp + 1), proved=True
)


def _over_stages(stages):
    return derived("pp(schedule=dualpipe)").over("pp").where(N_pp=stages)


# Both.


@theorem(
    expect=Refuted(
        witness={"P": 100, "N_dp": 8, "N_tp": 1, "L": 1, "b": 1, "s": 1, "h": 1, "b_g": 2, "b_a": 2},
        because="with the matrices, what data parallelism reduces is divided, which saves more of a large model with few tokens",
    ),
    cite=("shoeybi2019megatron", "li2020ddp"),
)
def traffic_of_a_composition_grows_with_each_degree(
    P: Positive, N_dp: Degree, N_tp: Degree, L: Positive, b: Positive["sequence"], s: Positive["token / sequence"],
    h: Positive["element / token"], b_g: Positive, b_a: Positive,
):  # fmt: skip
    """Beside data parallelism, a device sends at least as much with one device more that shares its layers."""
    return grows("ddp * tp", "N_tp")


traffic_of_a_composition_grows_with_each_degree.control(
    "over the axis itself it does, and more devices with other samples send more",
    lambda N_tp: [derived("ddp * tp").over("tp") <= derived("ddp * tp").over("tp").where(N_tp=N_tp + 1), grows("ddp * tp", "N_dp")],
    proved=True,
)


@theorem(expect=Proved(), cite="lepikhin2021gshard")
def experts_on_more_devices_take_less_and_send_more(
    P: Real, P_expert: NonNegative, N: Degree, b_theta: NonNegative, b_g: NonNegative, b_omega: NonNegative, A: Real, b_a: Real
):
    """With one device more among which experts lie, the peak does not grow, and what is sent of everything else does not shrink."""
    return holds(shrinks("ep"), grows("ep"), given=[P_expert <= P])


experts_on_more_devices_take_less_and_send_more.control(
    "experts lie on each device", lambda: derived("ddp").memory("peak") <= derived("ep").memory("peak"),
    refuted_at={"P": 2, "P_expert": 1, "N": 2, "b_theta": 1, "b_g": 1, "b_omega": 1, "A": 1, "b_a": 1},
)  # fmt: skip
