"""A model's ``config.json`` of transformers, read as a stack of blocks: a family with the sizes that the configuration says.

What the file says is read and checked as for the shapes of its parameters (:mod:`.huggingface`). Only kinds of which all blocks are
written as programs can be read; a test counts their parameters both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from placeproof.core import files
from placeproof.core.diagnostics import Problems
from placeproof.importers.document import Document, read_document
from placeproof.importers.huggingface import reader as huggingface
from placeproof.importers.huggingface.fields import REQUIRED, Blocks, families
from placeproof.importers.huggingface.reader import LONGEST
from placeproof.importers.systems import MODEL_TYPE
from placeproof.models import Model
from placeproof.models.expressions import expression
from placeproof.models.family import family
from placeproof.models.model import build

#: Types whose window is not used unless the file says so.
_WINDOW_UNUSED = ("qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3", "qwen3_moe", "smollm3")
#: Probabilities of dropout, which few blocks have masks for.
_MASKS = ("attention_dropout", "hidden_dropout", "residual_dropout", "embedding_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop")


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
    document = huggingface.text_part(document, problems)
    kind = str(document.data[MODEL_TYPE])
    blocks = families()[kind].model
    if blocks is None:
        known = ", ".join(f"`{name}`" for name, one in sorted(families().items()) if one.model)
        lacks = f": {families()[kind].lacks};" if families()[kind].lacks else ","
        message = f"the blocks of a model of type `{kind}` are not written as programs{lacks} only the shapes of its parameters are known"
        help = f"models can be read of type {known}; `placeproof.importers.read_shapes` gives the shapes"
        problems.add("PP501", message, place=document.place(MODEL_TYPE), help=help)
        problems.raise_if_any()
    assert blocks is not None
    said = _said(document, kind, blocks)
    _check(document, blocks, said, problems)
    problems.raise_if_any()
    options = {"tied": "yes" if said["tie_word_embeddings"] else "no"}
    options |= {one.option: one.value(said[one.setting]) or "" for one in blocks.options}
    if blocks.dropout:
        options["dropout"] = "yes" if any(said[name] for name in blocks.dropout) else "no"
    name, made, sizes = Path(source).stem, family(blocks.family), _sizes(blocks, said)
    longest = next((document.data[name] for name in LONGEST if name in document.data), None)
    notes = [made.note, *_notes(document, blocks, longest)]
    if longest is not None:
        sizes["s"] = longest
    note = " ".join(n for n in notes if n)
    return build(made, name=name, title=shapes.name, source=source, sizes=sizes, options=options, note=note)


def _notes(document: Document, blocks: Blocks, longest: int | None) -> Iterator[str]:
    """What an answer has to say of a configuration besides its numbers."""
    if longest is not None:
        yield f"Unless s is set, it is the longest sequence that the file says, {longest}."
    window = document.data.get("sliding_window", blocks.window)
    chunk = document.data.get("attention_chunk_size", blocks.chunk) if blocks.chunk is not None else None
    windows = window is not None and document.data.get("use_sliding_window", document.data[MODEL_TYPE] not in _WINDOW_UNUSED)
    for seen in (f"a window of {window} tokens",) * bool(windows) + (f"chunks of {chunk} tokens",) * (chunk is not None):
        yield (
            f"Some layers see {seen}. They are counted as if each token saw all: of longer sequences these are more"
            " operations than there are, and what is kept is the same."
        )


def _said(document: Document, kind: str, blocks: Blocks) -> dict[str, Any]:
    """Each setting that decides shapes by its first name, as the file says it or by default, and what follows from them; the experts of a
    token; dropout; what else blocks have one value of."""
    values: dict[str, Any] = {}
    for setting in families()[kind].settings:
        name = next((n for n in (setting.name, *setting.aliases) if n in document.data), None)
        value = setting.default if name is None else document.data[name]
        assert value is not REQUIRED, setting.name
        values[setting.name] = value
    values |= families()[kind].fill(values)
    values["num_experts_per_tok"] = document.data.get("num_experts_per_tok")
    unsaid = {one.setting: one.default for one in blocks.always if one.default is not None or one.value is None}
    unsaid |= {one.setting: one.default for one in blocks.options}
    values = {name: _inside(document.data, name, default) for name, default in unsaid.items()} | values
    values |= {name: document.data.get(name, blocks.masks.get(name, 0)) or 0 for name in _MASKS if name not in blocks.dropout}
    return values | {name: document.data.get(name, default) for name, default in blocks.dropout.items()}


def _inside(data: Any, name: str, default: Any) -> Any:
    """A setting, of which a dot stands between tables."""
    for key in name.split("."):
        if not isinstance(data, Mapping) or key not in data:
            return default
        data = data[key]
    return data


def _check(document: Document, kind: Blocks, values: Mapping[str, Any], problems: Problems) -> None:
    """What the blocks of the family do not have."""

    def refuse(name: str, message: str, help: str, code: str = "PP504") -> None:
        problems.add(code, message, place=document.place(*name.split(".")) or document.place(MODEL_TYPE), help=help)

    shapes = "`placeproof.importers.read_shapes` gives the shapes of its parameters"
    for one in kind.always:
        said = values.get(one.setting)
        if said is None:
            said = [] if one.value == [] else one.default
        if one.setting in values and said != one.value:
            refuse(one.setting, f"`{one.setting}` is {str(values[one.setting]).lower()}: {one.why}", shapes)
    for option in kind.options:
        if option.value(said := values[option.setting]) is None:
            known = " or ".join(option.words)
            refuse(option.setting, f"`{option.setting}` is {said}: the blocks of this family are those of {known}", shapes)
    if values.get("num_ln_in_parallel_attn") == 2 and not values["new_decoder_architecture"]:
        refuse("num_ln_in_parallel_attn", "`num_ln_in_parallel_attn` is 2: of the old architecture both blocks read one norm", shapes)
    if kind.family == "deepseek_v3" and values["q_lora_rank"] is None:
        refuse("q_lora_rank", "`q_lora_rank` is null: the block of latent attention here compresses queries", shapes)
    if kind.family == "llama4":
        _check_turns(document, values, refuse)
    narrow = values.get("word_embed_proj_dim")
    if narrow is not None and narrow != values["hidden_size"]:
        refuse("word_embed_proj_dim", "`word_embed_proj_dim` is another width than the stream's: no block here widens an embedding", shapes)
    for name in _MASKS:
        if name not in kind.dropout and values[name]:
            refuse(name, f"`{name}` is {values[name]}: no block of this type has masks of dropout", "0 leaves them out")
    for name in kind.dropout:
        if type(values[name]) not in (int, float) or not 0 <= values[name] < 1:
            refuse(name, f"`{name}` is a probability below 1, not {values[name]!r}", "0 leaves the masks out", "PP503")
    _check_choices(kind, values, refuse)


def _check_turns(document: Document, values: Mapping[str, Any], refuse: Callable[..., None]) -> None:
    """Llama 4 has layers of several kinds, which come in turn."""
    shapes = "`placeproof.importers.read_shapes` gives the shapes of its parameters"
    layers, listed, step = values["num_hidden_layers"], document.data.get("no_rope_layers"), document.data.get("no_rope_layer_interval", 4)
    if layers % 4:
        refuse(
            "num_hidden_layers", f"`num_hidden_layers` is {layers}: of four layers three rotate positions here, and one does not", shapes
        )
    rotated = [int((number + 1) % 4 != 0) for number in range(layers)]
    if values["use_qk_norm"] and listed and listed != rotated:
        refuse("no_rope_layers", "`no_rope_layers` is otherwise: every fourth layer rotates no positions here, and has no norms", shapes)
    if values["use_qk_norm"] and not listed and step != 4:
        refuse("no_rope_layer_interval", f"`no_rope_layer_interval` is {step}: every fourth layer has no norms here", shapes)
    if values["every_second_layer"] is None:
        name = "interleave_moe_layer_step" if values["moe_layers"] is None else "moe_layers"
        refuse(name, f"`{name}` is otherwise: every layer has experts here, or every second one", shapes)


def _check_choices(kind: Blocks, values: Mapping[str, Any], refuse: Callable[..., None]) -> None:
    """How many experts a token is sent to, which decides no shape."""
    name = "num_experts_per_tok"
    chosen, experts = values[name], values.get(kind.sizes.get("E", ""))
    if experts is None or chosen is None:
        return
    if type(chosen) is not int or chosen < 1:
        refuse(name, f"`{name}` is a whole number of at least 1, not {chosen!r}", "leave it out to have it as a symbol", "PP503")
    elif chosen > experts:
        refuse(name, f"a token is sent to {chosen} experts, and there are {experts}", "change one of the two")


def _sizes(kind: Blocks, values: Mapping[str, Any]) -> dict[str, int]:
    """Symbols with their numbers. Layers beyond the last one are none."""
    numbers = {}
    for symbol, text in kind.sizes.items():
        expr = expression(text)
        if all(values.get(name) is not None for name in expr.names):
            numbers[symbol] = expr.at(values)
    if "L_dense" in numbers:
        numbers["L_dense"] = min(numbers["L_dense"], numbers["L"])
    return numbers
