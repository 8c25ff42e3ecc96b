"""The settings of transformers' configurations that decide shapes, for each type of model, with the defaults of transformers==5.23.0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from placeproof.core.tables import FileKind, Table, records
from placeproof.importers.huggingface import models, recorded

#: A size without which there is no model; transformers would silently take that of its own first model.
REQUIRED = object()
_KIND = FileKind(noun="a file of types of models", manual="see the other entries, and placeproof/importers/huggingface/fields.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. ``kind``: ``count`` (at least 1), ``whole`` (at least 0), ``flag``, ``numbers`` (a list of whole numbers), ``texts``, or
    ``letters`` (a text).

    ``words``: those that a list of texts, or a text of letters, one for each layer, is made of. ``aliases``: other names that transformers
    takes for it. ``default``: what it is if it is not said. ``null``: whether it may be null.
    """

    name: str
    note: str
    kind: str
    words: tuple[str, ...]
    aliases: tuple[str, ...]
    default: object
    null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Always:
    """A setting with the only value that blocks have, None for null, and what another one would mean. ``default``: what it is unsaid, if
    it decides no shape."""

    setting: str
    why: str
    value: object = None
    default: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A setting that says which ``option`` of a family a model has: ``yes`` where it is neither false nor null, else ``no``; or what
    ``words`` has for its value, every other value being refused. ``default``: what it is unsaid; None for null."""

    option: str
    setting: str
    yes: str = ""
    no: str = ""
    words: Mapping[str, str] = field(default_factory=dict)
    default: object = None

    def value(self, said: object) -> str | None:
        """What the option is where the setting is that; None where no block fits."""
        if self.words:
            return self.words.get(str(said))
        return self.yes if said not in (None, False) else self.no


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How a type of model is read as blocks: those of a ``family``.

    ``sizes``: symbols as expressions of settings; one of which a setting is null is left to the family. ``dropout``: settings of
    probabilities, with transformers' defaults; a model has masks if one of them is not 0. ``masks``: of blocks without masks, those
    probabilities that are not 0 if nothing is said. ``options``: what settings choose of the family. ``window``: how many tokens some
    layers see if nothing is said; ``chunk``: of how many tokens, into which a sequence is cut, they see their own alone.
    """

    family: str
    sizes: Mapping[str, str]
    always: tuple[Always, ...] = ()
    options: tuple[Chosen, ...] = ()
    window: int | None = None
    chunk: int | None = None
    dropout: Mapping[str, float] = field(default_factory=dict)
    masks: Mapping[str, float] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """The settings that are read beside those of shapes."""
        return {one.setting for one in self.always} | {one.setting for one in self.options} | {*self.dropout, *self.masks}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One type of model. ``layer``: the parts of a layer in the order of registration, functions of :mod:`.models`; one of them may be
    ``feed_forward``, which is the parts ``sparse`` of a layer with experts. ``means``: words that the parts read, as settings or as
    values of their own; ``fill``: values that follow from others. ``prefix``: of a layer's parameters, before its number.

    ``heads``, ``hidden``, ``layers``, ``inner``: the names of these sizes. ``divides``: whether heads must divide the hidden size even
    where the width of a head is given; ``rotary``: the setting whose size rotary positions turn in pairs, which is then even.

    ``order``: in which a layer uses its weights; ``ends``: beginnings of the names of what is used after all layers, in order; ``turned``:
    the part of a head that rotary positions turn, 0 where there are none, which a file may change if it is ``partial``;
    ``weight_first``: whether norms use theirs before their bias; ``buffers``: those beside the tables of rotary positions. They are those
    of transformers==5.23.0, recorded by ``nightly/huggingface.py``. ``model``: None where its blocks are not written as programs;
    ``lacks``: what no block does then.
    """

    settings: tuple[Setting, ...]
    layer: tuple[str, ...]
    sparse: tuple[str, ...] = ()
    root: models.Root = models.llama_root
    means: Mapping[str, object] = field(default_factory=dict)
    fill: models.Fill = models.nothing
    prefix: str = "model.layers."
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    layers: str = "num_hidden_layers"
    inner: str = "intermediate_size"
    divides: bool = False
    rotary: str | None = "head_dim"
    order: recorded.Order = recorded.llama_order
    ends: tuple[str, ...] = ("model.norm.", "lm_head.")
    turned: float = 1
    partial: bool = False
    weight_first: bool = False
    buffers: recorded.Buffers = recorded.no_buffers
    model: Blocks | None = None
    lacks: str = ""


@lru_cache(maxsize=1)
def families() -> dict[str, Family]:
    """The types of models by the names that transformers gives them."""
    return read_families(Table.open(Path(__file__).parent / "families.toml", kind=_KIND))


def read_families(file: Table) -> dict[str, Family]:
    """The types of a file. Raises InputError with all that is wrong with it."""
    file.known(("settings", "family", "model"))
    settings = {table.name: _setting(table) for table in file.tables("settings")}
    anything = dict.fromkeys(("value", "default"), lambda table, key: table.data.get(key))
    readers = {
        "window": Table.count,
        "chunk": Table.count,
        "always": records(Always, **anything),
        "options": records(Chosen, default=anything["default"]),
    }
    blocks = {
        table.name: table.record(Blocks, sizes=Table.mapping, dropout=_numbers, masks=_numbers, **readers) for table in file.tables("model")
    }
    tables = {table.name: table for table in file.tables("family")}
    types = {name: _family(table, settings, blocks) for name, table in tables.items() if "like" not in table.data}
    for name, table in tables.items():
        if "like" in table.data:
            table.known(("like", "model"))
            other = types.get(table.choice("like", types))
            if other is not None:
                types[name] = replace(other, model=blocks.get(table.choice("model", blocks))) if "model" in table.data else other
    return file.sound(types)


def _setting(table: Table) -> Setting:
    table.known(("note", "kind", "words", "aliases", "default", "optional", "null"))
    needed = None if table.flag("optional") else REQUIRED
    return Setting(
        name=table.name.partition(" ")[0],
        note=table.required("note"),
        kind=table.choice(key="kind", names=("count", "whole", "flag", "numbers", "texts", "letters"), default="count"),
        words=table.texts("words"),
        aliases=table.texts("aliases"),
        default=table.data.get("default", needed),
        null=table.flag("null"),
    )


def _family(table: Table, settings: Mapping[str, Setting], blocks: Mapping[str, Blocks]) -> Family:
    def function(table: Table, key: str) -> Any:
        module = recorded if key in ("buffers", "order") else models
        return getattr(module, table.choice(key, dir(module)), None)

    def setting(name: str) -> Setting:
        if name not in settings:
            raise ValueError(f"there is no setting `{name}`")
        return settings[name]

    def order(table: Table, key: str) -> recorded.Order:
        made: recorded.Order = function(table, key) if isinstance(table.data[key], str) else recorded.always(*table.texts(key))
        return made

    for key in ("layer", "sparse"):
        for name in table.texts(key):
            if name != models.FEED_FORWARD and not hasattr(models, name):
                table.refuse(f"there is no part `{name}` of a layer", key)

    def words(table: Table, key: str) -> dict[str, object]:
        table.table(key).known(models.WORDS, "word that a part of a layer reads")
        return dict(table.table(key).data)

    return table.record(
        Family,
        settings=lambda table, key: table.each(key, setting),
        rotary=lambda table, key: table.text(key) or None,
        turned=_number,
        model=lambda table, key: blocks.get(table.choice(key, blocks)),
        order=order,
        means=words,
        **dict.fromkeys(("root", "buffers", "fill"), function),
    )


def _number(table: Table, key: str) -> float:
    return float(table.value(key, lambda value: isinstance(value, int | Decimal), "a number") or 0)


def _numbers(table: Table, key: str) -> dict[str, float]:
    inner = table.table(key)
    return {name: _number(inner, name) for name in inner.data}
