"""The parameters of decoder models as transformers defines them: what each layer registers, in its order, and what is outside all layers.

Names and shapes are those of transformers==5.23.0:models, in which the experts of a layer are one tensor for each matrix. Dimensions that
tensor parallelism divides are those of Shoeybi et al., "Megatron-LM" (arXiv 1909.08053), section 3: the output of the first matrix of a
pair, the input of the second one, and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from placeproof.core.shapes import Weight

#: The values of a configuration by their first names; what was null is what it stands for.
Values: TypeAlias = Mapping[str, Any]
Weights: TypeAlias = Iterator[Weight]
#: How tensor parallelism divides a linear layer: its output, its input, or not at all.
OUTPUT, INPUT, WHOLE = "output", "input", "whole"

#: Words that parts of layers read, which are no settings: biases, names, widths.
WORDS = (
    *("qkv_bias", "out_bias", "mlp_bias", "norm_bias", "head_bias", "router_bias", "qk_norm", "norms_learn", "dense_width"),
    *("qk_norm_names", "norm_names", "mlp_names", "out_name", "last_norm", "mlp", "router", "shared"),
)


def linear(name: str, into: int, out: int, split: str, *, bias: bool = False) -> Weights:
    """A linear layer: (output, input), as PyTorch keeps it. A bias is divided with the output."""
    yield Weight(name=f"{name}.weight", shape=(out, into), split={OUTPUT: 0, INPUT: 1, WHOLE: None}[split])
    if bias:
        yield Weight(name=f"{name}.bias", shape=(out,), split=0 if split == OUTPUT else None)


def transposed(name: str, into: int, out: int, split: str) -> Weights:
    """A linear layer with bias of GPT-2, which keeps it as (input, output)."""
    yield Weight(name=f"{name}.weight", shape=(into, out), split={OUTPUT: 1, INPUT: 0}[split])
    yield Weight(name=f"{name}.bias", shape=(out,), split=0 if split == OUTPUT else None)


def norm(name: str, size: int, *, bias: bool = False) -> Weights:
    """A normalisation: one weight for each of the hidden dimension, and one bias where it is a LayerNorm."""
    yield Weight(name=f"{name}.weight", shape=(size,))
    if bias:
        yield Weight(name=f"{name}.bias", shape=(size,))


def embedding(name: str, rows: int, size: int, *, split: bool = True) -> Weights:
    """A table of vectors; that of the vocabulary is divided by rows."""
    yield Weight(name=f"{name}.weight", shape=(rows, size), split=0 if split else None)


def head(v: Values, size: int) -> Weights:
    """The matrix to the vocabulary, unless it is the table of embeddings once more."""
    if not v["tie_word_embeddings"]:
        yield from linear("lm_head", size, v["vocab_size"], OUTPUT, bias=_biased(v, "head_bias"))
    elif _biased(v, "head_bias"):
        yield Weight(name="lm_head.bias", shape=(v["vocab_size"],), split=0)


def gated(name: str, hidden: int, inner: int, *, bias: bool = False) -> Weights:
    """A feed-forward network with a gate."""
    yield from linear(f"{name}.gate_proj", hidden, inner, OUTPUT, bias=bias)
    yield from linear(f"{name}.up_proj", hidden, inner, OUTPUT, bias=bias)
    yield from linear(f"{name}.down_proj", inner, hidden, INPUT, bias=bias)


def _biased(v: Values, name: str) -> bool:
    """Whether a kind of layers has biases; a family without the word has none."""
    return bool(v.get(name))


def attention(v: Values, number: int) -> Weights:
    """Queries, keys, values and output; ``head_dim`` elements for each head."""
    hidden, width, bias = v["hidden_size"], v["head_dim"], _biased(v, "qkv_bias")
    queries, keys = v["num_attention_heads"] * width, v["num_key_value_heads"] * width
    yield from linear("self_attn.q_proj", hidden, queries, OUTPUT, bias=bias)
    yield from linear("self_attn.k_proj", hidden, keys, OUTPUT, bias=bias)
    yield from linear("self_attn.v_proj", hidden, keys, OUTPUT, bias=bias)
    yield from linear(f"self_attn.{v.get('out_name', 'o_proj')}", queries, hidden, INPUT, bias=_biased(v, "out_bias"))


def fused_attention(v: Values, number: int) -> Weights:
    """The same with one matrix for queries, keys and values, behind that of the output."""
    hidden, width = v["hidden_size"], v["head_dim"]
    queries, keys = v["num_attention_heads"] * width, v["num_key_value_heads"] * width
    yield from linear("self_attn.o_proj", queries, hidden, INPUT)
    yield from linear("self_attn.qkv_proj", hidden, queries + 2 * keys, OUTPUT)


def sinks(v: Values, number: int) -> Weights:
    """A score for each head that no key has, and that takes its part of the softmax."""
    yield Weight(name="self_attn.sinks", shape=(v["num_attention_heads"],), split=0)


def head_norms(v: Values, number: int) -> Weights:
    """Norms of each head's query and key, with one gain for all heads."""
    if v.get("qk_norm", True):
        for name in v.get("qk_norm_names", ("q_norm", "k_norm")):
            yield from norm(f"self_attn.{name}", v["head_dim"], bias=_biased(v, "norm_bias"))


def own_head_norms(v: Values, number: int) -> Weights:
    """Norms of each head's query and key, with a gain of its own for each head."""
    if v.get("qk_norm", True):
        yield Weight(name="self_attn.q_norm.weight", shape=(v["num_attention_heads"], v["head_dim"]))
        yield Weight(name="self_attn.k_norm.weight", shape=(v["num_key_value_heads"], v["head_dim"]))


def listed_head_norms(v: Values, number: int) -> Weights:
    """The same as a norm for each head."""
    if v["qk_norm"]:
        for name, heads in (("q_layernorm", v["num_attention_heads"]), ("k_layernorm", v["num_key_value_heads"])):
            for head_ in range(heads):
                yield from norm(f"self_attn.{name}.norms.{head_}", v["head_dim"])


def whole_norms(v: Values, number: int) -> Weights:
    """Norms of all heads' queries together, and of their keys."""
    yield from norm("self_attn.q_norm", v["num_attention_heads"] * v["head_dim"])
    yield from norm("self_attn.k_norm", v["num_key_value_heads"] * v["head_dim"])


def norms(v: Values, number: int) -> Weights:
    """The norms of a layer, by the names that the family says."""
    for name in v.get("norm_names", ("input_layernorm", "post_attention_layernorm")):
        yield from norm(name, v["hidden_size"], bias=_biased(v, "norm_bias"))


def serial_norms(v: Values, number: int) -> Weights:
    """The norms of a layer whose second block reads the first's norm, too, if the two are parallel."""
    yield from norm("input_layernorm", v["hidden_size"], bias=True)
    if not v["use_parallel_residual"]:
        yield from norm("post_attention_layernorm", v["hidden_size"], bias=True)


def gated_mlp(v: Values, number: int) -> Weights:
    """The dense feed-forward network of a layer, with a gate."""
    yield from gated(v.get("mlp", "mlp"), v["hidden_size"], v.get("dense_width", v["intermediate_size"]), bias=_biased(v, "mlp_bias"))


def fused_gated_mlp(v: Values, number: int) -> Weights:
    """The same with gate and up in one matrix."""
    yield from linear("mlp.gate_up_proj", v["hidden_size"], 2 * v["intermediate_size"], OUTPUT)
    yield from linear("mlp.down_proj", v["intermediate_size"], v["hidden_size"], INPUT)


def plain_mlp(v: Values, number: int) -> Weights:
    """A feed-forward network without a gate, its matrices by the names that the family says."""
    into, out = v["mlp_names"]
    yield from linear(f"mlp.{into}", v["hidden_size"], v["intermediate_size"], OUTPUT, bias=_biased(v, "mlp_bias"))
    yield from linear(f"mlp.{out}", v["intermediate_size"], v["hidden_size"], INPUT, bias=_biased(v, "mlp_bias"))


def expert_sizes(v: Values) -> tuple[str, int, int, int]:
    """The name of what a layer's experts are in, their number, the hidden size, and the width of one."""
    number = next(v[name] for name in ("num_local_experts", "num_experts", "n_routed_experts") if name in v)
    return v.get("mlp", "mlp"), number, v["hidden_size"], v.get("moe_intermediate_size", v["intermediate_size"])


def experts(v: Values, number: int) -> Weights:
    """The experts of a layer: (expert, output, input), gate and up in one tensor."""
    name, count, hidden, inner = expert_sizes(v)
    yield Weight(name=f"{name}.experts.gate_up_proj", shape=(count, 2 * inner, hidden), split=1)
    yield Weight(name=f"{name}.experts.down_proj", shape=(count, hidden, inner), split=2)


def turned_experts(v: Values, number: int) -> Weights:
    """The same, as (expert, input, output)."""
    name, count, hidden, inner = expert_sizes(v)
    yield Weight(name=f"{name}.experts.gate_up_proj", shape=(count, hidden, 2 * inner), split=2)
    yield Weight(name=f"{name}.experts.down_proj", shape=(count, inner, hidden), split=1)


def biased_experts(v: Values, number: int) -> Weights:
    """The same with biases."""
    name, count, hidden, inner = expert_sizes(v)
    into, out = turned_experts(v, number)
    yield from (into, Weight(name=f"{name}.experts.gate_up_proj_bias", shape=(count, 2 * inner), split=1))
    yield from (out, Weight(name=f"{name}.experts.down_proj_bias", shape=(count, hidden)))


def router(v: Values, number: int) -> Weights:
    """The matrix that sends a token to experts."""
    name, count, hidden, _ = expert_sizes(v)
    yield from linear(f"{name}.{v.get('router', 'gate')}", hidden, count, WHOLE, bias=_biased(v, "router_bias"))


def shared_experts(v: Values, number: int) -> Weights:
    """Experts that every token passes, side by side as one network."""
    name, _, hidden, inner = expert_sizes(v)
    width = v.get("shared_expert_intermediate_size", inner * v.get("n_shared_experts", 1))
    if width:
        yield from gated(f"{name}.{v.get('shared', 'shared_experts')}", hidden, width)


def shared_gate(v: Values, number: int) -> Weights:
    """What says how much of the shared experts a token gets."""
    yield from linear("mlp.shared_expert_gate", v["hidden_size"], 1, WHOLE)


def is_sparse(v: Values, number: int) -> bool:
    """Whether a layer has experts, of a family some of whose layers have."""
    if v.get("mlp_layer_types"):
        return bool(v["mlp_layer_types"][number] == "sparse")
    if v.get("moe_layers") is not None:
        return number in v["moe_layers"]
    step = v.get("decoder_sparse_step") or v.get("interleave_moe_layer_step") or 1
    last = number + 1
    known = v.get("num_experts", 1) and number not in v.get("mlp_only_layers", ())
    return bool(known and number >= v.get("first_k_dense_replace", 0) and last % step == 0)


def latent_attention(v: Values, number: int) -> Weights:
    """Multi-head latent attention (arXiv 2412.19437, section 2.1.1): what is compressed is shared by all heads, and is not divided."""
    hidden, heads, rank, bias = v["hidden_size"], v["num_attention_heads"], v["kv_lora_rank"], v["attention_bias"]
    query = heads * (v["qk_nope_head_dim"] + v["qk_rope_head_dim"])
    if v["q_lora_rank"] is None:
        yield from linear("self_attn.q_proj", hidden, query, OUTPUT)
    else:
        yield from linear("self_attn.q_a_proj", hidden, v["q_lora_rank"], WHOLE, bias=bias)
        yield from norm("self_attn.q_a_layernorm", v["q_lora_rank"])
        yield from linear("self_attn.q_b_proj", v["q_lora_rank"], query, OUTPUT)
    yield from linear("self_attn.kv_a_proj_with_mqa", hidden, rank + v["qk_rope_head_dim"], WHOLE, bias=bias)
    yield from norm("self_attn.kv_a_layernorm", rank)
    yield from linear("self_attn.kv_b_proj", rank, heads * (v["qk_nope_head_dim"] + v["v_head_dim"]), OUTPUT)
    yield from linear("self_attn.o_proj", heads * v["v_head_dim"], hidden, INPUT, bias=bias)


def indexer(v: Values, number: int) -> Weights:
    """What chooses the keys of sparse attention: scores of its own heads, which are narrower. Some layers take the choice of another."""
    types, step = v.get("indexer_types"), v.get("index_topk_freq", 1)
    if types[number] == "shared" if types else max(number + 1 - v.get("index_skip_topk_offset", 2), 0) % step:
        return
    heads, width = v["index_n_heads"], v["index_head_dim"]
    yield from linear("self_attn.indexer.wq_b", v["q_lora_rank"], heads * width, WHOLE)
    yield from linear("self_attn.indexer.wk", v["hidden_size"], width, WHOLE)
    yield from norm("self_attn.indexer.k_norm", width, bias=True)
    yield from linear("self_attn.indexer.weights_proj", v["hidden_size"], heads, WHOLE)


def next_mixer(v: Values, number: int) -> Weights:
    """What a layer of Qwen3-Next mixes tokens with: linear attention, or attention whose queries come with a gate of what it gives."""
    if v["layer_types"][number] == "linear_attention":
        yield from gated_delta_net(v, number)
        return
    for weight in attention(v, number):
        twice = weight.name.startswith("self_attn.q_proj.")
        yield replace(weight, shape=(2 * weight.shape[0], *weight.shape[1:])) if twice else weight
    yield from head_norms(v, number)


def gated_delta_net(v: Values, number: int) -> Weights:
    """models/qwen3_next/modeling_qwen3_next.py:Qwen3NextGatedDeltaNet. Its plan of tensor parallelism divides outputs alone."""
    hidden, heads = v["hidden_size"], v["linear_num_value_heads"]
    keys, values = v["linear_num_key_heads"] * v["linear_key_head_dim"], heads * v["linear_value_head_dim"]
    yield Weight(name="linear_attn.dt_bias", shape=(heads,))
    yield Weight(name="linear_attn.A_log", shape=(heads,))
    yield Weight(name="linear_attn.conv1d.weight", shape=(2 * keys + values, 1, v["linear_conv_kernel_dim"]))
    yield from linear("linear_attn.in_proj_qkvz", hidden, 2 * keys + 2 * values, OUTPUT)
    yield from linear("linear_attn.in_proj_ba", hidden, 2 * heads, OUTPUT)
    yield from norm("linear_attn.norm", v["linear_value_head_dim"])
    yield from linear("linear_attn.out_proj", values, hidden, OUTPUT)


def next_layers(v: Values) -> Values:
    """Which layers of Qwen3-Next have linear attention, where the file does not list them."""
    every = (
        "full_attention" if (number + 1) % v["full_attention_interval"] == 0 else "linear_attention"
        for number in range(v["num_hidden_layers"])
    )
    return {"layer_types": v["layer_types"] or list(every)}


#: What a letter of a pattern of layers stands for, and older words.
_LETTERS = {
    "M": "linear_attention",
    "E": "moe",
    "*": "full_attention",
    "-": "mlp",
    "mamba": "linear_attention",
    "attention": "full_attention",
}


def hybrid_layers(v: Values) -> Values:
    """The layers of a Nemotron-H, as a pattern of letters or a list. Its table is never its head's matrix."""
    listed = v["layers_block_type"] or v["hybrid_override_pattern"] or ()
    kinds = [_LETTERS.get(word, word) for word in listed]
    return {"layers_block_type": kinds, "num_hidden_layers": len(kinds), "tie_word_embeddings": False}


def hybrid_layer(v: Values, number: int) -> Weights:
    """models/nemotron_h/modeling_nemotron_h.py:NemotronHBlock: a norm, and one of Mamba, attention, a feed-forward network, or experts."""
    yield from norm("norm", v["hidden_size"])
    mixers = {"linear_attention": mamba, "full_attention": _hybrid_attention, "mlp": _hybrid_mlp, "moe": _hybrid_experts}
    yield from mixers[v["layers_block_type"][number]](v)


def mamba(v: Values) -> Weights:
    """models/nemotron_h/modeling_nemotron_h.py:NemotronHMamba2Mixer; which of it tensor parallelism divides is not said."""
    hidden, heads, bias = v["hidden_size"], v["mamba_num_heads"], v["use_bias"]
    inner = heads * v["mamba_head_dim"]
    mixed = inner + 2 * v["n_groups"] * v["ssm_state_size"]
    yield from (Weight(name=f"mixer.{name}", shape=(heads,)) for name in ("dt_bias", "A_log", "D"))
    yield Weight(name="mixer.conv1d.weight", shape=(mixed, 1, v["conv_kernel"]))
    yield from (Weight(name="mixer.conv1d.bias", shape=(mixed,)) for _ in range(v["use_conv_bias"]))
    yield from linear("mixer.in_proj", hidden, inner + mixed + heads, WHOLE, bias=bias)
    yield from norm("mixer.norm", inner)
    yield from linear("mixer.out_proj", inner, hidden, WHOLE, bias=bias)


def _hybrid_attention(v: Values) -> Weights:
    for weight in attention(v, 0):
        yield replace(weight, name=weight.name.replace("self_attn.", "mixer."))


def _hybrid_mlp(v: Values, name: str = "mixer", inner: str = "intermediate_size") -> Weights:
    yield from linear(f"{name}.up_proj", v["hidden_size"], v[inner], OUTPUT, bias=v["mlp_bias"])
    yield from linear(f"{name}.down_proj", v[inner], v["hidden_size"], INPUT, bias=v["mlp_bias"])


def _hybrid_experts(v: Values) -> Weights:
    hidden, narrow = v["hidden_size"], v["moe_latent_size"]
    count, inner, into = v["n_routed_experts"], v["moe_intermediate_size"], narrow or hidden
    yield Weight(name="mixer.experts.up_proj", shape=(count, inner, into), split=1)
    yield Weight(name="mixer.experts.down_proj", shape=(count, into, inner), split=2)
    yield from linear("mixer.gate", hidden, count, WHOLE)
    yield from _hybrid_mlp(v, "mixer.shared_experts", "moe_shared_expert_intermediate_size")
    if narrow:
        yield from linear("mixer.fc1_latent_proj", hidden, narrow, WHOLE, bias=v["mlp_bias"])
        yield from linear("mixer.fc2_latent_proj", narrow, hidden, WHOLE, bias=v["mlp_bias"])


def hybrid_root(v: Values) -> Weights:
    """models/nemotron_h/modeling_nemotron_h.py:NemotronHForCausalLM."""
    yield from embedding("model.embeddings", v["vocab_size"], v["hidden_size"])
    yield from norm("model.norm_f", v["hidden_size"])
    yield from head(v, v["hidden_size"])


def gemma4_layers(v: Values) -> Values:
    """The kinds of Gemma 4's layers: every sixth sees all tokens where the file lists none, and the last one always."""
    every = ["sliding_attention" if (number + 1) % 6 else "full_attention" for number in range(v["num_hidden_layers"])]
    return {"layer_types": [*(v["layer_types"] or every)[:-1], "full_attention"]}


def _reuses(v: Values, number: int) -> bool:
    """Whether a layer of Gemma 4 has the keys and values of an earlier one."""
    return bool(number >= v["num_hidden_layers"] - v["num_kv_shared_layers"])


def gemma4_attention(v: Values, number: int) -> Weights:
    """models/gemma4/modeling_gemma4.py:Gemma4TextAttention. Layers that see all tokens have heads of another width, and may have other
    heads of keys, which may be the values, too."""
    full, hidden, bias = v["layer_types"][number] == "full_attention", v["hidden_size"], v["attention_bias"]
    same = full and v["attention_k_eq_v"]
    width = v["global_head_dim"] if full else v["head_dim"]
    keys = width * ((same and v["num_global_key_value_heads"]) or v["num_key_value_heads"])
    yield from linear("self_attn.q_proj", hidden, v["num_attention_heads"] * width, OUTPUT, bias=bias)
    yield from norm("self_attn.q_norm", width)
    if not _reuses(v, number):
        yield from norm("self_attn.k_norm", width)
        yield from linear("self_attn.k_proj", hidden, keys, OUTPUT, bias=bias)
        if not same:
            yield from linear("self_attn.v_proj", hidden, keys, OUTPUT, bias=bias)
    yield from linear("self_attn.o_proj", v["num_attention_heads"] * width, hidden, INPUT, bias=bias)


def gemma4_mlp(v: Values, number: int) -> Weights:
    """Twice as wide, if that is said, in layers that have the keys and values of another."""
    wide = v["use_double_wide_mlp"] and _reuses(v, number)
    yield from gated("mlp", v["hidden_size"], v["intermediate_size"] * (2 if wide else 1))


def gemma4_besides(v: Values, number: int) -> Weights:
    """Of a layer what it adds of a table of its own for each token, and experts beside the feed-forward network, each if that is said."""
    hidden, narrow = v["hidden_size"], v["hidden_size_per_layer_input"]
    if narrow:
        yield from linear("per_layer_input_gate", hidden, narrow, WHOLE)
        yield from linear("per_layer_projection", narrow, hidden, WHOLE)
        yield from norm("post_per_layer_input_norm", hidden)
    if v["enable_moe_block"]:
        yield Weight(name="router.scale", shape=(hidden,))
        yield Weight(name="router.per_expert_scale", shape=(v["num_experts"],))
        yield from linear("router.proj", hidden, v["num_experts"], WHOLE)
        for weight in experts(v, number):
            yield replace(weight, name=weight.name.removeprefix("mlp."))
        for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
            yield from norm(name, hidden)


def gemma4_root(v: Values) -> Weights:
    """models/gemma4/modeling_gemma4.py:Gemma4ForCausalLM: one table holds what is added of tokens in all layers."""
    hidden, narrow = v["hidden_size"], v["hidden_size_per_layer_input"]
    yield from embedding("model.embed_tokens", v["vocab_size"], hidden)
    yield from norm("model.norm", hidden)
    if narrow:
        every = v["num_hidden_layers"] * narrow
        yield from embedding("model.embed_tokens_per_layer", v["vocab_size_per_layer_input"], every)
        yield from linear("model.per_layer_model_projection", hidden, every, WHOLE)
        yield from norm("model.per_layer_projection_norm", narrow)
    yield from head(v, hidden)


def llama_root(v: Values) -> Weights:
    """What a model of Llama's kind has outside its layers."""
    yield from embedding("model.embed_tokens", v["vocab_size"], v["hidden_size"])
    if v.get("norms_learn", True):
        yield from norm(v.get("last_norm", "model.norm"), v["hidden_size"], bias=_biased(v, "norm_bias"))
    yield from head(v, v["hidden_size"])


def gpt2_layer(v: Values, number: int) -> Weights:
    """models/gpt2/modeling_gpt2.py:GPT2Block."""
    size, inner = v["n_embd"], v["n_inner"]
    yield from norm("ln_1", size, bias=True)
    yield from transposed("attn.c_attn", size, 3 * size, OUTPUT)
    yield from transposed("attn.c_proj", size, size, INPUT)
    yield from norm("ln_2", size, bias=True)
    if v["add_cross_attention"]:
        yield from transposed("crossattention.c_attn", size, 2 * size, OUTPUT)
        yield from transposed("crossattention.q_attn", size, size, OUTPUT)
        yield from transposed("crossattention.c_proj", size, size, INPUT)
        yield from norm("ln_cross_attn", size, bias=True)
    yield from transposed("mlp.c_fc", size, inner, OUTPUT)
    yield from transposed("mlp.c_proj", inner, size, INPUT)


def gpt2_root(v: Values) -> Weights:
    """models/gpt2/modeling_gpt2.py:GPT2LMHeadModel."""
    yield from embedding("transformer.wte", v["vocab_size"], v["n_embd"])
    yield from embedding("transformer.wpe", v["n_positions"], v["n_embd"], split=False)
    yield from norm("transformer.ln_f", v["n_embd"], bias=True)
    yield from head(v, v["n_embd"])


def _fused_layer(attention: str, hidden: int, inner: int, bias: bool) -> Weights:
    yield from linear(f"{attention}.query_key_value", hidden, 3 * hidden, OUTPUT, bias=bias)
    yield from linear(f"{attention}.dense", hidden, hidden, INPUT, bias=bias)
    yield from linear("mlp.dense_h_to_4h", hidden, inner, OUTPUT, bias=True)
    yield from linear("mlp.dense_4h_to_h", inner, hidden, INPUT, bias=True)


def gpt_neox_layer(v: Values, number: int) -> Weights:
    """models/gpt_neox/modeling_gpt_neox.py:GPTNeoXLayer."""
    yield from norm("input_layernorm", v["hidden_size"], bias=True)
    yield from norm("post_attention_layernorm", v["hidden_size"], bias=True)
    yield from _fused_layer("attention", v["hidden_size"], v["intermediate_size"], v["attention_bias"])


def gpt_neox_root(v: Values) -> Weights:
    """models/gpt_neox/modeling_gpt_neox.py:GPTNeoXForCausalLM."""
    yield from embedding("gpt_neox.embed_in", v["vocab_size"], v["hidden_size"])
    yield from norm("gpt_neox.final_layer_norm", v["hidden_size"], bias=True)
    yield from head(v, v["hidden_size"])


def bloom_layer(v: Values, number: int) -> Weights:
    """models/bloom/modeling_bloom.py:BloomBlock."""
    hidden = v["hidden_size"]
    first, second, third, fourth = _pairs(_fused_layer("self_attention", hidden, 4 * hidden, True))
    yield from (*norm("input_layernorm", hidden, bias=True), *first, *second)
    yield from (*norm("post_attention_layernorm", hidden, bias=True), *third, *fourth)


def _pairs(weights: Weights) -> list[tuple[Weight, ...]]:
    """Each linear layer's weight with its bias."""
    return [(weight, next(weights)) for weight in weights]


def bloom_root(v: Values) -> Weights:
    """models/bloom/modeling_bloom.py:BloomForCausalLM. Positions are biases of attention, without parameters."""
    yield from embedding("transformer.word_embeddings", v["vocab_size"], v["hidden_size"])
    yield from norm("transformer.word_embeddings_layernorm", v["hidden_size"], bias=True)
    yield from norm("transformer.ln_f", v["hidden_size"], bias=True)
    yield from head(v, v["hidden_size"])


def opt_layer(v: Values, number: int) -> Weights:
    """models/opt/modeling_opt.py:OPTDecoderLayer."""
    hidden, bias = v["hidden_size"], v["enable_bias"]
    for name in ("k_proj", "v_proj", "q_proj"):
        yield from linear(f"self_attn.{name}", hidden, hidden, OUTPUT, bias=bias)
    yield from linear("self_attn.out_proj", hidden, hidden, INPUT, bias=bias)
    yield from _opt_norm(v, "self_attn_layer_norm")
    yield from linear("fc1", hidden, v["ffn_dim"], OUTPUT, bias=bias)
    yield from linear("fc2", v["ffn_dim"], hidden, INPUT, bias=bias)
    yield from _opt_norm(v, "final_layer_norm")


def _opt_norm(v: Values, name: str) -> Weights:
    if v["layer_norm_elementwise_affine"]:
        yield from norm(name, v["hidden_size"], bias=True)


def opt_root(v: Values) -> Weights:
    """models/opt/modeling_opt.py:OPTForCausalLM. Positions start at 2."""
    hidden, narrow = v["hidden_size"], v["word_embed_proj_dim"]
    yield from embedding("model.decoder.embed_tokens", v["vocab_size"], narrow)
    yield from embedding("model.decoder.embed_positions", v["max_position_embeddings"] + 2, hidden, split=False)
    if narrow != hidden:
        yield from linear("model.decoder.project_out", hidden, narrow, WHOLE)
        yield from linear("model.decoder.project_in", narrow, hidden, WHOLE)
    if v["do_layer_norm_before"] and not v["_remove_final_layer_norm"]:
        yield from _opt_norm(v, "model.decoder.final_layer_norm")
    yield from head(v, narrow)


def llama4_layers(v: Values) -> Values:
    """Whether every second layer of a Llama 4 has experts, or all have; None where it is otherwise."""
    sparse = [is_sparse(v, number) for number in range(v["num_hidden_layers"])]
    pattern = [number % 2 == 1 for number in range(len(sparse))]
    return {"every_second_layer": False if all(sparse) else True if sparse == pattern else None}


def falcon_sizes(v: Values) -> Values:
    """What a Falcon's settings stand for: its new architecture has parallel blocks, and groups of heads; the old one has one, or all."""
    new, heads, hidden = v["new_decoder_architecture"], v["num_attention_heads"], v["hidden_size"]
    keys = v["num_kv_heads"] or heads
    layer_norms = v["num_ln_in_parallel_attn"] or (2 if new else 1)
    return {
        "num_key_value_heads": keys if new else 1 if v["multi_query"] else heads,
        "ffn_hidden_size": v["ffn_hidden_size"] or 4 * hidden,
        "num_ln_in_parallel_attn": layer_norms,
    }


def falcon_layer(v: Values, number: int) -> Weights:
    """models/falcon/modeling_falcon.py:FalconDecoderLayer."""
    hidden, width, bias = v["hidden_size"], v["hidden_size"] // v["num_attention_heads"], v["bias"]
    yield from linear("self_attention.query_key_value", hidden, hidden + 2 * v["num_key_value_heads"] * width, OUTPUT, bias=bias)
    yield from linear("self_attention.dense", hidden, hidden, INPUT, bias=bias)
    yield from linear("mlp.dense_h_to_4h", hidden, v["ffn_hidden_size"], OUTPUT, bias=bias)
    yield from linear("mlp.dense_4h_to_h", v["ffn_hidden_size"], hidden, INPUT, bias=bias)
    two = ("ln_attn", "ln_mlp") if v["num_ln_in_parallel_attn"] == 2 else ("input_layernorm",)
    for name in two if v["parallel_attn"] else ("post_attention_layernorm", "input_layernorm"):
        yield from norm(name, hidden, bias=True)


def falcon_root(v: Values) -> Weights:
    """models/falcon/modeling_falcon.py:FalconForCausalLM."""
    yield from embedding("transformer.word_embeddings", v["vocab_size"], v["hidden_size"])
    yield from norm("transformer.ln_f", v["hidden_size"], bias=True)
    yield from head(v, v["hidden_size"])


def mpt_layer(v: Values, number: int) -> Weights:
    """models/mpt/modeling_mpt.py:MptBlock. It has no biases, and passes over `expansion_ratio`."""
    hidden = v["d_model"]
    yield from norm("norm_1", hidden)
    yield from linear("attn.Wqkv", hidden, 3 * hidden, OUTPUT)
    yield from linear("attn.out_proj", hidden, hidden, INPUT)
    yield from norm("norm_2", hidden)
    yield from linear("ffn.up_proj", hidden, 4 * hidden, OUTPUT)
    yield from linear("ffn.down_proj", 4 * hidden, hidden, INPUT)


def mpt_root(v: Values) -> Weights:
    """models/mpt/modeling_mpt.py:MptForCausalLM. Positions are biases of attention, without parameters."""
    yield from embedding("transformer.wte", v["vocab_size"], v["d_model"])
    yield from norm("transformer.norm_f", v["d_model"])
    yield from head(v, v["d_model"])


#: The parts of a layer in the order of registration, of which this stands for those of a layer with experts, or of one without.
FEED_FORWARD = "feed_forward"


def layer(parts: Sequence[str], sparse: Sequence[str], v: Values, number: int) -> Weights:
    """The weights of a layer of these parts, each the name of a function here."""
    for part in parts:
        for name in (part,) if part != FEED_FORWARD else sparse if is_sparse(v, number) else ("gated_mlp",):
            yield from globals()[name](v, number)


#: Values that follow from others.
Fill: TypeAlias = Callable[[Values], Values]
Root: TypeAlias = Callable[[Values], Weights]


def nothing(v: Values) -> Values:
    """No value follows from others in a way of its own."""
    return {}
