"""What backward computes again of a model's layers: words that are put together with ``+``, and what each of them means for a segment.

Which values these are is read off the blocks' programs: what has an element for each query and key, what a block gives the next one as
``n``, what a block makes that gives the stream and in which no token meets another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from placeproof.core.bounds import MOST_COUNT
from placeproof.core.diagnostics import Diagnostic, InputError, Problems, suggestion
from placeproof.core.stages import stage_layers
from placeproof.core.strategy import Strategy
from placeproof.cost.blocks.flops import storage, weights_read
from placeproof.cost.blocks.layer import Layer
from placeproof.cost.blocks.recompute import made_in_forward
from placeproof.models import Segment
from placeproof.models.programs import output
from placeproof.programs import Assign, Program
from placeproof.programs.ir import Tensor
from placeproof.semantics.layouts.lines import BlockValue, lines

#: Words of :data:`RECOMPUTE` with ``+`` between them.
Recompute: TypeAlias = str
#: Word -> what it means. The first two exclude every other.
RECOMPUTE: dict[str, str] = {
    "none": "everything is kept that backward reads",
    "full": "each layer keeps its input alone, and all of it is computed again",
    "selective": "what has an element for each query and key is computed again (Korthikanti et al. 2022, section 5)",
    "norms": "what the norms of a layer give is computed again",
    "mlp": "what a layer's feed-forward block makes, of experts too, is computed again from what it reads",
    "moe-act": "what experts' activation functions give is computed again from what they read",
    "mla-up": "queries, keys and values that are made of compressed ones are computed again from these",
}
ALONE = ("none", "full")
#: Of which layers of a run ``full`` speaks: ``full:3``, ``full/3``; or of each stage's run: ``full:3,1x6,0``.
_OF_LAYERS = re.compile(r"full([:/])([0-9]+)|full:([0-9]+[,x][0-9,x]*)")


class Extent(NamedTuple):
    """Which layers of each run of layers are computed again: the first ``layers`` of them, each from its input; or, ``grouped``, all of
    them, so many at a time from the input of the first. ``by_stage``: how many first ones of each stage, where that is said.

    Megatron-LM's ``recompute_method``: block, and uniform (``recompute_num_layers`` in its transformer/transformer_config.py).
    """

    layers: int
    grouped: bool
    by_stage: tuple[int, ...] = ()

    def of_stage(self, number: int) -> Extent:
        """That of the run of one stage of the model, by its number."""
        return Extent(layers=self.by_stage[number], grouped=False) if self.by_stage else self

    def __str__(self) -> str:
        if self.by_stage:
            listed = ", ".join(map(str, self.by_stage))
            return f"of the stages' runs, the first {listed} layers keep their inputs alone, and all of them are computed again"
        if self.grouped:
            return f"each {self.layers} layers of a run keep the input of the first one alone, and all of them are computed again"
        first = "the first layer" if self.layers == 1 else f"each of the first {self.layers} layers"
        return f"{first} of a run keeps its input alone, and all of it is computed again; the others keep everything that backward reads"


def extent(words: tuple[str, ...]) -> Extent | None:
    """Of which layers of a run the recomputation is, None for all."""
    said = _OF_LAYERS.fullmatch(words[0])
    if said is None:
        return None
    each = stage_layers(said[3]) if said[3] else None
    return Extent(layers=int(said[2]), grouped=said[1] == "/") if each is None else Extent(layers=max(each), grouped=False, by_stage=each)


def _kind(word: str) -> str:
    """A word without its number of layers."""
    return "full" if _OF_LAYERS.fullmatch(word) else word


def words(recompute: Recompute) -> tuple[str, ...]:
    """The words of a text such as ``selective+norms``, in the order of :data:`RECOMPUTE`; ``full:3``, ``full/3`` and
    ``full:3,1x6,0`` are one as well.

    Raises InputError with every word that is not known, that is said twice, or that excludes another one, and for a number of layers that
    cannot be.
    """
    problems = Problems()
    given = ["full" if word.strip() == "full/1" else word.strip() for word in recompute.split("+")]
    kinds = [_kind(word) for word in given]
    for word in dict.fromkeys(given):
        if _kind(word) not in RECOMPUTE:
            help = suggestion(word, RECOMPUTE) or f"one of {', '.join(RECOMPUTE)}, full:3, full/3, or several: selective+norms"
            if word.lower().startswith("full") and {*":/"} & {*word}:
                help = "`full:3` is of the first 3 layers of each run, `full:3,1,0` of so many of each stage, `full/3` of all, 3 at a time"
            problems.add("PP104", f"there is no recomputation `{word}`", help=help)
        elif kinds.count(_kind(word)) > 1:
            problems.add("PP104", f"recomputation `{recompute}` says `{_kind(word)}` twice", help="say it once")
        elif (said := _OF_LAYERS.fullmatch(word)) and not _said(said):
            problems.add("PP104", f"recomputation `{word}` is of no number of layers", help="`none`, or 1 and more: `full:3`, `full:3,1,0`")
    picked = tuple(dict(zip(reversed(kinds), reversed(given), strict=True))[kind] for kind in RECOMPUTE if kind in kinds)
    if len(picked) > 1 and _kind(picked[0]) in ALONE:
        others = " and ".join(f"`{word}`" for word in picked[1:])
        what = "nothing" if picked[0] == "none" else "all of a layer"
        problems.add(
            "PP104", f"recomputation `{picked[0]}` is of {what}, so that {others} cannot go with it", help=f"`{'+'.join(picked[1:])}`"
        )
    problems.raise_if_any()
    return picked


def _said(said: re.Match[str]) -> bool:
    """Whether it is of a number of layers, or of those of each stage."""
    each = stage_layers(said[3]) if said[3] else (int(said[2]),)
    return each is not None and 1 <= max(each) <= MOST_COUNT


def chosen(strategy: Strategy, recompute: Recompute | None) -> tuple[str, ...]:
    """The words that hold under a strategy: what it says itself, if nothing else is said. Of which layers, it leaves open.

    Raises InputError as :func:`words`, and where both are said and differ.
    """
    if recompute is None:
        return ("full",) if strategy.schedule.recompute else ("none",)
    picked = words(recompute)
    if strategy.schedule.recompute and _kind(picked[0]) != "full":
        message = f"`{strategy.name}` computes each layer again, and recomputation `{recompute}` was asked for"
        raise InputError(
            [Diagnostic(code="PP104", message=message, help="take one of them: activation checkpointing, or the recomputation")]
        )
    return picked


def of_layers(strategy: Strategy, words: tuple[str, ...]) -> Strategy:
    """The strategy whose step is linked: where only some layers are recomputed, or several from one input, its step does not say of each
    layer that it is.

    Raises InputError where the strategy puts the inputs of all layers elsewhere.
    """
    said = strategy.schedule
    if extent(words) is None or not said.recompute:
        return strategy
    if said.checkpoints not in (None, "device") or any(e.mode.gathers for e in strategy.entries if e.state == "activations"):
        message = f"`{strategy.name}` puts the input of each layer elsewhere, and recomputation `{words[0]}` does not keep each"
        raise InputError([Diagnostic(code="PP104", message=message, help="`--recompute full`")])
    return replace(strategy, schedule=replace(said, recompute=None))


def meaning(recompute: Recompute) -> str:
    """What it means, in words."""
    picked = words(recompute)
    return str(extent(picked) or "; ".join(RECOMPUTE[word] for word in picked))


def recomputed(plain: Layer, segment: Segment, words: tuple[str, ...], made_again: tuple[str, ...] = ()) -> tuple[Layer, tuple[str, ...]]:
    """The chain of a segment with its recomputation, and the masks that are drawn again in it, as ``block.value``.

    ``made_again``: values that kernels make again besides.
    """
    repeated = str(segment.times) != "1"
    if not plain.trained:
        return plain, ()
    if "full" in map(_kind, words):
        if not repeated:
            return (plain.recomputed(*made_again) if made_again else plain), ()
        whole = plain.full()
        return whole, tuple(f"{s.block}.{s.name}" for s in whole.kept() if s.block != "input" and s.picks is None)
    again = made_again
    rerun: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    if "selective" in words:
        between, rerun, drawn = _selective(plain, segment)
        again += between
    if "norms" in words and repeated:
        again += tuple(f"{b.name}.{given}" for b in segment.blocks if (given := output(b.program)) == "n")
    if "mlp" in words and repeated:
        made, results = _mlp(plain, segment)
        again, rerun = again + made, rerun + results
    for word, found in _FOUND.items():
        again += found(plain, segment) if word in words and repeated else ()
    again = tuple(dict.fromkeys(again))
    return (plain.recomputed(*again, rerun=tuple(n for n in dict.fromkeys(rerun) if n not in again)) if again else plain), drawn


def _selective(plain: Layer, segment: Segment) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What has an element for each query and key; what forward makes of it, which a checkpoint runs to; and its masks."""
    between = [s for s in plain.kept() if {"keys", "tokens"} <= set(s.dims)]
    given = {f"{b.name}.{t.name}" for b in segment.blocks for t in b.program.tensors}
    names = [f"{s.block}.{s.name}" for s in between]
    again = tuple(dict.fromkeys(n for n in names if n not in given))
    return again, _made_of(plain, again), tuple(dict.fromkeys(n for n in names if n in given))


def _mlp(plain: Layer, segment: Segment) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What blocks make in which no token meets another one, and the stream that they give."""
    numbers = {
        number for number, block in enumerate(segment.blocks, 1) if _gives_branch(block.program) and not _attends(block.program.tensors)
    }
    origins = [plain.origin(name) for name in made_in_forward(plain.program)]
    names = [(o.name in ("y", "branch"), f"{o.block}.{o.name}") for o in origins if o.number in numbers]
    return tuple(n for result, n in names if not result), tuple(n for result, n in names if result)


def _activations(plain: Layer, segment: Segment) -> tuple[str, ...]:
    """What is kept and made element by element of what is kept, for products with matrices of experts."""
    experts = {
        (number, tensor.name)
        for number, block in enumerate(segment.blocks, 1)
        for tensor in block.program.tensors
        if {t.picks for t in block.program.tensors} & {*tensor.dims}
    }
    every, kept = list(weights_read(plain.program)), {(s.number, s.name): f"{s.block}.{s.name}" for s in plain.kept()}
    simple: set[int] = set()
    for o, _ in every:
        known = all(id(storage(r)) in simple or _key(plain, r) in kept for r in o.reads if r.data)
        if o.during == "forward" and o.elementwise and known and all(r.layout.hot is None for r in o.reads):
            simple.add(id(storage(o.result)))
    wanted: set[int] = set()
    names: dict[str, None] = {}
    for o, weights in reversed(every):
        made = id(storage(o.result))
        if o.during != "forward" or o.again:
            continue
        if made in wanted and made in simple and (key := _key(plain, o.result)) in kept:
            names[kept[key]] = None
        if (o.product and any(_of(plain, name) in experts for name in weights)) or (made in wanted and made in simple):
            wanted |= {id(storage(r)) for r in o.reads if r.data}
    return tuple(reversed(names))


def _decompressed(plain: Layer, segment: Segment) -> tuple[str, ...]:
    """What is kept of products with weights in blocks in which tokens meet, before they do: of what such a product of the block gave."""
    attending = {number for number, block in enumerate(segment.blocks, 1) if _attends(block.program.tensors)}
    kept = {(s.number, s.name): f"{s.block}.{s.name}" for s in plain.kept()}
    products: dict[int, int] = {}  # of a value that no other token is in yet: the block whose product with a weight it depends on
    names: list[str] = []
    for o, weights in weights_read(plain.program):
        if o.during != "forward" or o.again:
            continue
        met = {"tokens", "keys"} <= {*o.result.layout.dims}
        after = {products[id(storage(r))] for r in o.reads if id(storage(r)) in products}
        block = {_of(plain, name)[0] for name in weights} & attending if o.product else set()
        if block and not met:
            (number,) = block
            key = _key(plain, o.result)
            names += [kept[key]] if number in after and key in kept else []
            products[id(storage(o.result))] = number
        elif len(after) == 1 and not met and all(id(storage(r)) in products for r in o.reads if r.data):
            products[id(storage(o.result))] = after.pop()
    return tuple(dict.fromkeys(names))


#: Words of which some models have nothing -> what they mean for a segment.
_FOUND = {"moe-act": _activations, "mla-up": _decompressed}


def require_found(words: tuple[str, ...], layers: Sequence[tuple[Layer, Segment]]) -> None:
    """Raise InputError with every word that means nothing in any layer of a model."""
    problems = Problems()
    for word, found in _FOUND.items():
        if word in words and not any(found(plain, segment) for plain, segment in layers if plain.trained):
            message = f"recomputation `{word}` is of nothing in the model's layers: {RECOMPUTE[word]}"
            problems.add("PP104", message, help="leave it out")
    problems.raise_if_any()


def _key(plain: Layer, value: BlockValue) -> tuple[int, str] | None:
    """The number of a value's block, and the block's name for it; None for one without a name."""
    name = storage(value).name
    return _of(plain, name) if name in plain.origins else None


def _of(plain: Layer, name: str) -> tuple[int, str]:
    origin = plain.origin(name)
    return origin.number, origin.name


def _gives_branch(program: Program) -> bool:
    """Whether a block computes what is added to the stream: norms give it a place, and no more."""
    gives = output(program)
    return gives == "branch" or (gives == "y" and any(t.name == "n" for t in program.tensors))


def _attends(tensors: tuple[Tensor, ...]) -> bool:
    return any("keys" in t.dims for t in tensors)


def _made_of(chain: Layer, values: tuple[str, ...]) -> tuple[str, ...]:
    """What forward makes directly of some values: a checkpoint runs to its end, the output of attention included."""
    inside = set(chain.named(values))
    names = []
    for line in lines(chain.program):
        if isinstance(line.stmt, Assign) and not line.backward and inside & {held.name for held in line.reads}:
            name = line.stmt.targets[0].name
            names += [name] if name not in inside else []
    origins = [chain.origin(name) for name in names]
    return tuple(dict.fromkeys(f"{o.block}.{o.name}" for o in origins if f"{o.block}.{o.name}" not in values))
