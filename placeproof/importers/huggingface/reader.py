"""A model's ``config.json`` of transformers, read as the shapes of its parameters.

What decides shapes is in ``fields.py``, the modules are in ``models.py``. Settings that decide none are listed:
transformers takes a setting of any name, so that one is taken for misspelt only where it is all but the name of one that is not said.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.shapes import Shapes, Unit, Weight
from placeproof.importers.document import Document
from placeproof.importers.fields import KINDS, fits
from placeproof.importers.huggingface.fields import REQUIRED, Family, Setting, families
from placeproof.importers.huggingface.models import Values, layer
from placeproof.importers.huggingface.use import buffers, used
from placeproof.importers.imported import ImportedShapes, Reading, Role, not_modelled

#: Where a model of text and images says what it is of text.
_TEXT = "text_config"
_TIED = "tie_word_embeddings"
#: Types that may say what they are of text beside the rest, and that are tied if the text part is.
_FLAT = ("qwen2_vl", "qwen2_5_vl")
#: Whether models of text and images tie their embedding if they do not say.
_TIED_UNSAID = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "llama4"), False),
    **dict.fromkeys(("gemma3", "gemma4"), True),
}
#: More layers than any model has; a slip of the hand must not fill the memory with units.
MOST_LAYERS = 10_000
#: Numbers that decide no shape, in all families that have them.
_OTHER_NUMBERS = {
    **dict.fromkeys(
        (
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            "sliding_window",
            "attention_chunk_size",
            "num_experts_per_tok",
            "original_max_position_embeddings",
            "rotary_dim",
        ),
        "count",
    ),
    **dict.fromkeys(("rope_theta", "rotary_emb_base", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"), "positive"),
    **dict.fromkeys(("initializer_range", "init_std", "router_aux_loss_coef"), "amount"),
    **dict.fromkeys(
        (
            *(
                "attention_dropout",
                "hidden_dropout",
                "resid_pdrop",
                "embd_pdrop",
                "attn_pdrop",
                "dropout",
                "layerdrop",
                "classifier_dropout",
            ),
            *("summary_first_dropout", "rotary_pct", "partial_rotary_factor"),
        ),
        "fraction",
    ),
}
_KINDS = {
    "count": "a whole number of at least 1",
    "whole": "a whole number of at least 0",
    "flag": "true or false",
    "numbers": "a list of whole numbers",
    "texts": "a list of texts",
    "letters": "a text with a letter for each layer",
}
#: What the model is when it is saved, or in the hands of other code.
OUTSIDE = {
    "quantization_config": "saved weights are quantised, and have scales besides: shapes are those before that",
    "auto_map": "the model's own code may define it otherwise: shapes are those of transformers' class",
}
#: The same, and what the model is besides its parameters in training.
_OTHERWISE = {
    **OUTSIDE,
    "num_nextn_predict_layers": "modules that predict further tokens: transformers builds the model without them",
    "num_mtp_modules": "modules that predict further tokens: transformers builds the model without them",
    "num_mtp_layers": "modules that predict further tokens: transformers builds the model without them",
    "moe_layer_freq": "transformers does not read it: every layer after the first ones has experts",
    "index_topk": "what chooses keys has no gradient from the loss in transformers, and is counted as trained",
}


#: Another type is often a letter or two away: a hint is for what is misspelt.
_SPELT = 0.85
#: How many tokens a model was made for: a run may take fewer.
LONGEST = ("max_position_embeddings", "n_positions", "max_seq_len")
_LIMITS = dict.fromkeys((*LONGEST, "seq_length"), "the longest sequence: a limit, and not s, which a run says")


def read(document: Document, problems: Problems) -> ImportedShapes:
    """What a configuration says of shapes: of its text part, if it has others. Raises InputError with every problem of the file."""
    whole, document = document, text_part(document, problems)
    kind = document.data.get("model_type")
    family = families().get(kind) if isinstance(kind, str) else None
    if family is None:
        near = suggestion(str(kind), families(), near=_SPELT) or "one of " + ", ".join(f"`{name}`" for name in sorted(families()))
        others = "`--shapes FILE --shapes-from transformers` has those of other models, as has a file of shapes that lists them"
        place = document.place("model_type")
        problems.add("PP501", f"the parameters of a model of type `{kind}` are not known", place=place, help=f"{near}; {others}")
    problems.raise_if_any()
    assert family is not None
    names = _names(document, family, problems)
    values = _values(document, family, names, problems)
    _check(document, family, names, values, problems)
    problems.raise_if_any()
    resolved = _resolved(family, values)
    units = tuple(_units(family, resolved))
    readings = tuple(_readings(document, family))
    readings = readings if whole is document else tuple(_outer_readings(whole, readings))
    return ImportedShapes(
        kind=str(kind),
        source=document.source,
        shapes=Shapes(
            name=_title(str(kind), family, resolved) + ("" if whole is document else f", the text part of {whole.data['model_type']}"),
            units=units,
            dims=_dims(family, resolved),
            used=used(family, resolved, units),
            registered=None,
            buffers=buffers(document, family, resolved),
            notes=not_modelled(readings),
        ),
        readings=readings,
    )


def text_part(document: Document, problems: Problems) -> Document:
    """The part of a configuration that describes text, where others describe images or sound; else the whole.

    Whether the head's matrix is the embedding is up to the whole model, as in transformers. Raises InputError where the text part says
    otherwise, or where neither says it of a type whose default is not known here.
    """
    inner, kind = document.data.get(_TEXT), document.data.get("model_type")
    if not isinstance(inner, dict):
        flat = f"{kind}_text" if kind in _FLAT else kind
        return replace(document, data={**document.data, "model_type": flat}) if kind in _FLAT else document
    own = inner.get(_TIED)
    tied = document.data.get(_TIED, _TIED_UNSAID.get(str(kind)))
    if kind in _FLAT and own is True:
        tied = True  # these take it from there
    if tied is None or (own is not None and own != tied):
        why = "is not said of the model" if tied is None else "is said of the text part, and another value holds of the model"
        help = f'transformers takes that of the model: write `"{_TIED}"` beside `{_TEXT}`'
        problems.add("PP504", f"`{_TIED}` {why}", place=document.place(_TEXT, _TIED), help=help)
        problems.raise_if_any()
    spans = {path[1:]: span for path, span in document.spans.items() if path[0] == _TEXT and len(path) > 1}
    spans |= {(_TIED,): document.spans[(_TIED,)]} if (_TIED,) in document.spans else {}
    return replace(document, data={**inner, _TIED: tied}, spans=spans)


def _outer_readings(document: Document, inner: tuple[Reading, ...]) -> Iterator[Reading]:
    """The settings of a model with a text part, and in its place those of that part."""
    for name, value in document.data.items():
        if name == _TEXT:
            yield from (replace(reading, name=f"{_TEXT}.{reading.name}") for reading in inner if reading.name in value)
        elif name == _TIED:
            yield from (reading for reading in inner if reading.name == _TIED)
        elif name.endswith("_config") and value:
            note = "another part of the model: shapes are those of its text part"
            yield Reading(name=name, value=value, role=Role.NOT_MODELLED, note=note, place=document.place(name))
        else:
            role, note = (Role.READ, "which model it is") if name == "model_type" else (Role.NO_MATTER, "not used for shapes")
            yield Reading(name=name, value=value, role=role, note=note, place=document.place(name))


def _names(document: Document, family: Family, problems: Problems) -> dict[str, str]:
    """For each setting the name under which the file says it. A problem where it says two, with different values."""
    names = {}
    for setting in family.settings:
        said = [name for name in (setting.name, *setting.aliases) if name in document.data]
        for name in said[1:]:
            if document.data[name] != document.data[said[0]]:
                message = f"`{name}` and `{said[0]}` are one setting, and have two values"
                problems.add("PP504", message, place=document.place(name), help="say it once")
        names[setting.name] = said[0] if said else setting.name
    return names


def _values(document: Document, family: Family, names: dict[str, str], problems: Problems) -> dict[str, Any]:
    """What is said or the default, by the first name; what is wrong is a problem and is left out."""
    values: dict[str, Any] = {}
    for setting in family.settings:
        name = names[setting.name]
        if name not in document.data:
            if setting.default is REQUIRED:
                _missing(document, family, setting, problems)
            else:
                values[setting.name] = setting.default
        elif _fits(setting, document.data[name]):
            values[setting.name] = document.data[name]
        else:
            expects = _KINDS[setting.kind] + (" or null" if setting.null else "")
            message = f"`{name}` is {expects}, not {json.dumps(document.data[name])}"
            problems.add("PP503", message, place=document.place(name), help=setting.note)
    _misspelt(document, family, values, problems)
    if (values.get(family.layers) or 0) > MOST_LAYERS:
        name = names[family.layers]
        problems.add("PP503", f"`{name}` is at most {MOST_LAYERS}", place=document.place(name), help="no model has so many layers")
    return values


def _misspelt(document: Document, family: Family, values: Values, problems: Problems) -> None:
    """Refuse a name that no model has, and that is all but that of a setting of this one that is not said: its default would be taken."""
    unsaid = {s.name for s in family.settings if s.name in values and not {s.name, *s.aliases} & {*document.data}}
    unsaid |= ((family.model.names if family.model else set()) | _OTHERWISE.keys()) - {*document.data}
    unsaid |= set() if {*LONGEST} & {*document.data} else {*LONGEST}  # the length of sequences that is taken where none is asked for
    for name in [str(key) for key in document.data if key not in _every_name()]:
        if near := difflib.get_close_matches(name, unsaid, n=1, cutoff=_SPELT):
            message = (
                f"`{name}` is no setting of a model of type `{document.data['model_type']}`, which would take a default for `{near[0]}`"
            )
            problems.add(
                "PP502", message, place=document.place(name), help=f"did you mean `{near[0]}`? else leave it out, or say that, too"
            )


@cache
def _every_name() -> frozenset[str]:
    """The names of settings of all types of models."""
    names = {*_OTHER_NUMBERS, *_OTHERWISE, *_LIMITS}
    for family in families().values():
        names |= {name for s in family.settings for name in (s.name, *s.aliases)}
        names |= family.model.names if family.model else set()
    return frozenset(names)


def _missing(document: Document, family: Family, setting: Setting, problems: Problems) -> None:
    known = {name for other in family.settings for name in (other.name, *other.aliases)}
    near = difflib.get_close_matches(setting.name, [str(key) for key in document.data if key not in known], n=1, cutoff=0.85)
    help = f"`{near[0]}` is no setting of it: is that misspelt?" if near else f"{setting.note}; transformers would silently take a default"
    problems.add("PP503", f"`{setting.name}` is missing", place=document.place("model_type"), help=help)


def _fits(setting: Setting, value: object) -> bool:
    """Whether a value is of the setting's kind. A number is no text, and true is no 1: transformers checks types, too."""
    if value is None:
        return setting.null
    if setting.kind == "flag":
        return isinstance(value, bool)
    if setting.kind == "numbers":
        return isinstance(value, list) and all(type(item) is int for item in value)
    if setting.kind == "texts":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if setting.kind == "letters":
        return isinstance(value, str)
    return type(value) is int and value >= (1 if setting.kind == "count" else 0)


def _check(document: Document, family: Family, names: dict[str, str], values: Values, problems: Problems) -> None:
    """Sizes that contradict one another; only those that could be read."""

    def refuse(name: str, message: str, help: str) -> None:
        problems.add("PP504", message, place=document.place(names.get(name, name)), help=help)

    hidden, heads, keys = values.get(family.hidden), values.get(family.heads), values.get("num_key_value_heads")
    width, latent = values.get("head_dim"), "kv_lora_rank" in names
    if hidden and heads and hidden % heads and not latent and (width is None or family.divides):
        help = "change one of the two" + ("" if family.divides or "head_dim" not in names else ", or give `head_dim`")
        refuse(family.heads, f"a hidden size of {hidden} is no multiple of {heads} attention heads", help)
    if heads and keys and heads % keys:
        refuse("num_key_value_heads", f"{heads} attention heads are no multiple of {keys} heads of keys and values", "choose a divisor")
    turned = _turned(family, values)
    if turned % 2 and not _partial(document):
        said = family.rotary if family.rotary is not None and values.get(family.rotary) else family.heads
        refuse(said, f"a head of width {turned} cannot be turned in pairs, as rotary positions do", "make it even")
    layers = values.get(family.layers)
    wrong = [n for n in values.get("mlp_only_layers") or () if layers and not 0 <= n < layers]
    if wrong:
        refuse("mlp_only_layers", f"there is no layer {wrong[0]}: there are {layers}, counted from 0", "leave it out")
    for setting in family.settings:
        if setting.kind in ("texts", "letters") and (listed := values.get(setting.name)) is not None:
            _check_list(setting, listed, layers, refuse)
    _check_kinds(document, family, values, refuse)
    _check_class(document, problems)
    for name, kind in _OTHER_NUMBERS.items():
        value = document.data.get(name)
        if name not in names.values() and value is not None and (isinstance(value, str) or not fits(kind, value)):
            problems.add("PP503", f"`{name}` is {KINDS[kind]}, not {value!r}", place=document.place(name), help="leave it out, or mend it")


def _check_kinds(document: Document, family: Family, values: Values, refuse: Callable[[str, str, str], None]) -> None:
    """What models whose layers are of several kinds have to say of them."""
    for name in ("num_experts", "moe_intermediate_size") if values.get("enable_moe_block") else ():
        if values.get(name) is None:
            refuse(name, f"`{name}` is not said, and layers have experts: `enable_moe_block`", "say it, or leave experts out")
    shared = values.get("num_kv_shared_layers")
    if shared and values.get(family.layers) and "layer_types" in values:
        kinds = family.fill(values)["layer_types"]
        if {*kinds[: max(0, len(kinds) - shared)]} != {*kinds}:
            message = f"the last {shared} layers take keys and values of earlier ones, and of some kind there is no earlier layer"
            refuse("num_kv_shared_layers", message, "have fewer such layers")
    if "per_layer_config" in document.data and "global_head_dim" in values:
        message = "`per_layer_config` says sizes of single layers, which are not read"
        refuse("per_layer_config", message, "leave it out, and write `global_head_dim` and `num_global_key_value_heads`")
    if "layers_block_type" in values and not (values["layers_block_type"] or values.get("hybrid_override_pattern", True)):
        help = "transformers would silently take four layers of its own"
        refuse("model_type", "neither `hybrid_override_pattern` nor `layers_block_type` says what layers there are", help)


def _check_list(setting: Setting, listed: Sequence[str], layers: int | None, refuse: Callable[[str, str, str], None]) -> None:
    """A list with a word for each layer."""
    if len(listed) > MOST_LAYERS:
        refuse(setting.name, f"`{setting.name}` lists {len(listed)} layers, and a model has at most {MOST_LAYERS}", "list fewer")
    elif layers and len(listed) != layers:
        refuse(setting.name, f"`{setting.name}` lists {len(listed)} layers, and there are {layers}", "one word for each layer")
    for word in sorted({*listed} - {*setting.words}):
        refuse(setting.name, f"`{word}` is no kind of layer of this model", "one of " + ", ".join(f"`{w}`" for w in setting.words))


def _turned(family: Family, values: Values) -> int:
    """The width that rotary positions turn; 0 where it does not follow."""
    if family.rotary is None:
        return 0
    hidden, heads = values.get(family.hidden), values.get(family.heads)
    given = values.get(family.rotary)
    if given is None and family.rotary == "head_dim" and "head_dim" in values and hidden and heads and hidden % heads == 0:
        return int(hidden // heads)
    return int(given or 0)


def _partial(document: Document) -> bool:
    """Whether only a part of each head is turned."""
    tables = (document.data, document.data.get("rope_parameters"), document.data.get("rope_scaling"))
    return any(isinstance(table, dict) and "partial_rotary_factor" in table for table in tables)


def _check_class(document: Document, problems: Problems) -> None:
    said = document.data.get("architectures")
    place = document.place("architectures")
    if said is not None and not (isinstance(said, list) and all(isinstance(name, str) for name in said)):
        problems.add(
            "PP503", f"`architectures` is a list of texts, not {json.dumps(said)}", place=place, help="the classes that hold the weights"
        )
        return
    other = [name for name in said or () if not name.endswith(("ForCausalLM", "LMHeadModel", "Model"))]
    if other:
        message = f"`{other[0]}` is no language model: its head has other shapes"
        problems.add("PP504", message, place=place, help="only the shapes of language models are known; leave it out to have those")


def _resolved(family: Family, values: Values) -> dict[str, Any]:
    """The values with what null stands for."""
    hidden, heads = values[family.hidden], values[family.heads]
    stands = {
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
        "mlp_only_layers": (),
        "n_inner": 4 * hidden,
        "word_embed_proj_dim": hidden,
    }
    resolved = {name: stands[name] if value is None and name in stands else value for name, value in values.items()}
    resolved |= family.fill(resolved)
    words = {name: resolved.get(value, value) if isinstance(value, str) else value for name, value in family.means.items()}
    return {"inner_size": 4 * hidden, "head_dim": hidden // heads, "num_key_value_heads": heads, **resolved, **words}


def _units(family: Family, values: Values) -> Iterator[Unit]:
    """The root, then the layers in their order."""
    yield Unit(name="root", weights=tuple(family.root(values)))
    for number in range(values[family.layers]):
        name = f"{family.prefix}{number}"
        weights = (
            Weight(name=f"{name}.{w.name}", shape=w.shape, split=w.split) for w in layer(family.layer, family.sparse, values, number)
        )
        yield Unit(name=name, weights=tuple(weights))


def _title(kind: str, family: Family, values: Values) -> str:
    return f"{kind}, {values[family.layers]} layers of {values[family.hidden]}"


def _dims(family: Family, values: Values) -> tuple[tuple[str, int], ...]:
    """Sizes by the names that programs of blocks use. Batch and tokens are no model's; latent attention has no one width of a head."""
    heads = values[family.heads]
    dims = {"layers": values[family.layers], "hidden": values[family.hidden], "heads": heads}
    if "kv_lora_rank" not in values:
        width = values.get("head_dim", values[family.hidden] // heads)
        dims |= {"kv_heads": values.get("num_key_value_heads", heads), "width": width}
    dims |= {"ffn": values[family.inner], "vocab": values["vocab_size"]}
    experts = next((values[n] for n in ("num_local_experts", "num_experts", "n_routed_experts") if n in values), 0)
    if experts:
        dims |= {"experts": experts, "expert_ffn": values.get("moe_intermediate_size", values[family.inner])}
    return tuple(dims.items())


def _readings(document: Document, family: Family) -> Iterator[Reading]:
    """Each setting of the file once, and what became of it."""
    known = {name: s.note for s in family.settings for name in (s.name, *s.aliases)}
    known |= {"model_type": "which model it is", "architectures": "shapes are those of the causal language model"}
    for name, value in document.data.items():
        role, note = Role.NO_MATTER, _LIMITS.get(name, "not used for shapes")
        if name in known:
            role, note = Role.READ, known[name]
        elif name in _OTHERWISE and value not in (None, 0, {}) and (name, value) != ("moe_layer_freq", 1):
            role, note = Role.NOT_MODELLED, _OTHERWISE[name]
        yield Reading(name=name, value=value, role=role, note=note, place=document.place(name))
