"""Measuring DeepSpeed: training steps of its engine on gloo processes of this machine, as the first of them lives the last step.

Needs torch and deepspeed, with DS_ACCELERATOR=cpu in the environment before either is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deepspeed  # type: ignore[import-not-found,import-untyped]
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from placeproof.cost.exact.deepspeed import DEFAULTS
from placeproof.measure import memory
from placeproof.measure.processes import message, run
from placeproof.measure.recorder import Recorder
from placeproof.measure.systems.cases import SystemCase, SystemMeasured
from placeproof.measure.training.models import build, stream_shape
from placeproof.measure.training.subjects import is_decoder

#: The step that is recorded. The third stage follows a plan from its third step on, when it has seen the first two.
STEP = 4


def measure(cases: Sequence[SystemCase], *, patience: float = 30.0) -> list[SystemMeasured]:
    """What each case does, all on meshes of the same size. ``patience``: seconds for each. Raises RuntimeError where one fails."""
    world = cases[0].mesh["dp"]
    # Built with a compiler when it is first used, and used for inference alone.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]

    def every(rank: int, size: int, directory: Path) -> list[SystemMeasured]:
        _join(rank, size)
        return [_one(case) for case in cases]

    outcomes = run(world, every, timeout=patience * len(cases), collective_timeout=patience)
    if outcomes[0].value is None or any(outcome.kind != "ok" for outcome in outcomes):
        errors = "\n".join(outcome.error for outcome in outcomes if outcome.error)
        raise RuntimeError(f"DeepSpeed could not be measured: {message(outcomes)}\n{errors}\n{outcomes[0].output[-2000:]}")
    return outcomes[0].value


def _join(rank: int, world: int) -> None:
    """DeepSpeed reads who it is from the environment; the process group is there already, so that no port is opened."""
    os.environ |= {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{world}", "LOCAL_SIZE": f"{world}"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    deepspeed.init_distributed(dist_backend="gloo")


def config(case: SystemCase) -> dict[str, Any]:
    """The configuration of the engine."""
    options = {**DEFAULTS, **case.options}
    stage = int(options["stage"] or 0)
    zero = {"stage": stage}
    keys = [k for k in options if k.startswith("stage3_" if stage == 3 else ("use_multi", "reduce_", "overlap"))]
    zero |= {key: options[key] for key in (*keys, "reduce_bucket_size") if options[key] is not None}  # type: ignore[misc]
    return {
        "train_batch_size": case.mesh["dp"],
        "train_micro_batch_size_per_gpu": 1,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": options["dtype"] == "bfloat16"},
        "zero_optimization": zero,
    }


def _one(case: SystemCase) -> SystemMeasured:
    options = {**DEFAULTS, **case.options}
    dtype = getattr(torch, str(options["dtype"]))
    torch.manual_seed(0)
    model = build(case.shapes).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.25, 0.25)
    kind: Any = torch.optim.AdamW if options["optimizer"] == "adamw" else torch.optim.SGD
    engine, *_ = deepspeed.initialize(model=model, optimizer=kind(model.parameters(), lr=2.0**-10, foreach=False), config=config(case))
    recorder = Recorder({str(name): ("dp",) for name in distributed_c10d._world.pg_names.values()})
    sample = torch.rand(stream_shape(case.shapes), dtype=dtype)
    if is_decoder(case.shapes):
        sample = torch.randint(case.shapes.dim("vocab"), sample.shape[:2])
    for _ in range(STEP):
        recorder.take()
        with recorder:
            recorder.phase = "forward"
            loss = engine(sample).float().square().mean()
            recorder.phase = "backward"
            engine.backward(loss)
            recorder.phase = "update"
            engine.step()
    sizes = {"parameters": _parameters(engine), "optimizer": _optimizer(engine.optimizer)}
    measured = SystemMeasured(exchanges=recorder.take(), memory=sizes, version=str(deepspeed.__version__))
    engine.destroy()
    dist.barrier()
    return measured


def _parameters(engine: Any) -> int:
    """Bytes of parameters between steps: of the third stage its parts, and those that stay whole."""
    total = 0
    for p in engine.module.parameters():
        there = not hasattr(p, "ds_tensor") or p.ds_persist
        total += (p.ds_tensor.ds_numel * p.ds_tensor.element_size() if hasattr(p, "ds_tensor") else 0) + (memory.held([p]) if there else 0)
    return total


def _optimizer(optimizer: Any) -> int:
    """Bytes of what the update needs: the optimizer's state, and the single-precision copies that it updates."""
    inner = getattr(optimizer, "optimizer", optimizer)
    numbers, counters = memory.state(inner)
    copies = [p for group in inner.param_groups for p in group["params"]] if inner is not optimizer else []
    if hasattr(optimizer, "fp32_partitioned_groups_flat"):
        copies = list(optimizer.fp32_partitioned_groups_flat)
    return memory.held([*numbers, *counters, *copies])
