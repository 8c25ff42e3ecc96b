"""Recorded measurements of DeepSpeed and Megatron-core, for machines without them. `nightly/systems.py` records them again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from random_cases import random_stack

from placeproof.core.shapes import Shapes, transformer
from placeproof.cost.exact import megatron
from placeproof.cost.exact.options import Value
from placeproof.measure.systems.cases import SystemCase, SystemMeasured

PATH = Path(__file__).parents[1] / "data" / "measured_systems.json"
#: The last two of DeepSpeed show that modules without weights count where few parameters may be live.
SEEDS = {"deepspeed": (*range(96), 10_061, 10_095), "megatron": tuple(range(60))}


# A case follows from its seed, so that recorded measurements can be compared without any of the systems.


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


CASES: Mapping[str, Callable[[int], SystemCase]] = {"deepspeed": deepspeed_case, "megatron": megatron_case}


def about(case: SystemCase) -> dict[str, Any]:
    """Which case it is: enough to notice that a seed gives another one."""
    return {"mesh": dict(case.mesh), "options": dict(case.options), "parameters": case.shapes.elements}


def row(seed: int, case: SystemCase, measured: SystemMeasured) -> dict[str, Any]:
    counts = Counter(measured.exchanges)
    calls = sorted([e.kind, list(e.axes), e.bytes, e.op, e.phase, count] for e, count in counts.items())
    found = {"system": case.system, "seed": seed, **about(case), "version": measured.version, "calls": calls}
    return found | {"memory": dict(measured.memory)}


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return found
