"""A model's ``config.json`` of transformers, read as a stack of blocks: a family with the sizes that the configuration says.

What the file says is read and checked as for the shapes of its parameters (:mod:`.huggingface`). Only kinds of which all blocks are
written as programs can be read; a test counts their parameters both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placeproof.core import files
from placeproof.core.diagnostics import Problems
from placeproof.importers.document import Document, read_document
from placeproof.importers.huggingface import reader as huggingface
from placeproof.importers.huggingface.fields import FAMILIES, REQUIRED
from placeproof.importers.systems import MODEL_TYPE
from placeproof.models import Model
from placeproof.models.expressions import expression
from placeproof.models.family import family
from placeproof.models.model import build


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How configurations of one kind are read.

    ``sizes``: symbols as expressions of settings; one of which a setting is null is left to the family. ``always``: settings with the
    only value that the blocks have, and what another one would mean. ``dropout``: settings of probabilities, with transformers' defaults;
    a model has masks if one of them is not 0.
    """

    family: str
    sizes: Mapping[str, str]
    always: Mapping[str, tuple[object, str]] = field(default_factory=dict)
    dropout: Mapping[str, float] = field(default_factory=dict)


_DECODER = {"L": "num_hidden_layers", "h": "hidden_size", "a": "num_attention_heads", "V": "vocab_size"}
_GROUPED = {**_DECODER, "a_kv": "num_key_value_heads", "d": "head_dim"}
_NO_BIAS: dict[str, tuple[object, str]] = {"attention_bias": (False, "no block of grouped or latent attention here has biases")}
_LLAMA = Kind(
    family="llama",
    sizes={**_GROUPED, "f": "intermediate_size"},
    always={**_NO_BIAS, "mlp_bias": (False, "no gated feed-forward block here has biases")},
)

#: Kinds of models that can be read, as transformers calls them. Functions of one element are arbitrary in blocks, so that Gemma's gate,
#: and OPT's ReLU, are those of the families' blocks.
KINDS: dict[str, Kind] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "gemma": _LLAMA,
    "mixtral": Kind(family="mixtral", sizes={**_GROUPED, "f_e": "intermediate_size", "E": "num_local_experts", "k": "num_experts_per_tok"}),
    "deepseek_v3": Kind(
        family="deepseek_v3",
        sizes={
            **_DECODER,
            "L_dense": "first_k_dense_replace",
            "f": "intermediate_size",
            "f_e": "moe_intermediate_size",
            "f_s": "moe_intermediate_size * n_shared_experts",
            "E": "n_routed_experts",
            "k": "num_experts_per_tok",
            "r_q": "q_lora_rank",
            "r_kv": "kv_lora_rank",
            "d_nope": "qk_nope_head_dim",
            "d_rope": "qk_rope_head_dim",
            "d_v": "v_head_dim",
        },
        always=_NO_BIAS,
    ),
    "gpt2": Kind(
        family="gpt",
        sizes={"L": "n_layer", "h": "n_embd", "a": "n_head", "f": "n_inner", "V": "vocab_size", "n_pos": "n_positions"},
        always={"add_cross_attention": (False, "no block here attends to an encoder's output")},
        dropout={"attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1},
    ),
    "opt": Kind(
        family="gpt",
        sizes={**_DECODER, "f": "ffn_dim", "n_pos": "max_position_embeddings + 2"},
        always={
            "do_layer_norm_before": (True, "norms stand before the blocks here"),
            "_remove_final_layer_norm": (False, "there is a norm before the head here"),
            "enable_bias": (True, "matrices have biases here"),
            "layer_norm_elementwise_affine": (True, "norms have gains and biases here"),
        },
        dropout={"dropout": 0.1, "attention_dropout": 0.0},
    ),
    "bloom": Kind(
        family="bloom",
        sizes={"L": "n_layer", "h": "hidden_size", "a": "n_head", "V": "vocab_size"},
        dropout={"hidden_dropout": 0.0, "attention_dropout": 0.0},
    ),
}


def model_from_config(path: str | Path) -> Model:
    """The model of a ``config.json`` of transformers; batch, tokens, and what the file leaves open, stay symbols.

    Raises InputError with every problem of the file, and where a block of the model is not written as a program here.
    """
    text = files.read_text(path, code="PP501", help="give the path of a model's config.json")
    return parse_model_config(text, source=str(path))


def parse_model_config(text: str, *, source: str = "<config>") -> Model:
    """The same of a text in JSON; ``source`` names it. Raises InputError."""
    problems = Problems()
    document = read_document(text, source, "json", problems)
    shapes = huggingface.read(document, problems).shapes
    kind = str(document.data[MODEL_TYPE])
    found = KINDS.get(kind)
    if found is None:
        known = ", ".join(f"`{name}`" for name in sorted(KINDS))
        message = f"the blocks of a model of type `{kind}` are not written as programs, only the shapes of its parameters are known"
        help = f"models can be read of type {known}; `placeproof.importers.read_shapes` gives the shapes"
        problems.add("PP501", message, place=document.place(MODEL_TYPE), help=help)
        problems.raise_if_any()
    assert found is not None
    said = _said(document, kind)
    _check(document, found, said, problems)
    problems.raise_if_any()
    options = {"tied": "yes" if said["tie_word_embeddings"] else "no"}
    if found.dropout:
        options["dropout"] = "yes" if any(said[name] for name in found.dropout) else "no"
    name = Path(source).stem
    return build(family(found.family), name=name, title=shapes.name, source=source, sizes=_sizes(found, said), options=options)


def _said(document: Document, kind: str) -> dict[str, Any]:
    """Each setting that decides shapes by its first name, as the file says it or by default; the experts of a token; dropout."""
    values: dict[str, Any] = {}
    for setting in FAMILIES[kind].settings:
        name = next((n for n in (setting.name, *setting.aliases) if n in document.data), None)
        value = setting.default if name is None else document.data[name]
        assert value is not REQUIRED, setting.name
        values[setting.name] = value
    values["num_experts_per_tok"] = document.data.get("num_experts_per_tok")
    return values | {name: document.data.get(name, default) for name, default in KINDS[kind].dropout.items()}


def _check(document: Document, kind: Kind, said: Mapping[str, Any], problems: Problems) -> None:
    """What the blocks of the family do not have."""

    def refuse(name: str, message: str, help: str, code: str = "PP504") -> None:
        problems.add(code, message, place=document.place(name), help=help)

    shapes = "`placeproof.importers.read_shapes` gives the shapes of its parameters"
    for name, (value, why) in kind.always.items():
        if name in said and said[name] != value:
            refuse(name, f"`{name}` is {str(said[name]).lower()}: {why}", shapes)
    if kind.family == "deepseek_v3" and said["q_lora_rank"] is None:
        refuse("q_lora_rank", "`q_lora_rank` is null: the block of latent attention here compresses queries", shapes)
    narrow = said.get("word_embed_proj_dim")
    if narrow is not None and narrow != said["hidden_size"]:
        refuse("word_embed_proj_dim", "`word_embed_proj_dim` is another width than the stream's: no block here widens an embedding", shapes)
    for name in kind.dropout:
        if type(said[name]) not in (int, float) or not 0 <= said[name] < 1:
            refuse(name, f"`{name}` is a probability below 1, not {said[name]!r}", "0 leaves the masks out", "PP503")
    _check_choices(kind, said, refuse)


def _check_choices(kind: Kind, said: Mapping[str, Any], refuse: Callable[..., None]) -> None:
    """How many experts a token is sent to, which decides no shape."""
    name = "num_experts_per_tok"
    chosen, experts = said[name], said.get(kind.sizes.get("E", ""))
    if experts is None or chosen is None:
        return
    if type(chosen) is not int or chosen < 1:
        refuse(name, f"`{name}` is a whole number of at least 1, not {chosen!r}", "leave it out to have it as a symbol", "PP503")
    elif chosen > experts:
        refuse(name, f"a token is sent to {chosen} experts, and there are {experts}", "change one of the two")


def _sizes(kind: Kind, said: Mapping[str, Any]) -> dict[str, int]:
    """Symbols with their numbers. Layers beyond the last one are none."""
    found = {}
    for symbol, text in kind.sizes.items():
        expr = expression(text)
        if all(said.get(name) is not None for name in expr.names):
            found[symbol] = expr.at(said)
    if "L_dense" in found:
        found["L_dense"] = min(found["L_dense"], found["L"])
    return found
