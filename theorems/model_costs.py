"""What a model's stages hold, compute and send under a strategy, in closed form and for all sizes.

All quantities are derived from the linked program of a family's model: L layers of hidden size h with a heads, b sequences of s tokens in
a micro-batch, b_a bytes an activation, m micro-batches. What is said of a layer is what one layer more changes.
"""

from functools import cache

from placeproof.core.symbols import symbol
from placeproof.models import load
from placeproof.theory import Degree, Integer, Positive, Proved, Real, counted, derived, holds, minimum, schedule, term, theorem, units

#: Sizes of Llama 3 8B and of Mixtral 8x7B: hidden, of all key-value heads together, of a feed-forward block or an expert, heads.
HIDDEN, KEYS, FFN, HEADS = 4096, 1024, 14336, 32


@cache
def costs(strategy, model="gpt", recompute=None, layers=None):
    """What a model costs, with so many layers."""
    read = model if layers is None else load(model).resized({"L": layers})
    return derived(strategy, model=read, recompute=recompute)


def layer(amount):
    """What one layer more changes."""
    return amount.where(L=term(load("gpt").symbols()["L"]) + 1) - amount


def kept(strategy, model="gpt", recompute=None):
    """Bytes of activations that a device keeps of a layer."""
    return layer(costs(strategy, model, recompute).memory("activations"))


# Activations.


@theorem(expect=Proved(), cite="korthikanti2022activations")
def a_layer_keeps_what_korthikanti_counts(L: Real, h: Real, a: Real, b: Real, s: Real, V: Real, N: Degree):
    """With 2 bytes an activation, a layer of GPT keeps s b h (34 + 5 a s / h) bytes; over t devices s b h (10 + 24/t + 5 a s / (h t)) with
    tensor parallelism, s b h (34 + 5 a s / h) / t with the stream split by tokens; without what has an element for each query and key, the
    same without its last term; with everything computed again, s b h 2, or a t-th of it.

    Table 2 of the source.
    """
    one, core, goals = s * b * h * units("byte"), 5 * a * b * s**2 * units("byte"), []
    for recompute, stream, inside, scores in ((None, 10, 24, 1), ("selective", 10, 24, 0), ("full", 2, 0, 0)):
        inner = inside * one + scores * core
        for strategy, form in (("ddp", stream * one + inner), ("tp", stream * one + inner / N), ("tp * sp", (stream * one + inner) / N)):
            goals += [kept(strategy, recompute=recompute).where(b_a=2) == form]
    return holds(goals)


a_layer_keeps_what_korthikanti_counts.control(
    "34 s b h over the devices, whatever the stream",
    lambda h, b, s, N: kept("tp", recompute="selective").where(b_a=2) == 34 * s * b * h * units("byte") / N,
    refuted_at={"h": 1, "a": 1, "b": 1, "s": 1, "N": 2, "L": 1, "V": 1},
)


@theorem(expect=Proved(), cite=("korthikanti2022activations", "dao2022flashattention", "grattafiori2024llama", "jiang2024mixtral"))
def a_layer_keeps_its_tensors(b: Real, b_a: Real, N_tp: Degree, N_cp: Degree):
    """Llama 3 8B keeps of a layer six tensors of the stream's size, keys and values, four of the feed-forward block's, and 4 bytes for each
    query and head: the log-sum-exp, in place of probabilities. Mixtral 8x7B keeps those of attention, and of each of two choices four
    tensors of an expert's, two of the stream's, a gate, and the choice itself in 8 bytes.

    All of it is divided by the degrees of tensor and context parallelism, if the stream is split by tokens.
    """
    goals = []
    for model, tokens, numbers, sized in (
        ("llama3-8b", 8192, 6 * HIDDEN + 2 * KEYS + 4 * FFN, 4 * HEADS),
        ("mixtral-8x7b", 32768, 6 * HIDDEN + 2 * KEYS + 2 * (4 * FFN + 2 * HIDDEN + 1), 4 * HEADS + 8 * 2),
    ):
        more, less = (costs("tp * sp * cp", model, layers=number).memory("activations") for number in (2, 1))
        goals += [more - less == tokens * b * (numbers * b_a * units("element") + sized * units("byte")) / (N_tp * N_cp)]
    return holds(goals)


a_layer_keeps_its_tensors.control(
    "Mixtral as much as Llama on as many tokens",
    lambda: (
        4 * (costs("ddp", "llama3-8b", layers=2).memory("activations") - costs("ddp", "llama3-8b", layers=1).memory("activations"))
        == costs("ddp", "mixtral-8x7b", layers=2).memory("activations") - costs("ddp", "mixtral-8x7b", layers=1).memory("activations")
    ),
    refuted_at={"b": 1, "b_a": 2, "N_tp": 1, "N_cp": 1},
)


@theorem(expect=Proved(), cite="korthikanti2022activations")
def what_is_dropped_is_there_again_in_one_layer(
    L: Real, h: Real, a: Real, b: Real, s: Real, b_a: Real, N: Degree, V: Real, k: Real, f_e: Real
):
    """What recomputation does not keep of a layer, backward has again of one layer at a time: kept and computed again are together what is
    kept without it, of each word of recomputation."""
    goals = []
    for model, strategy, words in (("gpt", "tp", ("norms", "full", "selective+norms+mlp")), ("mixtral", "ddp", ("mlp", "full"))):
        for word in words:
            again = costs(strategy, model, word).memory("working")
            goals += [kept(strategy, model, word) + again == kept(strategy, model)]
    return holds(goals)


what_is_dropped_is_there_again_in_one_layer.control(
    "of all layers at once",
    lambda: costs("tp", "gpt", "full").memory("working").where(L=2) == 2 * costs("tp", "gpt", "full").memory("working").where(L=1),
    refuted_at={"L": 1, "h": 1, "a": 1, "b": 1, "s": 1, "b_a": 2, "N": 1, "V": 1, "k": 1, "f_e": 1},
)


@theorem(expect=Proved(), cite="korthikanti2022activations")
def words_of_recomputation_drop_what_they_say(L: Real, h: Real, a: Real, b: Real, s: Real, V: Real, b_a: Real, N: Degree):
    """Of a layer of GPT with dropout, `selective` drops what has an element for each query and key, 2 b_a + 1 bytes each; `norms` two
    tensors of the stream's size; `mlp` two of the feed-forward block's, over the devices that split it; together all of these."""
    stream, whole = s * b * h * b_a * units("element"), kept("tp")
    dropped = {"selective": a * b * s**2 * (2 * b_a * units("element") + units("byte")) / N, "norms": 2 * stream, "mlp": 8 * stream / N}
    goals = [whole - kept("tp", recompute=word) == amount for word, amount in dropped.items()]
    return holds(goals, whole - kept("tp", recompute="selective+norms+mlp") == sum(dropped.values()))


words_of_recomputation_drop_what_they_say.control(
    "what norms give is split by tensor parallelism",
    lambda N: (kept("tp") - kept("tp", recompute="norms")) * N == kept("ddp") - kept("ddp", recompute="norms"),
    refuted_at={"L": 1, "h": 1, "a": 1, "b": 1, "s": 1, "V": 1, "b_a": 2, "N": 2},
)


@theorem(expect=Proved(), cite=("korthikanti2022activations", "shoeybi2019megatron", "press2017tied"))
def ends_keep_their_inputs(h: Real, b: Real, s: Real, V: Real, b_a: Real, N: Degree):
    """Outside of its layers, GPT keeps the token ids twice, as inputs and as targets, and the positions, 8 bytes each; the mask of the
    embedding's dropout, a byte for each element of the stream; the stream before the last norm and behind it; of the loss one number for
    each logit, and the number of targets. Tensor parallelism splits logits alone."""
    ends = costs("tp").memory("activations").where(L=0)
    return ends == (16 * b * s + 8 * s + s * b * h) * units("byte") + (2 * s * b * h + s * b * V / N + 1) * b_a * units("element")


ends_keep_their_inputs.control(
    "it splits all",
    lambda N: N * costs("tp").memory("activations").where(L=0) == costs("ddp").memory("activations").where(L=0),
    refuted_at={"h": 1, "b": 1, "s": 1, "V": 1, "b_a": 2, "N": 2},
)


@theorem(expect=Proved(), cite=("micikevicius2022fp8", "korthikanti2022activations"))
def operands_in_fp8_take_a_byte(L: Real, h: Real, a: Real, b: Real, s: Real, b_a: Real, V: Real, N: Degree):
    """Where what is kept for gradients by weights and for nothing else takes one byte, a layer saves b_a - 1 bytes of each element of what
    two norms give, and of what attention and the activation function give over the devices that split them: for GPT 2 h and 5 h, for Llama,
    whose attention is computed again from its output, 2 h and 4 h."""
    saved = s * b * h * (b_a * units("element") - units("byte"))
    goals = []
    for model, inside in (("gpt", 5), ("llama", 4)):
        narrow = layer(derived("tp", model=model, fp8=True).memory("activations"))
        goals += [kept("tp", model) - narrow == saved * (2 + inside / N)]
    return holds(goals)


operands_in_fp8_take_a_byte.control(
    "as much of Llama as of GPT",
    lambda: (
        kept("ddp") - layer(derived("ddp", model="gpt", fp8=True).memory("activations"))
        == kept("ddp", "llama") - layer(derived("ddp", model="llama", fp8=True).memory("activations"))
    ),
    refuted_at={"L": 1, "h": 1, "a": 1, "b": 1, "s": 1, "b_a": 2, "V": 1, "N": 1},
)

# Parameters and model states.


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "narayanan2021megatron", "fedus2022switch"))
def devices_have_all_norms_and_parts_of_the_rest(L: Real, h: Real, V: Real, s: Real, E: Real, f_e: Real, N: Degree):
    """Tensor parallelism splits all weights but gains and biases along the hidden size, the table of positions, and routers; expert
    parallelism splits experts alone; context and data parallelism split none."""
    goals = []
    for model in ("gpt", "bloom", "mixtral"):
        has = counted(model)
        whole = has.parameters("norm") + has.parameters("router") + (s * h if model == "gpt" else 0)
        goals += [costs("tp", model).parameters() == (whole + (has.parameters() - whole) / N) * units("parameter")]
    experts, every = counted("mixtral").parameters("expert"), counted("mixtral").parameters()
    goals += [costs(name, "mixtral").parameters() == every * units("parameter") for name in ("zero3", "cp")]
    return holds(goals, costs("ep", "mixtral").parameters() == (every - experts + experts / N) * units("parameter"))


devices_have_all_norms_and_parts_of_the_rest.control(
    "a t-th of all",
    lambda N: N * costs("tp", "mixtral").parameters() == costs("zero3", "mixtral").parameters(),
    refuted_at={"L": 1, "h": 1, "V": 1, "s": 1, "E": 1, "f_e": 1, "N": 2},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "shoeybi2019megatron"))
def model_states_are_those_of_the_parameters(
    L: Real, h: Real, V: Real, s: Real, b_theta: Real, b_g: Real, b_omega: Real, N_dp: Degree, N_tp: Degree
):
    """What a device holds of each state is what the strategy holds of as many parameters as it has: of GPT under data parallelism, the
    first two stages of ZeRO and FSDP, each with tensor parallelism."""
    goals, number = [], costs("tp").parameters().where(N=N_tp)
    for name in ("ddp", "zero1", "zero2", "fsdp"):
        for state in ("parameters", "gradients", "optimizer"):
            goals += [costs(f"{name} * tp").memory(state) == derived(name).memory(state).where(P=number, N=N_dp)]
    return holds(goals)


model_states_are_those_of_the_parameters.control(
    "a part of all parameters, whoever has them",
    lambda N_dp, N_tp: (
        costs("zero1 * tp").memory("optimizer") == derived("zero1").memory("optimizer").where(P=costs("ddp").parameters() / N_tp, N=N_dp)
    ),
    refuted_at={"L": 1, "h": 1, "V": 1, "s": 1, "N_dp": 1, "N_tp": 2, "b_theta": 2, "b_g": 2, "b_omega": 12},
)


def together(strategy, model, what, **chosen):
    """What all four stages have together."""
    return sum(getattr(costs(strategy, model), what)(*chosen.values(), stage=f"stage {i}") for i in range(4))


@theorem(expect=Proved(), cite=("huang2019gpipe", "narayanan2021megatron", "qi2024zerobubble", "deepseek2025dualpipe"))
def stages_have_the_model_once(b: Real, c: Real):
    """The stages of a pipeline have together each weight of the model once, and compute each product of matrices once, with one run of
    layers on each device or several, of a model with layers of two kinds too. A table that both ends share lies on both; bidirectional
    schedules have all weights twice, and half of the work of each copy."""
    goals, one = [], costs("ddp", "llama3-8b")
    for order, copies in (("1f1b", 1), ("interleaved, chunks=2", 1), ("zb-v", 1), ("dualpipe", 2)):
        strategy = f"pp(4, schedule={order})"
        goals += [together(strategy, "llama3-8b", "parameters") == copies * one.parameters()]
        goals += [together(strategy, "llama3-8b", "work", kind=kind) == one.work(kind) for kind in ("forward", "weights")]
    tied = counted("gpt3-125m").size("V") * counted("gpt3-125m").size("h") * units("parameter")
    return holds(goals, together("pp(4)", "gpt3-125m", "parameters") == costs("ddp", "gpt3-125m").parameters() + tied)


stages_have_the_model_once.control(
    "a quarter each",
    lambda: 4 * costs("pp(4)", "gpt3-125m").parameters(stage="stage 1") == costs("ddp", "gpt3-125m").parameters(),
    refuted_at={"b": 1, "c": 1},
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "shoeybi2019megatron"))
def stages_have_the_layers_that_they_are_told(b: Real):
    """Stages with layers of their own have so many, and the ends beside; a padded vocabulary has a multiple of so many rows for each device
    that has a part of it: 128 on 8 devices make 51,200 of 50,257."""
    has, sizes = counted("gpt3-125m"), {name: counted("gpt3-125m").size(name) for name in ("h", "V", "s")}
    each, table = 12 * sizes["h"] ** 2 + 13 * sizes["h"], sizes["V"] * sizes["h"]
    run = derived("pp(4)", model="gpt3-125m", layers=(2, 3, 4, 3))
    ends = (table + sizes["s"] * sizes["h"], 0, 0, table + 2 * sizes["h"])
    goals = [run.parameters(stage=f"stage {i}") == (n * each + ends[i]) * units("parameter") for i, n in enumerate((2, 3, 4, 3))]
    padded = derived("ddp(2) * tp(8)", model="gpt3-125m", padding=128).parameters()
    whole = has.parameters("norm") + sizes["s"] * sizes["h"]
    return holds(goals, padded == (whole + (has.parameters() - whole - table + 51200 * sizes["h"]) / 8) * units("parameter"))


stages_have_the_layers_that_they_are_told.control(
    "a part of the vocabulary as it is",
    lambda: derived("tp(8)", model="gpt3-125m", padding=128).parameters() == derived("tp", model="gpt3-125m").parameters().where(N=8),
    refuted_at={"b": 1},
)


@theorem(expect=Proved(), cite=("narayanan2019pipedream", "narayanan2021megatron", "huang2019gpipe"))
def stages_keep_the_micro_batches_in_flight(b: Real, b_a: Real, m: Real):
    """By 1F1B stage i of p keeps the activations of p - i micro-batches, or of all; by GPipe every stage those of all. A layer has what it
    has without a pipeline."""
    single = costs("ddp", "llama3-8b", layers=2).memory("activations") - costs("ddp", "llama3-8b", layers=1).memory("activations")
    goals = [costs("pp(4, schedule=gpipe)", "llama3-8b").memory("activations", stage="stage 2") == 8 * m * single]
    for i in (1, 2):
        goals += [costs("pp(4)", "llama3-8b").memory("activations", stage=f"stage {i}") == 8 * minimum(4 - i, m) * single]
    return holds(goals)


stages_keep_the_micro_batches_in_flight.control(
    "as many on each stage",
    lambda: (
        costs("pp(4)", "llama3-8b").memory("activations", stage="stage 1")
        == costs("pp(4)", "llama3-8b").memory("activations", stage="stage 2")
    ),
    refuted_at={"b": 1, "b_a": 2, "m": 4},
)


@theorem(expect=Proved(), cite=("qi2024zerobubble", "narayanan2021megatron", "huang2019gpipe"))
def stages_keep_the_peak_of_their_schedule(b: Positive, b_a: Positive):
    """What a stage keeps is its schedule's closed form of the peak: with the bytes of its layers of one micro-batch, divided among its runs
    of layers, and of what gradients by weights need once those by inputs are done. These are of a layer of Llama 3 8B six tensors of the
    stream's size, what norms and attention give, gradients of these and of queries, those of keys and values, and three of the feed-forward
    block's."""
    single = costs("ddp", "llama3-8b", layers=2).memory("activations") - costs("ddp", "llama3-8b", layers=1).memory("activations")
    late = 8 * 8192 * b * (6 * HIDDEN + 2 * KEYS + 3 * FFN) * b_a * units("element")
    goals = []
    for name, chunks in (("1f1b", 1), ("gpipe", 1), ("zb-h1", 1), ("zb-h2", 1), ("interleaved", 2)):
        strategy = f"pp(4, schedule={name}{', chunks=2' if chunks == 2 else ''})"
        for d in (1, 2):
            form = schedule(name).peak.where(p=4, m=8, d=d, v=chunks, M_B=8 * single / chunks, M_W=late)
            goals += [costs(strategy, "llama3-8b").memory("activations", stage=f"stage {d}").where(m=8) == form]
    return holds(goals)


stages_keep_the_peak_of_their_schedule.control(
    "as 1F1B, whatever the schedule",
    lambda: (
        costs("pp(4, schedule=zb-h2)", "llama3-8b").memory("activations", stage="stage 1").where(m=8)
        == costs("pp(4)", "llama3-8b").memory("activations", stage="stage 1").where(m=8)
    ),
    refuted_at={"b": 1, "b_a": 2},
)

# Operations.


@theorem(expect=Proved(), cite=("narayanan2021megatron", "korthikanti2022activations", "jiang2024mixtral"))
def six_operations_for_each_matrix_and_token_and_attention(
    L: Real, h: Real, a: Real, b: Real, s: Real, V: Real, N: Degree, E: Real, k: Real, f_e: Real
):
    """A model computes 2 operations in forward for each token and element of the matrices that it meets, and 4 b s^2 h in each layer for
    scores and what they weigh; backward twice as much. Devices share this out: by tensor parallelism, and by context parallelism.

    Of GPT without biases and tables that are looked up in, 12 L h^2 + V h; of Mixtral, those of k experts, and the router.
    """
    matrices = {"gpt": L * 12 * h**2 + V * h, "mixtral": L * (4 * h**2 + 3 * k * f_e * h + E * h) + V * h}
    goals = []
    for model, number in matrices.items():
        for strategy in ("cp", "tp") if model == "gpt" else ("cp",):
            run, forward = costs(strategy, model), 2 * b * s * number + 4 * L * b * s**2 * h
            goals += [
                run.work("forward") == forward * units("operation") / N,
                run.work("weights") == 2 * b * s * number * units("operation") / N,
            ]
            goals += [
                run.work("model") == 3 * forward * units("operation") / N,
                run.work("inputs") + run.work("weights") == 2 * run.work("forward"),
            ]
    return holds(goals)


six_operations_for_each_matrix_and_token_and_attention.control(
    "six for each parameter",
    lambda b, s: costs("ddp").work("model") == 6 * b * s * costs("ddp").parameters() * units("operation") / units("parameter"),
    refuted_at={"L": 1, "h": 1, "a": 1, "b": 1, "s": 1, "V": 1, "N": 1, "E": 1, "k": 1, "f_e": 1},
)


@theorem(expect=Proved(), cite=("korthikanti2022activations", "chen2016sublinear"))
def recomputation_of_layers_adds_what_it_runs_again(L: Real, h: Real, b: Real, s: Real, V: Real, a: Real, N: Degree):
    """Layers that are computed again add their forward, and nothing of what is outside them; without what has an element for each query and
    key, 4 b s^2 h of each; without feed-forward blocks, 16 b s h^2, their last product among them; without norms, no product at all."""
    forward = layer(costs("tp").work("forward"))
    again = {
        "full": L * forward,
        "selective": 4 * L * b * s**2 * h * units("operation") / N,
        "mlp": 16 * L * b * s * h**2 * units("operation") / N,
        "norms": 0,
    }
    goals = [costs("tp", recompute=word).work("again") == amount for word, amount in again.items()]
    same = [costs("tp", recompute=word).work("model") == costs("tp").work("model") for word in ("full", "selective")]
    return holds(goals, [goal for goal in same if not goal.trivial()])


recomputation_of_layers_adds_what_it_runs_again.control(
    "the forward of all",
    lambda: costs("tp", recompute="full").work("again") == costs("tp").work("forward"),
    refuted_at={"L": 1, "h": 1, "b": 1, "s": 1, "V": 1, "a": 1, "N": 1},
)

# Traffic.


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "korthikanti2022activations"))
def tensor_parallelism_exchanges_the_stream(
    L: Real, h: Real, b: Real, s: Real, V: Real, a: Real, b_a: Real, b_g: Real, N: Degree, k: Real, E: Real, f_e: Real
):
    """In a layer of GPT tensor parallelism all-reduces the stream four times, 2 (N - 1)/N s b h each. With the stream split by tokens there
    are four reduce-scatters and six all-gathers in their place, two of these in backward for gradients by weights; and gradients of what is
    not split, 6 h, are summed. Experts exchange what each choice gives as well. Outside of layers
    there are an all-reduce in each pass, and three of a number for each token, of the loss."""
    stream, share = s * b * h * b_a * units("element"), (N - 1) / N
    whole, split = costs("tp"), costs("tp * sp")
    experts = costs("tp * sp", "mixtral")
    return holds(
        layer(whole.by("all_reduce")) == 8 * share * stream,
        layer(split.by("reduce_scatter")) == 4 * share * stream,
        layer(split.by("all_gather")) == 6 * share * stream,
        layer(split.by("all_reduce")) == 2 * share * 6 * h * b_g * units("parameter"),
        layer(experts.by("reduce_scatter")) == 2 * (1 + k) * share * stream,
        layer(experts.by("all_reduce")) == 2 * share * (2 + E) * h * b_g * units("parameter"),
        whole.by("all_reduce").where(L=0) == share * (4 * stream + 6 * b * s * b_a * units("element")),
    )


tensor_parallelism_exchanges_the_stream.control(
    "as many bytes with the stream split",
    lambda: layer(costs("tp").over("tp")) == layer(costs("tp * sp").over("tp")),
    refuted_at={
        "L": 1, "h": 1, "b": 1, "s": 1, "V": 1, "a": 1, "b_a": 2, "b_g": 2, "N": 2, "k": 1, "E": 1, "f_e": 1,
    },
)  # fmt: skip


@theorem(expect=Proved(), cite=("liu2023ring", "fedus2022switch", "lepikhin2021gshard"))
def rings_pass_keys_and_values_and_experts_exchange_choices(
    L: Integer, h: Real, b: Real, s: Real, V: Real, b_a: Real, b_g: Real, N: Integer, k: Real, c: Real, E: Real, f_e: Real
):
    """Context parallelism passes keys and values round a ring in each pass, N - 1 parts each, and their gradients, which have one step more
    to be home. Expert parallelism exchanges each choice of each token four times, there and back in each
    pass: back from a device that got c times as many as the mean."""
    stream = s * b * h * b_a * units("element")
    ring, experts = costs("cp", "mixtral"), costs("ep", "mixtral")
    return holds(
        layer(ring.by("shift")) == 4 * stream * (N - 1) / N + 2 * stream,
        layer(experts.by("all_to_all")) == 2 * (1 + c) * k * stream * (N - 1) / N,
        given=[N >= 2],
    )


rings_pass_keys_and_values_and_experts_exchange_choices.control(
    "on one device, too",
    lambda h, b, s, b_a, N: layer(costs("cp", "mixtral").by("shift")) == s * b * h * b_a * units("element") * (4 * (N - 1) / N + 2),
    refuted_at={"L": 1, "h": 1, "b": 1, "s": 1, "V": 1, "b_a": 2, "b_g": 2, "N": 1, "k": 1, "c": 1, "E": 1, "f_e": 1},
)


@theorem(expect=Proved(), cite=("huang2019gpipe", "narayanan2021megatron", "qi2024zerobubble", "deepseek2025dualpipe"))
def stages_hand_on_the_stream(b: Real, b_a: Real, m: Real, N_tp: Degree):
    """All stages together hand each micro-batch on and back as often as it goes to another device: 2 (p - 1) times the stream, for v runs
    of layers on each of p devices 2 (v p - 1) times, where the second run goes back 4 (p - 1) times, and of two copies, each of half of the
    micro-batches, 2 (p - 1) times. The first stage has nothing to hand back, the last one nothing to hand on.

    With the stream split by tokens over other devices, each sends its part.
    """
    stream, goals = 8192 * b * 4096 * b_a * m * units("element"), []
    for order, hops in (("1f1b", 6), ("interleaved, chunks=2", 14), ("zb-v", 12), ("dualpipe", 6)):
        goals += [together(f"pp(4, schedule={order})", "llama3-8b", "by", kind="send") == hops * stream]
    ends = costs("pp(4) * tp * sp", "llama3-8b")
    return holds(goals, [ends.by("send", stage=f"stage {i}") == hops * stream / N_tp for i, hops in enumerate((1, 2, 2, 1))])


stages_hand_on_the_stream.control(
    "each both ways",
    lambda: 4 * costs("pp(4)", "llama3-8b").by("send", stage="stage 1") == together("pp(4)", "llama3-8b", "by", kind="send"),
    refuted_at={"b": 1, "b_a": 2, "m": 1, "N_tp": 1},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp"))
def states_send_what_the_strategy_sends_of_the_parameters(
    L: Real, h: Real, V: Real, s: Real, a: Real, b: Real, b_theta: Real, b_g: Real, b_a: Real, N_dp: Degree, N_tp: Degree
):
    """Over the axis of data parallelism a device sends what the strategy sends of as many parameters as it has: of GPT under data
    parallelism, the first two stages of ZeRO and FSDP, each with tensor parallelism."""
    number = costs("tp").parameters().where(N=N_tp)
    names = ("ddp", "zero1", "zero2", "fsdp")
    return holds([costs(f"{name} * tp").over("dp") == derived(name).sent.where(P=number, N=N_dp) for name in names])


states_send_what_the_strategy_sends_of_the_parameters.control(
    "of all parameters",
    lambda N_dp: costs("ddp * tp").over("dp") == derived("ddp").sent.where(P=costs("ddp").parameters(), N=N_dp),
    refuted_at={"L": 1, "h": 1, "V": 1, "s": 1, "a": 1, "b": 1, "b_theta": 2, "b_g": 2, "b_a": 2, "N_dp": 2, "N_tp": 2},
)


@theorem(expect=Proved(), cite=("fedus2022switch", "rajbhandari2020zero", "lepikhin2021gshard", "zhao2023fsdp"))
def experts_are_held_and_sent_apart(
    L: Real, h: Real, V: Real, s: Real, b: Real, k: Real, c: Real, E: Real, f_e: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real,
    N_dp: Degree, N_ep: Degree, N_tp: Degree,
):  # fmt: skip
    """Beside expert parallelism, a device of Mixtral holds of each state, and sends over each axis for states, what the strategy holds and
    sends of as many parameters in experts and outside of them: under data parallelism, ZeRO of all stages and FSDP. Beside tensor
    parallelism that leaves experts whole, it is so of what that splits, and gradients of norms, routers and experts are summed over it."""
    has, goals = counted("mixtral"), []
    sizes = {"P": has.parameters() * units("parameter"), "P_expert": has.parameters("expert") * units("parameter")}
    for name in ("ddp * ep", "zero1 * ep", "zero2 * ep(experts=whole)", "zero3 * ep", "fsdp * ep"):
        one, forms = costs(name, "mixtral"), derived(name)
        goals += [one.memory(state) == forms.memory(state).where(**sizes) for state in ("parameters", "gradients", "optimizer")]
        over = ("dp", "dp*ep") if name == "ddp * ep" else ("dp",)
        goals += [one.over(axes) == forms.over(axes).where(**sizes) for axes in over]
        if name != "ddp * ep":
            goals += [one.by("all_reduce") == forms.over("ep").where(**sizes)]
    whole, rest = has.parameters("norm") + has.parameters("router"), has.parameters("matrix") + has.parameters("embedding")
    local = {"P": (whole + rest / N_tp + has.parameters("expert")) * units("parameter"), "P_expert": sizes["P_expert"]}
    both = costs("zero1 * ep(experts=whole) * tp * sp", "mixtral")
    goals += [both.over("dp") == derived("zero1 * ep").over("dp").where(**local)]
    copied = (whole + has.parameters("expert") / N_ep) * units("parameter")
    summed = 2 * (N_tp - 1) / N_tp * (copied * b_g / N_dp + 2 * b * s * b_a * units("element"))
    goals += [both.by("all_reduce") == derived("zero1 * ep").over("ep").where(**local) + summed]
    return holds(goals, both.memory("optimizer") == derived("zero1 * ep").memory("optimizer").where(**local))


experts_are_held_and_sent_apart.control(
    "experts as everything else",
    lambda: costs("zero1 * ep", "mixtral").memory("optimizer") == costs("zero1", "mixtral").memory("optimizer").where(N=symbol("N_dp")),
    refuted_at={
        "L": 1, "h": 1, "V": 1, "s": 1, "b": 1, "k": 1, "c": 1, "E": 2, "f_e": 1, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2,
        "N_dp": 2, "N_ep": 2, "N_tp": 1,
    },
)  # fmt: skip


@theorem(expect=Proved(), cite=("ren2021offload", "rajbhandari2021infinity", "chen2016sublinear"))
def hosts_hold_what_the_strategy_leaves_to_them(
    L: Real, h: Real, V: Real, s: Real, b: Real, b_theta: Real, b_g: Real, b_omega: Real, b_a: Real, N: Degree
):
    """The host holds of a model what the strategy holds on it of as many parameters, and of checkpoints the stream before each layer; then
    the device keeps of one micro-batch what is outside of layers alone."""
    number, stream = costs("ddp").parameters(), L * s * b * h * b_a * units("element")
    goals = [costs(name).memory("host") == derived(name).memory("host").where(P=number) for name in ("zero_offload", "zero_infinity")]
    both = costs("zero_offload * checkpoint(checkpoints=host)")
    goals += [both.memory("host") == derived("zero_offload").memory("host").where(P=number) + stream]
    return holds(goals, both.memory("kept") == costs("ddp").memory("kept").where(L=0))


hosts_hold_what_the_strategy_leaves_to_them.control(
    "the host holds no checkpoints",
    lambda: costs("zero_offload * checkpoint(checkpoints=host)").memory("host") == costs("zero_offload").memory("host"),
    refuted_at={"L": 1, "h": 1, "V": 1, "s": 1, "b": 1, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2, "N": 1},
)


@theorem(expect=Proved(), cite=("narayanan2021megatron", "huang2019gpipe", "deepseek2025dualpipe"))
def stages_have_micro_batches_in_flight_as_their_schedule_says(b: Real, b_a: Real, m: Integer):
    """Of so many micro-batches stage i of 4 has activations at once: by 1F1B 4 - i, by GPipe all, and else as the form of the
    peak says, of each of two runs of layers a half; and what it keeps is so many times what it keeps of one."""
    goals, single = [], costs("pp(4)", "llama3-8b").memory("kept", stage="stage 1")
    for i in range(4):
        goals += [costs("pp(4)", "llama3-8b").in_flight(stage=f"stage {i}") == minimum(4 - i, m)]
        goals += [costs("pp(4, schedule=gpipe)", "llama3-8b").in_flight(stage=f"stage {i}") == m]
    for name, chunks in (("interleaved, chunks=2", 2), ("zb-v", 2), ("zb-h2", 1)):
        form = schedule(name.partition(",")[0]).peak.where(p=4, m=8, d=1, v=chunks, M_B=1, M_W=0)
        flight = costs(f"pp(4, schedule={name})", "llama3-8b").in_flight(stage="stage 1").where(m=8)
        goals += [flight * chunks == form]
    whole = costs("pp(4)", "llama3-8b")
    return holds(goals, whole.memory("activations", stage="stage 1") == minimum(3, m) * single, given=[m >= 1])


stages_have_micro_batches_in_flight_as_their_schedule_says.control(
    "as many on each stage",
    lambda: costs("pp(4)", "llama3-8b").in_flight(stage="stage 0") == costs("pp(4)", "llama3-8b").in_flight(stage="stage 1"),
    refuted_at={"b": 1, "b_a": 2, "m": 4},
)
