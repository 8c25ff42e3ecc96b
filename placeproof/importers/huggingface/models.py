"""The parameters of decoder models as transformers defines them: what each layer registers, in its order, and what is outside all layers.

Names and shapes are those of transformers==5.23.0:models, in which the experts of a layer are one tensor for each matrix. Dimensions that
tensor parallelism divides are those of Shoeybi et al., "Megatron-LM" (arXiv 1909.08053), section 3: the output of the first matrix of a
pair, the input of the second one, and the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from placeproof.core.shapes import Weight

#: The values of a configuration by their first names; what was null is what it stands for.
Values: TypeAlias = Mapping[str, Any]
Weights: TypeAlias = Iterator[Weight]
#: How tensor parallelism divides a linear layer: its output, its input, or not at all.
OUTPUT, INPUT, WHOLE = "output", "input", "whole"


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
        yield from linear("lm_head", size, v["vocab_size"], OUTPUT)


def gated(name: str, hidden: int, inner: int, *, bias: bool = False) -> Weights:
    """A feed-forward network with a gate."""
    yield from linear(f"{name}.gate_proj", hidden, inner, OUTPUT, bias=bias)
    yield from linear(f"{name}.up_proj", hidden, inner, OUTPUT, bias=bias)
    yield from linear(f"{name}.down_proj", inner, hidden, INPUT, bias=bias)


def experts(name: str, number: int, hidden: int, inner: int) -> Weights:
    """The experts of a layer: (expert, output, input), gate and up in one tensor."""
    yield Weight(name=f"{name}.gate_up_proj", shape=(number, 2 * inner, hidden), split=1)
    yield Weight(name=f"{name}.down_proj", shape=(number, hidden, inner), split=2)


def _attention(v: Values, *, bias: bool = False, last_bias: bool = False) -> Weights:
    """Queries, keys, values and output; ``head_dim`` elements for each head."""
    hidden, width = v["hidden_size"], v["head_dim"]
    queries, keys = v["num_attention_heads"] * width, v["num_key_value_heads"] * width
    yield from linear("self_attn.q_proj", hidden, queries, OUTPUT, bias=bias)
    yield from linear("self_attn.k_proj", hidden, keys, OUTPUT, bias=bias)
    yield from linear("self_attn.v_proj", hidden, keys, OUTPUT, bias=bias)
    yield from linear("self_attn.o_proj", queries, hidden, INPUT, bias=last_bias)


def _two_norms(v: Values) -> Weights:
    yield from norm("input_layernorm", v["hidden_size"])
    yield from norm("post_attention_layernorm", v["hidden_size"])


def llama_layer(v: Values, number: int) -> Weights:
    """models/llama/modeling_llama.py:LlamaDecoderLayer. Gemma's is the same."""
    yield from _attention(v, bias=v["attention_bias"], last_bias=v["attention_bias"])
    yield from gated("mlp", v["hidden_size"], v["intermediate_size"], bias=v.get("mlp_bias", False))
    yield from _two_norms(v)


def mistral_layer(v: Values, number: int) -> Weights:
    """models/mistral/modeling_mistral.py:MistralDecoderLayer."""
    yield from _attention(v)
    yield from gated("mlp", v["hidden_size"], v["intermediate_size"])
    yield from _two_norms(v)


def qwen2_layer(v: Values, number: int) -> Weights:
    """models/qwen2/modeling_qwen2.py:Qwen2DecoderLayer."""
    yield from _attention(v, bias=True)
    yield from gated("mlp", v["hidden_size"], v["intermediate_size"])
    yield from _two_norms(v)


def mixtral_layer(v: Values, number: int) -> Weights:
    """models/mixtral/modeling_mixtral.py:MixtralDecoderLayer."""
    yield from _attention(v)
    yield Weight(name="mlp.gate.weight", shape=(v["num_local_experts"], v["hidden_size"]))
    yield from experts("mlp.experts", v["num_local_experts"], v["hidden_size"], v["intermediate_size"])
    yield from _two_norms(v)


def qwen2_moe_layer(v: Values, number: int) -> Weights:
    """models/qwen2_moe/modeling_qwen2_moe.py:Qwen2MoeDecoderLayer: with experts in every so many layers."""
    hidden = v["hidden_size"]
    yield from _attention(v, bias=v["qkv_bias"])
    if v["num_experts"] and number not in v["mlp_only_layers"] and (number + 1) % v["decoder_sparse_step"] == 0:
        yield Weight(name="mlp.gate.weight", shape=(v["num_experts"], hidden))
        yield from experts("mlp.experts", v["num_experts"], hidden, v["moe_intermediate_size"])
        yield from gated("mlp.shared_expert", hidden, v["shared_expert_intermediate_size"])
        yield from linear("mlp.shared_expert_gate", hidden, 1, WHOLE)
    else:
        yield from gated("mlp", hidden, v["intermediate_size"])
    yield from _two_norms(v)


def deepseek_v3_layer(v: Values, number: int) -> Weights:
    """models/deepseek_v3/modeling_deepseek_v3.py:DeepseekV3DecoderLayer. The correction bias of its router is a buffer, no parameter."""
    hidden = v["hidden_size"]
    yield from _latent_attention(v)
    if number < v["first_k_dense_replace"]:
        yield from gated("mlp", hidden, v["intermediate_size"])
    else:
        yield from experts("mlp.experts", v["n_routed_experts"], hidden, v["moe_intermediate_size"])
        yield Weight(name="mlp.gate.weight", shape=(v["n_routed_experts"], hidden))
        yield from gated("mlp.shared_experts", hidden, v["moe_intermediate_size"] * v["n_shared_experts"])
    yield from _two_norms(v)


def _latent_attention(v: Values) -> Weights:
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


def llama_root(v: Values) -> Weights:
    """What a model of Llama's kind has outside its layers."""
    yield from embedding("model.embed_tokens", v["vocab_size"], v["hidden_size"])
    yield from norm("model.norm", v["hidden_size"])
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


Layer: TypeAlias = Callable[[Values, int], Weights]
Root: TypeAlias = Callable[[Values], Weights]
#: Beginnings of the names of a layer's weights, in the order in which forward uses them.
Order: TypeAlias = Callable[[Values], tuple[str, ...]]
#: Elements of buffers by their type, "dtype" being that of the weights.
Buffers: TypeAlias = Callable[[Values], Mapping[str, int]]


def always(*names: str) -> Order:
    """An order that no setting changes."""
    return lambda _: names


llama_order = always("input_layernorm.", "self_attn.", "post_attention_layernorm.", "mlp.")


def opt_order(v: Values) -> tuple[str, ...]:
    """Norms stand before what they belong to, or after it."""
    attention = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")
    if v["do_layer_norm_before"]:
        return ("self_attn_layer_norm", *attention, "final_layer_norm", "fc1", "fc2")
    return (*attention, "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm")


def no_buffers(v: Values) -> Mapping[str, int]:
    """None but the tables of rotary positions, if there are such."""
    return {}


def gemma_buffers(v: Values) -> Mapping[str, int]:
    """What embeddings are multiplied by."""
    return {"dtype": 1}


def deepseek_v3_buffers(v: Values) -> Mapping[str, int]:
    """The correction biases of the routers."""
    return {"dtype": v["n_routed_experts"] * max(0, v["num_hidden_layers"] - v["first_k_dense_replace"])}
