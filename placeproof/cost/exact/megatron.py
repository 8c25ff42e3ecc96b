"""Exact bytes of Megatron-core 0.16: its buffers of gradients, and its tensor parallelism, from proved programs.

Sources, below megatron-core==0.16.1:megatron/core: ``distributed/param_and_grad_buffer.py``, ``distributed/finalize_model_grads.py``,
``tensor_parallel/layers.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from math import prod

from placeproof.core.exchange import Exchange
from placeproof.core.shapes import WEIGHT_TYPES, Shapes, Unit, Weight, transformer
from placeproof.cost.exact.flat import buffers
from placeproof.cost.exact.options import Value, defaults
from placeproof.cost.exact.setting import Setting, SystemPrediction, settled, with_degrees
from placeproof.cost.exact.uses import Uses, once, walked
from placeproof.profiles.profile import Implementation, profile
from placeproof.strategies import parse_strategy

PROFILE = "megatron-core"
#: Options and their defaults: those of megatron-core==0.16.1:megatron/core/distributed/distributed_data_parallel_config.py, and
#: ``sequence_parallel``. ``bucket_size`` counts elements; None is the larger of forty million and a million for each device.
DEFAULTS: Mapping[str, Value] = {
    **defaults("dtype", "grad_reduce_in_fp32", "overlap_grad_reduce", "bucket_size", "pad_buckets_for_high_nccl_busbw"),
    **defaults("average_in_collective"),
    "use_distributed_optimizer": False,
    "sequence_parallel": False,
}
#: What the ends of buckets are also a multiple of for high bus bandwidth.
BUS = 2**16


def decoder(*, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, batch: int, tokens: int) -> Shapes:
    """The decoder of :func:`placeproof.core.shapes.transformer` with Megatron's weights: queries, keys and values are one, and so are the
    two factors of the feed-forward block. Raises ValueError as it does.
    """
    plain = transformer(layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, vocab=vocab, batch=batch, tokens=tokens)
    root, *others = plain.units
    fused = tuple(_fused(unit) for unit in others)
    embedding, *end = root.weights
    used = [embedding, *(w for unit in fused for w in unit.weights), *end]
    return replace(plain, units=(root, *fused), used=tuple(w.name for w in used))


def _fused(unit: Unit) -> Unit:
    norm, q, k, v, o, second, w1, w2, w3 = unit.weights

    def fused(name: str, *parts: Weight) -> Weight:
        rows = sum(p.shape[0] for p in parts)
        return Weight(name=f"{unit.name}.{name}.weight", shape=(rows, parts[0].shape[1]), split=parts[0].split)

    weights = (norm, fused("linear_qkv", q, k, v), fused("linear_proj", o), second, fused("linear_fc1", w1, w3), fused("linear_fc2", w2))
    return replace(unit, weights=weights)


def predict_step(shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value] | None = None) -> SystemPrediction:
    """Exact bytes of a device in a step on the axes ``dp`` and ``tp``, of shapes that :func:`decoder` makes.

    The step ends with the gathering of updated parameters where the optimizer is distributed. ``gradients`` are the buffers in which they
    lie, with padding. Raises InputError for an option that
    is none of :data:`DEFAULTS`.
    """
    given = settled("Megatron-core", shapes, DEFAULTS, options or {})
    names = implementations(mesh, given)
    setting = _setting(names, shapes, mesh, given)
    walk = walked(setting)
    sizes = _buckets(walk, setting, given)
    sent = [*walk.found, *_norms(walk, given), *_states(walk, setting, given, sizes)]
    memory = {
        "parameters": setting.widths.kept * sum(prod(walk.local(w)) for w in shapes.weights),
        "gradients": _width(given) * sum(sizes),
    }
    return SystemPrediction(exchanges=tuple(sent), memory=memory, strategies={"*".join(names): setting.strategy})


def implementations(mesh: Mapping[str, int], options: Mapping[str, Value]) -> tuple[str, ...]:
    """The names of the profile's implementations that a mesh and options ask for."""
    states = "distributed_optimizer" if options["use_distributed_optimizer"] else "ddp"
    if mesh["tp"] == 1:
        return (states,)
    return (states, "tp_sp" if options["sequence_parallel"] else "tp")


def expression(names: tuple[str, ...]) -> str:
    """The strategy that implementations make together."""
    of = {"ddp": "ddp", "distributed_optimizer": "zero1", "tp": "tp", "tp_sp": "tp * sp"}
    return " * ".join(of[name] for name in names)


def _setting(names: tuple[str, ...], shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value]) -> Setting:
    parts: tuple[Implementation, ...] = tuple(profile(PROFILE).find(name) for name in names)
    strategy = with_degrees(parse_strategy(expression(names)), mesh)
    return Setting(reduce(lambda s, i: i.realise(s), parts, strategy), parts, shapes, mesh, 0, {"dtype": options["dtype"]})


def _width(options: Mapping[str, Value]) -> int:
    """Bytes an element of gradients."""
    return 4 if options["grad_reduce_in_fp32"] else WEIGHT_TYPES[str(options["dtype"])]


def _norms(walk: Uses, options: Mapping[str, Value]) -> Iterator[Exchange]:
    """The gradients of norms under sequence parallelism: all in one call (``_allreduce_non_tensor_model_parallel_grads``)."""
    if walk.partial:
        elements = sum(exchange.bytes for exchange in walk.partial) // walk.setting.widths.computed
        yield replace(walk.partial[0], bytes=elements * _width(options), phase="update")


def _buckets(walk: Uses, setting: Setting, options: Mapping[str, Value]) -> list[int]:
    """Elements of the buckets of gradients, the one of the model's end first."""
    distributed = bool(options["use_distributed_optimizer"])
    reduced = once(walk.uses, parameters=False, op="reduce_scatter" if distributed else "all_reduce")
    names = {w.name for w in reduced}
    return buffers(
        [walk.local(w) for w in setting.by_ready(list(setting.shapes.weights)) if w.name in names],
        _limit(setting.mesh["dp"], options),
        setting.mesh["dp"],
        aligned=distributed,
        even=BUS if options["pad_buckets_for_high_nccl_busbw"] else 1,
    )


def _states(walk: Uses, setting: Setting, options: Mapping[str, Value], sizes: list[int]) -> Iterator[Exchange]:
    reduces = "reduce_scatter" if options["use_distributed_optimizer"] else "all_reduce"
    op = "mean" if options["average_in_collective"] else "sum"
    phase = "backward" if options["overlap_grad_reduce"] else "update"  # after backward, all at once
    for size in sizes:
        yield Exchange(kind=reduces, axes=("dp",), bytes=size * _width(options), op=op, phase=phase)
    if once(walk.uses, parameters=True, op="all_gather"):
        for size in sizes:
            yield Exchange(kind="all_gather", axes=("dp",), bytes=size * setting.widths.kept, phase="update")


def _limit(devices: int, options: Mapping[str, Value]) -> int | None:
    if not options["overlap_grad_reduce"]:
        return None
    return int(options["bucket_size"] or max(40_000_000, 1_000_000 * devices))
