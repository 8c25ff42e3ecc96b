"""Blocks of models, and the programs by which PyTorch and Megatron-core run them: that they are right, and what they keep, compute and
send.

A block's program says its forward and its backward. Sizes are those of its dimensions, tp is the degree of the axis that splits it, and
each number takes `each` bytes.
"""

from placeproof.models.programs import block_program
from placeproof.theory import Degree, Proved, Real, block, edited, holds, operations, theorem, wrong

KINDS = ("attention", "embedding", "feed_forward", "head", "norm")
#: How profiles run a block on several devices, by the folder and the ending of the programs' names.
SPLIT = ("torch/{}_megatron", "torch/{}_naive", "torch/{}_sp", "megatron/{}_tp", "megatron/{}_sp")
ATTENTION = ("attention", "attention_flash", "attention_gpt", "attention_gpt_flash", "attention_latent")
OTHERS = (
    "embedding",
    "embedding_learned",
    "head",
    "head_tied",
    "layer_norm",
    "layer_norm_stream",
    "mlp_gpt",
    "moe",
    "moe_shared",
    "rms_norm",
)


@theorem(expect=Proved(), cite=("touvron2023llama", "radford2019language", "jiang2024mixtral", "press2017tied"))
def blocks_of_models_are_right():
    """Norms, feed-forward blocks, experts with and without shared ones, embeddings and heads of the catalogue's models give the gradients
    of what they compute, whatever their sizes."""
    return wrong(*OTHERS, "swiglu") == 0


blocks_of_models_are_right.control(
    "the gradient of a gate without its slope",
    lambda: wrong(edited(block_program("swiglu"), "da * u * slope(silu, g)", "da * u")) == 0,
    refuted_at={},
)


@theorem(expect=Proved(), cite=("dao2022flashattention", "ainslie2023gqa", "deepseek2024technical"))
def attention_of_models_is_right_in_small_runs():
    """Attention of the catalogue's models, kept whole or computed again, of grouped heads or of latent ones, gives the gradients of what it
    computes, in small runs in exact arithmetic."""
    return wrong(*ATTENTION, runs=True) == 0


attention_of_models_is_right_in_small_runs.control(
    "without the sum over keys",
    lambda: wrong(edited(block_program("attention"), "p * (dp - contract(p, dp, over=keys))", "p * dp"), runs=True) == 0,
    refuted_at={},
)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "korthikanti2022activations"))
def blocks_of_profiles_are_right():
    """The programs by which PyTorch and Megatron-core run norms, feed-forward blocks, embeddings and heads are right on any number of
    devices, with whole streams and with streams split by tokens."""
    names = [name.format(kind) for kind in KINDS[1:] for name in ("torch/{}", *SPLIT)]
    return wrong(*names) == 0


blocks_of_profiles_are_right.control(
    "the output of a split matrix is not summed",
    lambda: (
        wrong(edited(program("torch/feed_forward_megatron"), "all_reduce(contract(a, w2, over=ffn), tp)", "contract(a, w2, over=ffn)")) == 0
    ),
    refuted_at={},
)


def program(name):
    """The program of a profile's block."""
    from placeproof.theory.blocks import named_block

    return named_block(name)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "dao2022flashattention"))
def attention_of_profiles_is_right_in_small_runs():
    """So are their programs of attention, in small runs in exact arithmetic."""
    return wrong(*(name.format("attention") for name in ("torch/{}", *SPLIT)), runs=True) == 0


attention_of_profiles_is_right_in_small_runs.control(
    "each device has the gradient of its own heads",
    lambda: wrong(edited(program("torch/attention_megatron"), "all_reduce(byq + byk + byv, tp)", "byq + byk + byv"), runs=True) == 0,
    refuted_at={},
)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "korthikanti2022activations"))
def implementations_share_out_the_operations_of_a_block(
    batch: Real, tokens: Real, hidden: Real, ffn: Real, vocab: Real, keys: Real, kv_heads: Real, group: Real, width: Real, tp: Degree
):
    """However a profile runs a block, devices share out its products of matrices, forward, again and for both kinds of gradients: each does
    a tp-th. On one device they are those of the models' block."""
    goals = []
    for kind, ours in (("attention", "attention_flash"), ("feed_forward", "swiglu"), ("head", "head")):
        alone = operations(f"torch/{kind}")
        for what in ("forward", "again", "inputs", "weights"):
            goals += [getattr(alone, what) == getattr(operations(ours), what)]
            goals += [tp * getattr(operations(name.format(kind)), what) == getattr(alone, what) for name in SPLIT]
    return holds([goal for goal in goals if not goal.trivial()])


implementations_share_out_the_operations_of_a_block.control(
    "of norms too, whose stream is whole",
    lambda tp: tp * operations("torch/norm_megatron", elements=True).forward == operations("torch/norm", elements=True).forward,
    refuted_at={"tp": 2, "batch": 1, "tokens": 1, "hidden": 1},
)


@theorem(expect=Proved(), cite=("korthikanti2022activations", "dao2022flashattention"))
def implementations_keep_the_parts_of_a_block(
    batch: Real, tokens: Real, hidden: Real, ffn: Real, vocab: Real, kv_heads: Real, group: Real, width: Real, tp: Degree, each: Real
):
    """PyTorch keeps what a block reads whole, and a tp-th of what is made inside: of attention queries, keys, values, the output, and a
    number for each query and head; of feed-forward blocks four tensors. Megatron-core with a stream split by tokens keeps a tp-th of what
    is read, too. Logits are whole; a norm keeps its part of the stream, and two numbers for each token of it."""
    stream, goals = batch * tokens * each, []
    heads = kv_heads * group * width
    for name in SPLIT:
        own = tp if name.startswith("megatron") and name.endswith("sp") else 1
        part = tp if name.endswith("sp") else 1
        inside = {
            "attention": stream * (2 * heads + 2 * kv_heads * width) / tp + 4 * batch * tokens * kv_heads * group / tp,
            "feed_forward": 4 * stream * ffn / tp,
            "head": stream * vocab + each + 8 * batch * tokens,
        }
        goals += [block(name.format(kind), lse=4).kept == stream * hidden / own + kept for kind, kept in inside.items()]
        goals += [block(name.format("norm")).kept == stream * (hidden + 2) / part]
    return holds(goals)


implementations_keep_the_parts_of_a_block.control(
    "PyTorch a tp-th of what is read as well",
    lambda tp: tp * block("torch/feed_forward_sp").kept == block("torch/feed_forward").kept,
    refuted_at={"tp": 2, "batch": 1, "tokens": 1, "hidden": 1, "ffn": 1, "each": 1},
)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "korthikanti2022activations"))
def implementations_exchange_the_stream(batch: Real, tokens: Real, hidden: Real, vocab: Real):
    """A split block exchanges the stream once in each pass, by an all-reduce, or, where it is split by tokens, by an all-gather before it
    and a reduce-scatter after it; Megatron-core gathers it once more for gradients by weights, PyTorch without a plan reduces once for each
    matrix that reads it. The head gathers logits beside. Norms sum gradients where tokens are split."""
    stream, goals = batch * tokens * hidden, []
    for name in SPLIT:
        split, again = name.endswith("sp"), name == "megatron/{}_sp"
        for kind, readers in (("attention", 3), ("feed_forward", 2)):
            one, backward = block(name.format(kind)), readers if name.endswith("naive") else 1
            goals += [one.about("all_gather", phase="forward") == (stream if split else 0)]
            goals += [one.about("reduce_scatter", phase="backward") == (stream if split else 0)]
            goals += [one.about("all_gather", phase="backward") == (1 + again if split else 0) * stream]
            goals += [one.about("reduce_scatter" if split else "all_reduce", phase="forward") == stream]
            goals += [one.about("all_reduce", phase="backward") == (0 if split else backward) * stream]
        head, table, norm = (block(name.format(kind)) for kind in ("head", "embedding", "norm"))
        goals += [head.about(phase="forward") == batch * tokens * vocab + (stream if split else 0)]
        goals += [head.about(phase="backward") == (1 + again) * stream, table.about(phase="forward") == stream]
        goals += [table.about(phase="backward") == (stream if split else 0), norm.about() == (hidden if split else 0)]
        goals += [
            head.calls() == 2 + (1 if split else 0) + again,
            table.calls() == (2 if split else 1),
            norm.calls() == (1 if split else 0),
        ]
    return holds([goal for goal in goals if not goal.trivial()])


implementations_exchange_the_stream.control(
    "with a plan or without",
    lambda: block("torch/attention_naive").about("all_reduce") == block("torch/attention_megatron").about("all_reduce"),
    refuted_at={"batch": 1, "tokens": 1, "hidden": 1},
)
