"""The settings of transformers' configurations that decide shapes, for each type of model, with the defaults of transformers==5.23.0."""

from __future__ import annotations

from dataclasses import dataclass

from placeproof.importers.huggingface import models

#: A size without which there is no model; transformers would silently take that of its own first model.
REQUIRED = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. ``kind``: ``count`` (at least 1), ``whole`` (at least 0), ``flag``, or ``numbers`` (a list of whole numbers).

    ``aliases``: other names that transformers takes for it. ``default``: what it is if it is not said. ``null``: whether it may be null.
    """

    name: str
    note: str
    kind: str = "count"
    aliases: tuple[str, ...] = ()
    default: object = REQUIRED
    null: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One type of model. ``prefix``: of a layer's parameters, before its number.

    ``heads``, ``hidden``, ``layers``, ``inner``: the names of these sizes. ``divides``: whether heads must divide the hidden size even
    where the width of a head is given; ``rotary``: the setting whose size rotary positions turn in pairs, which is then even.

    ``order``: in which a layer uses its weights; ``ends``: beginnings of the names of what is used after all layers, in order; ``turned``:
    the part of a head that rotary positions turn, 0 where there are none; ``buffers``: those beside the tables of rotary positions. They
    are those of transformers==5.23.0, recorded by ``nightly/huggingface.py``.
    """

    settings: tuple[Setting, ...]
    layer: models.Layer
    root: models.Root
    prefix: str = "model.layers."
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    layers: str = "num_hidden_layers"
    inner: str = "intermediate_size"
    divides: bool = False
    rotary: str | None = "head_dim"
    order: models.Order = models.llama_order
    ends: tuple[str, ...] = ("model.norm.", "lm_head.")
    turned: float = 1
    buffers: models.Buffers = models.no_buffers


def flag(name: str, default: bool, note: str) -> Setting:
    """A switch."""
    return Setting(name=name, note=note, kind="flag", default=default)


_VOCABULARY = Setting(name="vocab_size", note="rows of the embedding")
_SIZES = (
    _VOCABULARY,
    Setting(name="hidden_size", note="hidden dimension: h"),
    Setting(name="num_hidden_layers", note="layers: L"),
    Setting(name="num_attention_heads", note="attention heads: a"),
)
_INNER = Setting(name="intermediate_size", note="inner dimension of the feed-forward network")
_KEYS = Setting(name="num_key_value_heads", note="heads of keys and values")
_KEYS_OR_NULL = Setting(name="num_key_value_heads", note="heads of keys and values; null: as many as heads", null=True)
_MAYBE_KEYS = Setting(name="num_key_value_heads", note=_KEYS_OR_NULL.note, default=None, null=True)
_WIDTH = Setting(name="head_dim", note="width of a head; null: the hidden size divided by the heads", default=None, null=True)
_WIDTH_GIVEN = Setting(name="head_dim", note="width of a head; left out: the hidden size divided by the heads", default=None)
_UNTIED = flag("tie_word_embeddings", False, "the embedding is the head's matrix too, and counts once")
_TIED = flag("tie_word_embeddings", True, _UNTIED.note)
_BIAS = flag("attention_bias", False, "biases of attention")
_ROUTED = Setting(name="moe_intermediate_size", note="inner dimension of an expert")

FAMILIES: dict[str, Family] = {
    "llama": Family(
        settings=(*_SIZES, _INNER, _MAYBE_KEYS, _WIDTH, _BIAS, flag("mlp_bias", False, "biases of the feed-forward network"), _UNTIED),
        layer=models.llama_layer,
        root=models.llama_root,
        divides=True,
    ),
    "mistral": Family(settings=(*_SIZES, _INNER, _KEYS, _WIDTH, _UNTIED), layer=models.mistral_layer, root=models.llama_root),
    "qwen2": Family(settings=(*_SIZES, _INNER, _KEYS_OR_NULL, _WIDTH_GIVEN, _UNTIED), layer=models.qwen2_layer, root=models.llama_root),
    "gemma": Family(
        settings=(
            *_SIZES,
            _INNER,
            _KEYS,
            Setting(name="head_dim", note="width of a head"),
            _BIAS,
            _TIED,
        ),
        layer=models.llama_layer,
        root=models.llama_root,
        buffers=models.gemma_buffers,
    ),
    "mixtral": Family(
        settings=(
            *_SIZES,
            Setting(name="intermediate_size", note="inner dimension of an expert"),
            _KEYS,
            _WIDTH,
            Setting(name="num_local_experts", note="experts of a layer", aliases=("num_experts",)),
            _UNTIED,
        ),
        layer=models.mixtral_layer,
        root=models.llama_root,
    ),
    "qwen2_moe": Family(
        settings=(
            *_SIZES,
            _INNER,
            _KEYS,
            _WIDTH_GIVEN,
            Setting(name="num_experts", note="experts of a layer", kind="whole"),
            _ROUTED,
            Setting(name="shared_expert_intermediate_size", note="inner dimension of the expert that sees every token"),
            Setting(name="decoder_sparse_step", note="every so many layers has experts", default=1),
            Setting(name="mlp_only_layers", note="layers without experts", kind="numbers", default=None, null=True),
            flag("qkv_bias", True, "biases of queries, keys and values"),
            _UNTIED,
        ),
        layer=models.qwen2_moe_layer,
        root=models.llama_root,
        order=models.always(
            "input_layernorm.", "self_attn.", "post_attention_layernorm.", "mlp.shared_expert.", "mlp.gate.", "mlp.experts.", "mlp."
        ),
    ),
    "deepseek_v3": Family(
        settings=(
            *_SIZES,
            _INNER,
            _ROUTED,
            _MAYBE_KEYS,
            Setting(name="n_routed_experts", note="experts of a layer", aliases=("num_local_experts",)),
            Setting(name="n_shared_experts", note="experts that see every token"),
            Setting(name="first_k_dense_replace", note="first layers, without experts", kind="whole"),
            Setting(name="kv_lora_rank", note="width of compressed keys and values"),
            Setting(name="q_lora_rank", note="width of compressed queries; null: they are not compressed", null=True),
            Setting(name="qk_rope_head_dim", note="width of a head that says a position"),
            Setting(name="qk_nope_head_dim", note="width of a head that says none"),
            Setting(name="v_head_dim", note="width of a head's values"),
            _BIAS,
            _UNTIED,
        ),
        layer=models.deepseek_v3_layer,
        root=models.llama_root,
        rotary="qk_rope_head_dim",
        order=models.always("input_layernorm.", "self_attn.", "post_attention_layernorm.", "mlp.gate.", "mlp.experts.", "mlp."),
        buffers=models.deepseek_v3_buffers,
    ),
    "gpt2": Family(
        settings=(
            _VOCABULARY,
            Setting(name="n_positions", note="rows of the table of positions", aliases=("max_position_embeddings",)),
            Setting(name="n_embd", note="hidden dimension: h", aliases=("hidden_size",)),
            Setting(name="n_layer", note="layers: L", aliases=("num_hidden_layers",)),
            Setting(name="n_head", note="attention heads: a", aliases=("num_attention_heads",)),
            Setting(name="n_inner", note="inner dimension of the feed-forward network; null: 4 h", default=None, null=True),
            flag("add_cross_attention", False, "a second attention, to an encoder's output"),
            _TIED,
        ),
        layer=models.gpt2_layer,
        root=models.gpt2_root,
        prefix="transformer.h.",
        hidden="n_embd",
        heads="n_head",
        layers="n_layer",
        inner="n_inner",
        rotary=None,
        order=models.always("ln_1.", "attn.", "ln_2.", "mlp.", ""),
        ends=("transformer.ln_f.", "lm_head."),
        turned=0,
    ),
    "gpt_neox": Family(
        settings=(*_SIZES, _INNER, flag("attention_bias", True, _BIAS.note), _UNTIED),
        layer=models.gpt_neox_layer,
        root=models.gpt_neox_root,
        prefix="gpt_neox.layers.",
        rotary=None,
        order=models.always("input_layernorm.", "attention.", "post_attention_layernorm.", "mlp."),
        ends=("gpt_neox.final_layer_norm.", "lm_head."),
        turned=0.25,
    ),
    "opt": Family(
        settings=(
            *_SIZES,
            Setting(name="ffn_dim", note="inner dimension of the feed-forward network"),
            Setting(name="max_position_embeddings", note="rows of the table of positions, which has 2 more"),
            Setting(name="word_embed_proj_dim", note="width of the embedding; null: h", default=None, null=True),
            flag("do_layer_norm_before", True, "norms stand before each block, and one at the end"),
            flag("_remove_final_layer_norm", False, "leaves out the norm at the end"),
            flag("enable_bias", True, "biases of all matrices"),
            flag("layer_norm_elementwise_affine", True, "norms have weights and biases"),
            _TIED,
        ),
        layer=models.opt_layer,
        root=models.opt_root,
        prefix="model.decoder.layers.",
        inner="ffn_dim",
        rotary=None,
        order=models.opt_order,
        ends=("model.decoder.final_layer_norm.", "model.decoder.project_out.", "lm_head."),
        turned=0,
    ),
    "bloom": Family(
        settings=(
            _VOCABULARY,
            Setting(name="hidden_size", note="hidden dimension: h", aliases=("n_embed",)),
            Setting(name="n_layer", note="layers: L", aliases=("num_hidden_layers",)),
            Setting(name="n_head", note="attention heads: a", aliases=("num_attention_heads",)),
            _TIED,
        ),
        layer=models.bloom_layer,
        root=models.bloom_root,
        prefix="transformer.h.",
        heads="n_head",
        layers="n_layer",
        inner="inner_size",
        rotary=None,
        order=models.always(""),
        ends=("transformer.ln_f.", "lm_head."),
        turned=0,
    ),
}
