"""What ``nightly/huggingface.py`` records of transformers==5.23.0: in which order layers use their weights, and buffers beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from placeproof.importers.huggingface.models import Values, expert_sizes, is_sparse

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


def correction_buffers(v: Values) -> Mapping[str, int]:
    """The correction biases of the routers."""
    return {"dtype": expert_sizes(v)[1] * sum(is_sparse(v, number) for number in range(v["num_hidden_layers"]))}


def gemma4_buffers(v: Values) -> Mapping[str, int]:
    """What embeddings and layers are multiplied by; what heads of another width have more frequencies."""
    more = 2 * (-(-v["global_head_dim"] // 2) - -(-v["head_dim"] // 2))
    return {"dtype": v["num_hidden_layers"] + 1 + bool(v["hidden_size_per_layer_input"]), "float32": more}


def hybrid_buffers(v: Values) -> Mapping[str, int]:
    """The correction biases of a Nemotron-H's routers."""
    return {"dtype": v["n_routed_experts"] * v["layers_block_type"].count("moe")}


def wide_correction_buffers(v: Values) -> Mapping[str, int]:
    """The same in fp32, whatever the weights are in."""
    return {"float32": correction_buffers(v)["dtype"]}
