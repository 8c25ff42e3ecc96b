"""Beliefs about costs, each beside what is true.

Beliefs about what trains stand in a file of their own. Costs are derived from step programs, in the conventions of these: rings, bytes
that one device sends, activations of one device's local batch.
"""

from fractions import Fraction

from placeproof.core.precision import PRECISIONS
from placeproof.core.symbols import symbol
from placeproof.theory import (
    GB,
    Count,
    Degree,
    GiB,
    NonNegative,
    Positive,
    Real,
    Refuted,
    chain,
    collective,
    derived,
    holds,
    operations,
    schedule,
    theorem,
    values_of,
)


def states(subject):
    """Bytes of model states on a device."""
    return derived(subject).memory("model_states")


# Memory.


@theorem(
    expect=Refuted(
        witness={"P": 1000, "P_norm": 10, "A": 400, "A_seq": 100, "N": 8, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2},
        because="norms, and the activations between the parallel regions, are on every device",
    ),
    cite=("shoeybi2019megatron", "korthikanti2022activations"),
)
def tensor_parallelism_divides_all_memory(
    P: Positive,
    P_norm: NonNegative,
    A: Positive,
    A_seq: Positive,
    N: Degree,
    b_theta: Positive,
    b_g: Positive,
    b_omega: NonNegative,
    b_a: Positive,
):
    """Tensor parallelism over N devices divides the peak of one device by N."""
    return N * derived("tp", groups=True).memory("peak") == derived("ddp").memory("peak")


tensor_parallelism_divides_all_memory.control(
    "it leaves N - 1 more copies of the norms and of the activations outside the parallel regions",
    lambda P_norm, A_seq, N, b_theta, b_g, b_omega, b_a: (
        N * derived("tp", groups=True).memory("peak") - derived("ddp").memory("peak")
        == (N - 1) * (P_norm * (b_theta + b_g + b_omega) + A_seq * b_a)
    ),
    proved=True,
)

EXPERTS = """
mesh(ep)
splits(ep="batch")
group(dense, P_norm)
group(expert, P - P_norm, experts=ep)
place(parameters.dense)
place(parameters.expert, ep="S")
place(optimizer.dense)
place(optimizer.expert, ep="S")
place(gradients.dense)
place(gradients.expert, ep="S")
gradients = backward(parameters)
gradients.dense = all_reduce(gradients.dense, ep)
gradients = scale(gradients, 1 / ep)
parameters, optimizer = update(parameters, optimizer, gradients)
"""


def with_experts():
    """Bytes of model states where only experts are spread; P_norm counts the parameters that are no expert's."""
    return derived(EXPERTS, groups=True).memory("model_states")


@theorem(
    expect=Refuted(
        witness={"P": 100, "P_norm": 20, "N": 8, "b_theta": 2, "b_g": 2, "b_omega": 12},
        because="attention, embeddings and routers are on every device",
    ),
    cite="lepikhin2021gshard",
)
def expert_parallelism_divides_all_parameters(P: Real, P_norm: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real):
    """Expert parallelism over N devices divides the model states by N.

    P_norm counts here the parameters that are no expert's.
    """
    return with_experts() == P * (b_theta + b_g + b_omega) / N


expert_parallelism_divides_all_parameters.control(
    "it divides those of the experts",
    lambda P, P_norm, N, b_theta, b_g, b_omega: with_experts() == (P_norm + (P - P_norm) / N) * (b_theta + b_g + b_omega),
    proved=True,
)


@theorem(
    expect=Refuted(
        witness={"P": 1000, "A": 1, "N": 2, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2},
        because="a device's shard stays beside the copy that was gathered",
    ),
    cite="zhao2023fsdp",
)
def fsdp_of_kept_parameters_takes_the_memory_of_stage_2(P: Real, A: Real, N: Degree, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real):
    """FSDP that keeps gathered parameters until backward has the peak of ZeRO stage 2.

    The two send the same, and are often called the same.
    """
    return derived("fsdp(reshard_after_forward=false)").memory("peak") == derived("zero2").memory("peak")


fsdp_of_kept_parameters_takes_the_memory_of_stage_2.control(
    "it takes a shard of the parameters more",
    lambda P, N, b_theta: derived("fsdp(reshard_after_forward=false)").memory("peak") == derived("zero2").memory("peak") + P * b_theta / N,
    proved=True,
)


@theorem(
    expect=Refuted(
        witness={"P": 1000, "N": 8, "b_theta": 2, "b_g": 2, "b_omega": 12}, because="what leaves the device comes to lie on the host"
    ),
    cite="ren2021offload",
)
def offloading_takes_fewer_bytes(P: Positive, N: Degree, b_theta: Positive, b_g: Positive, b_omega: NonNegative):
    """ZeRO-Offload takes fewer bytes of model states than ZeRO stage 2, device and host together."""
    return states("zero_offload") + derived("zero_offload").memory("host") < states("zero2")


offloading_takes_fewer_bytes.control(
    "it takes as many", lambda: states("zero_offload") + derived("zero_offload").memory("host") == states("zero2"), proved=True
)


@theorem(
    expect=Refuted(witness={"A": 64, "N": 4, "m": 8, "b_a": 2}, because="all micro-batches of the batch are in flight at once"),
    cite="huang2019gpipe",
)
def more_micro_batches_keep_less_under_gpipe(A: Positive, N: Degree, m: Count, b_a: Positive):
    """At a fixed batch, a stage of a pipeline under GPipe keeps the activations of one micro-batch, as gradient accumulation does.

    Without recomputation.
    """
    return derived("pp(schedule=gpipe)").memory("activations") == derived("accumulate").memory("activations") / N


more_micro_batches_keep_less_under_gpipe.control(
    "it keeps those of the whole batch, into however many micro-batches it is cut",
    lambda A, N, b_a: derived("pp(schedule=gpipe)").memory("activations") == A * b_a / N,
    proved=True,
).control(
    "1F1B keeps as many as there are stages, where there are more micro-batches",
    lambda N, m: holds(derived("pp").memory("activations") == N * (derived("accumulate").memory("activations") / N), given=[m >= N]),
    proved=True,
)

MIXED, NARROW = PRECISIONS["mixed-adam"], PRECISIONS["bf16-adam"]
MASTER = PRECISIONS["fp32-adam"].b_theta


@theorem(
    expect=Refuted(witness={"P": 1}, because="moments are half of the 16 bytes, so that a quarter is saved"), cite="rajbhandari2020zero"
)
def moments_of_16_bits_halve_the_model_states(P: Positive):
    """Momentum and variance in 16 bits, with everything else as in mixed precision, halve the model states.

    The widths are those of the named precisions: 2 + 2 + 12 bytes a parameter, of which the master copy takes 4.
    """
    return 2 * (P * (MIXED.b_theta + MIXED.b_g + MASTER + NARROW.b_omega)) == P * MIXED.total


moments_of_16_bits_halve_the_model_states.control(
    "they save a quarter",
    lambda P: P * (MIXED.b_theta + MIXED.b_g + MASTER + NARROW.b_omega) == P * MIXED.total * Fraction(3, 4),
    proved=True,
).control("they halve if the master copy goes, too", lambda P: 2 * (P * NARROW.total) == P * MIXED.total, proved=True)


@theorem(
    expect=Refuted(
        witness={"P": 1, "b_theta": 2, "b_g": 4, "b_omega": 12}, because="with gradients in full precision it takes 18, as in Megatron-LM"
    ),
    cite="rajbhandari2020zero",
)
def mixed_precision_with_adam_takes_16_bytes(P: Real, b_theta: Real, b_g: Real, b_omega: Real):
    """Data parallelism with Adam in mixed precision takes eight times the compute copy, 16 bytes a parameter, however wide
    gradients are.

    Master copy, momentum and variance are twice as wide each as the compute copy.
    """
    return holds(states("ddp") == 8 * (P * b_theta), given=[b_omega == 6 * b_theta])


mixed_precision_with_adam_takes_16_bytes.control(
    "it does with gradients as wide as the compute copy",
    lambda P, b_theta, b_g, b_omega: holds(states("ddp") == 8 * (P * b_theta), given=[b_omega == 6 * b_theta, b_g == b_theta]),
    proved=True,
).control(
    "it takes nine times that, 18 bytes, with gradients twice as wide",
    lambda P, b_theta, b_g, b_omega: holds(states("ddp") == 9 * (P * b_theta), given=[b_omega == 6 * b_theta, b_g == 2 * b_theta]),
    proved=True,
)


@theorem(expect=Refuted(witness={"x": 80}, because="a GiB is 1,073,741,824 bytes"), cite="deepspeed2021memory")
def a_gigabyte_is_nearly_a_gibibyte(x: Positive):
    """A number of GiB is within 5% of the same number of GB.

    The source prints GB for GiB, as many tools do.
    """
    return x * GiB <= x * GB * Fraction(105, 100)


a_gigabyte_is_nearly_a_gibibyte.control(
    "it is between 7.3% and 7.4% more",
    lambda x: chain("<", x * GB * Fraction(1073, 1000), x * GiB, x * GB * Fraction(1074, 1000)),
    proved=True,
)

# Traffic.


@theorem(
    expect=Refuted(witness={"n": 8, "s": 1}, because="each device sends nearly twice the tensor, however many there are"),
    cite="patarasuk2009",
)
def an_all_reduce_sends_the_tensor_to_every_device(n: Degree, s: Positive["byte"]):
    """In an all-reduce of s bytes, each of n devices sends its tensor to all others."""
    return collective("all_reduce").sent(n, s) == (n - 1) * s


an_all_reduce_sends_the_tensor_to_every_device.control(
    "each sends less than 2 s", lambda n, s: collective("all_reduce").sent(n, s) < 2 * s, proved=True
)


@theorem(
    expect=Refuted(witness={"n": 8, "k": 4, "s": 1}, because="three steps of two rings send what one ring sends"), cite="patarasuk2009"
)
def a_hierarchical_all_reduce_sends_less(n: Degree, k: Degree, s: Positive["byte"]):
    """Of k nodes with n devices each, a reduce-scatter within nodes, an all-reduce across them and an all-gather within send less from
    a device than one ring over all."""
    within = collective("reduce_scatter").sent(n, s) + collective("all_gather").sent(n, s)
    return within + collective("all_reduce").sent(k, s / n) < collective("all_reduce").sent(n * k, s)


a_hierarchical_all_reduce_sends_less.control(
    "they send exactly as much",
    lambda n, k, s: (
        collective("reduce_scatter").sent(n, s) + collective("all_gather").sent(n, s) + collective("all_reduce").sent(k, s / n)
        == collective("all_reduce").sent(n * k, s)
    ),
    proved=True,
).control(
    "what crosses nodes is at most one n-th of two tensors",
    lambda n, k, s: collective("all_reduce").sent(k, s / n) < 2 * s / n,
    proved=True,
)


@theorem(
    expect=Refuted(
        witness={"L": 1, "b": 1, "s": 1, "h": 1, "N": 2, "b_a": 2}, because="backward gathers the split input of each block once more"
    ),
    cite="korthikanti2022activations",
)
def sequence_parallelism_sends_nothing_more(L: Real, b: Real, s: Real, h: Real, N: Degree, b_a: Real):
    """Tensor parallelism sends the same with and without sequence parallelism.

    Section 4.2.2 counts a reduce-scatter and an all-gather for each all-reduce, and has the further gather overlapped. Bytes do not
    overlap away.
    """
    return derived("tp * sp").sent == derived("tp").sent


sequence_parallelism_sends_nothing_more.control(
    "it sends a quarter more", lambda: 4 * derived("tp * sp").sent == 5 * derived("tp").sent, proved=True
)


@theorem(
    expect=Refuted(witness={"P": 1, "N": 2, "m": 2, "b_theta": 2, "b_g": 2}, because="gradients in parts are reduced for each micro-batch"),
    cite="rajbhandari2020zero",
)
def stage_2_sends_no_more_than_stage_1(P: Real, N: Degree, m: Count, b_theta: Real, b_g: Real):
    """With gradient accumulation over m micro-batches, ZeRO stage 2 sends no more than stage 1, as without."""
    return derived("zero2 * accumulate").sent <= derived("zero1 * accumulate").sent


stage_2_sends_no_more_than_stage_1.control(
    "stage 2 has m - 1 reduce-scatters more",
    lambda P, N, m, b_g: (
        derived("zero2 * accumulate").sent - derived("zero1 * accumulate").sent == (m - 1) * collective("reduce_scatter").sent(N, P * b_g)
    ),
    proved=True,
)

# Time.


def step(work, bandwidth):
    """Seconds of a data-parallel step: one N-th of the work, and the all-reduce after it."""
    return work / symbol("N") + derived("ddp").sent / bandwidth


@theorem(
    expect=Refuted(
        witness={"P": 1, "N": 2, "b_g": 2, "work": 8, "bandwidth": 1}, because="the all-reduce takes no less time, and even a little more"
    ),
    cite="li2020ddp",
)
def twice_the_devices_take_half_the_time(
    P: Positive, N: Degree, b_g: Positive, work: Positive["second"], bandwidth: Positive["byte / second"]
):
    """A data-parallel step at a fixed global batch takes half the time on twice the devices.

    The all-reduce is not overlapped with computation.
    """
    return step(work, bandwidth).where(N=2 * N) == step(work, bandwidth) / 2


twice_the_devices_take_half_the_time.control(
    "it takes half of the time for work, and an all-reduce that is no shorter",
    lambda N, work, bandwidth: step(work, bandwidth).where(N=2 * N) >= work / (2 * N) + derived("ddp").sent / bandwidth,
    proved=True,
)


def idle_share():
    """The share of a step for which a device of GPipe idles, by the product's forms: all passes take one unit, and messages none."""
    idle, busy = (schedule("gpipe").form(what).where(T_F=1, T_B=1, T_W=1, T_send=0) for what in ("idle", "busy"))
    return idle / (idle + busy)


@theorem(expect=Refuted(witness={"p": 8, "m": 32}, because="7 of 39 steps are idle"), cite="huang2019gpipe")
def four_micro_batches_a_stage_leave_no_tenth_idle(p: Degree, m: Degree):
    """With at least four times as many micro-batches as stages, at most a tenth of a device's time is bubble.

    The share is of the total time, and stages take equally long. The source calls the bubble negligible from there on.
    """
    return holds(idle_share() <= Fraction(1, 10), given=[m >= 4 * p])


four_micro_batches_a_stage_leave_no_tenth_idle.control(
    "less than a fifth is, and more than nothing",
    lambda p, m: holds(chain("<", 0, idle_share(), Fraction(1, 5)), given=[m >= 4 * p, p >= 2]),
    proved=True,
)


LAYER = ("attention_gpt", "mlp_gpt")


def of_a_layer(what, b, s, h, again=False):
    """Operations of a transformer layer of width h, with a feed-forward block of 4 times its width, on b sequences of s tokens."""
    counted = [operations(block, again=values_of(block) if again else None) for block in LAYER]
    sizes = {"batch": b, "tokens": s, "keys": s, "hidden": h, "heads": 1, "width": h, "ffn": 4 * h}
    first, second = (getattr(one, what).where(**sizes) for one in counted)
    return first + second


@theorem(
    expect=Refuted(witness={"b": 1, "s": 1, "h": 1}, because="forward is a third of the work, and that third is done twice"),
    cite=("chen2016sublinear", "narayanan2021megatron"),
)
def recomputation_doubles_the_work(b: Degree, s: Degree, h: Degree):
    """Full activation recomputation doubles the operations of a transformer layer, forward and backward."""
    return of_a_layer("total", b, s, h, again=True) == 2 * of_a_layer("total", b, s, h)


recomputation_doubles_the_work.control(
    "it adds a third",
    lambda b, s, h: 3 * of_a_layer("total", b, s, h, again=True) == 4 * of_a_layer("total", b, s, h),
    proved=True,
)


@theorem(
    expect=Refuted(witness={"b": 1, "s": 6, "h": 1}, because="scores and their use grow with the sequence, and have no parameters"),
    cite="narayanan2021megatron",
)
def six_for_each_parameter_and_token_is_everything(b: Degree, s: Degree, h: Degree):
    """A transformer layer takes six operations for each of the 12 h^2 elements of its matrices and each token, forward and backward."""
    return of_a_layer("total", b, s, h) == 6 * b * s * of_a_layer("of_matrices", b, s, h)


six_for_each_parameter_and_token_is_everything.control(
    "it takes less than 1% more where the sequence is shorter than 6% of the hidden size",
    lambda b, s, h: holds(
        of_a_layer("total", b, s, h) < Fraction(101, 100) * (6 * b * s * of_a_layer("of_matrices", b, s, h)), given=[100 * s < 6 * h]
    ),
    proved=True,
)


def of_looking_up(part):
    """Operations of an embedding, in products of matrices and in everything else."""
    return getattr(operations("embedding"), part) + getattr(operations("embedding", elements=True), part)


@theorem(
    expect=Refuted(
        witness={"batch": 1, "tokens": 1, "vocab": 1, "hidden": 1}, because="a token's row is read, and nothing is multiplied or added"
    ),
    cite="narayanan2021megatron",
)
def looking_up_multiplies_with_the_table(batch: Degree, tokens: Degree, vocab: Degree, hidden: Degree):
    """To embed a token takes 2 operations for each element of the table, as a product of a row of zeros and a one with it.

    The head does multiply with a table of this size.
    """
    return of_looking_up("forward") == 2 * batch * tokens * vocab * hidden


looking_up_multiplies_with_the_table.control(
    "it takes none, and backward one addition for each element of the batch's tokens and one for each sum over samples",
    lambda batch, tokens, vocab, hidden: [
        of_looking_up("forward") == 0,
        of_looking_up("weights") == batch * tokens * hidden + batch * vocab * hidden,
        operations("head").forward == 2 * batch * tokens * vocab * hidden,
    ],
    proved=True,
)
