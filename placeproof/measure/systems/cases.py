"""Random cases for whole systems, DeepSpeed and Megatron-core, and what is predicted of them.

This module does without torch: a case follows from its seed, so that recorded measurements can be compared without any of the systems.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes, transformer
from placeproof.cost.exact import deepspeed, megatron
from placeproof.cost.exact.options import Value
from placeproof.cost.exact.setting import SystemPrediction
from placeproof.measure.training.random import random_stack


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCase:
    """What to measure of a ``system`` ("deepspeed" or "megatron"). ``mesh``: degrees by axis, the slowest first."""

    system: str
    shapes: Shapes
    mesh: Mapping[str, int]
    options: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMeasured:
    """What the first rank did in a step that later ones repeat, and what it holds after it: ``memory`` in bytes."""

    exchanges: tuple[Exchange, ...]
    memory: Mapping[str, int] = field(default_factory=dict)
    version: str = ""


def predicted(case: SystemCase) -> SystemPrediction:
    """The exchanges and the memory that a case should show, and the programs that they are read off."""
    if case.system == "deepspeed":
        return deepspeed.predict_step(case.shapes, case.mesh["dp"], case.options)
    return megatron.predict_step(case.shapes, case.mesh, case.options)


def deepspeed_case(seed: int) -> SystemCase:
    """A stack of random weights, or a decoder, under one of the stages, on two or four devices."""
    draw = Random(f"deepspeed {seed}")
    stage = (0, 1, 1, 2, 2, 3, 3, 3)[seed % 8]
    options: dict[str, Value] = {"stage": stage, "dtype": draw.choice(["float32", "bfloat16"]), "optimizer": draw.choice(["adamw", "sgd"])}
    if stage:
        options["reduce_bucket_size"] = draw.choice([500_000_000, draw.randint(1, 40), draw.randint(40, 1_500)])
    if stage in (1, 2):
        options["use_multi_rank_bucket_allreduce"] = draw.random() < 0.6
        options["reduce_scatter"] = draw.random() < 0.8
        options["overlap_comm"] = draw.choice([None, False, True])
    if stage == 3:
        options["stage3_param_persistence_threshold"] = draw.choice([0, 0, draw.randint(1, 60), 100_000])
        options["stage3_max_reuse_distance"] = draw.choice([0, 0, draw.randint(1, 1_500), 1_000_000_000])
        options["stage3_prefetch_bucket_size"] = draw.choice([0, draw.randint(1, 800), 50_000_000])
        options["stage3_max_live_parameters"] = draw.choice([0, draw.randint(1, 2_000), 1_000_000_000])
    mesh = {"dp": draw.choice([2, 2, 4])}
    shapes = _decoder(draw) if draw.random() < 0.4 else random_stack(draw, draw.randint(1, 5))
    return SystemCase(system="deepspeed", shapes=shapes, mesh=mesh, options=options)


def _decoder(draw: Random) -> Shapes:
    heads = draw.choice([1, 2, 4])
    return transformer(
        layers=draw.randint(1, 3),
        hidden=heads * draw.choice([2, 4, 6]),
        heads=heads,
        kv_heads=draw.choice([1, heads]),
        ffn=draw.randint(1, 20),
        vocab=draw.randint(2, 30),
        batch=draw.randint(1, 2),
        tokens=draw.randint(1, 4),
    )


def megatron_case(seed: int) -> SystemCase:
    """A decoder of Megatron's layers: its gradients' buffers, its tensor parallelism, or both."""
    draw = Random(f"megatron {seed}")
    mesh = ({"dp": 2, "tp": 1}, {"dp": 4, "tp": 1}, {"dp": 1, "tp": 2}, {"dp": 1, "tp": 4}, {"dp": 2, "tp": 2})[seed % 5]
    tp = mesh["tp"]
    kv, groups = tp * draw.randint(1, 2), draw.randint(1, 2)
    shapes = megatron.decoder(
        layers=draw.randint(1, 3),
        hidden=kv * groups * draw.choice([2, 4, 6]),
        heads=kv * groups,
        kv_heads=kv,
        ffn=tp * draw.randint(1, 20),
        vocab=tp * draw.randint(2, 30),
        batch=draw.randint(1, 3),
        tokens=tp * draw.randint(1, 3),
    )
    options: dict[str, Value] = {
        "dtype": draw.choice(["float32", "bfloat16"]),
        "grad_reduce_in_fp32": draw.random() < 0.5,
        "use_distributed_optimizer": draw.random() < 0.7,
        "overlap_grad_reduce": draw.random() < 0.6,
        "bucket_size": draw.choice([None, draw.randint(1, 300), draw.randint(300, 4_000)]),
        "pad_buckets_for_high_nccl_busbw": draw.random() < 0.25,
        "average_in_collective": draw.random() < 0.5,
        "sequence_parallel": tp > 1 and draw.random() < 0.6,
    }
    return SystemCase(system="megatron", shapes=shapes, mesh=mesh, options=options)
