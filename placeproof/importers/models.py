"""A model's ``config.json`` of transformers, read as a stack of blocks: a family with the sizes that the configuration says.

What the file says is read and checked as for the shapes of its parameters (:mod:`.huggingface`). Only kinds of which all blocks are
written as programs can be read; a test counts their parameters both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from placeproof.core import files
from placeproof.core.diagnostics import Problems
from placeproof.importers.document import Document, read_document
from placeproof.importers.huggingface import reader as huggingface
from placeproof.importers.huggingface.fields import REQUIRED, Blocks, families
from placeproof.importers.systems import MODEL_TYPE
from placeproof.models import Model
from placeproof.models.expressions import expression
from placeproof.models.family import family
from placeproof.models.model import build


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
        message = f"the blocks of a model of type `{kind}` are not written as programs, only the shapes of its parameters are known"
        help = f"models can be read of type {known}; `placeproof.importers.read_shapes` gives the shapes"
        problems.add("PP501", message, place=document.place(MODEL_TYPE), help=help)
        problems.raise_if_any()
    assert blocks is not None
    said = _said(document, kind, blocks.dropout)
    _check(document, blocks, said, problems)
    problems.raise_if_any()
    options = {"tied": "yes" if said["tie_word_embeddings"] else "no"}
    if blocks.dropout:
        options["dropout"] = "yes" if any(said[name] for name in blocks.dropout) else "no"
    name = Path(source).stem
    return build(family(blocks.family), name=name, title=shapes.name, source=source, sizes=_sizes(blocks, said), options=options)


def _said(document: Document, kind: str, dropout: Mapping[str, float]) -> dict[str, Any]:
    """Each setting that decides shapes by its first name, as the file says it or by default; the experts of a token; dropout."""
    values: dict[str, Any] = {}
    for setting in families()[kind].settings:
        name = next((n for n in (setting.name, *setting.aliases) if n in document.data), None)
        value = setting.default if name is None else document.data[name]
        assert value is not REQUIRED, setting.name
        values[setting.name] = value
    values["num_experts_per_tok"] = document.data.get("num_experts_per_tok")
    return values | {name: document.data.get(name, default) for name, default in dropout.items()}


def _check(document: Document, kind: Blocks, values: Mapping[str, Any], problems: Problems) -> None:
    """What the blocks of the family do not have."""

    def refuse(name: str, message: str, help: str, code: str = "PP504") -> None:
        problems.add(code, message, place=document.place(name), help=help)

    shapes = "`placeproof.importers.read_shapes` gives the shapes of its parameters"
    for one in kind.always:
        if one.setting in values and values[one.setting] != one.value:
            refuse(one.setting, f"`{one.setting}` is {str(values[one.setting]).lower()}: {one.why}", shapes)
    if kind.family == "deepseek_v3" and values["q_lora_rank"] is None:
        refuse("q_lora_rank", "`q_lora_rank` is null: the block of latent attention here compresses queries", shapes)
    narrow = values.get("word_embed_proj_dim")
    if narrow is not None and narrow != values["hidden_size"]:
        refuse("word_embed_proj_dim", "`word_embed_proj_dim` is another width than the stream's: no block here widens an embedding", shapes)
    for name in kind.dropout:
        if type(values[name]) not in (int, float) or not 0 <= values[name] < 1:
            refuse(name, f"`{name}` is a probability below 1, not {values[name]!r}", "0 leaves the masks out", "PP503")
    _check_choices(kind, values, refuse)


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
