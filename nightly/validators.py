"""Asks the validators of installed systems about every configuration of the grids, and records what they say.

``python nightly/validators.py tests/data/validator_grid.json`` writes the record; ``--check`` compares with it instead. See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import logging
import os
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from validator_grids import GRIDS  # noqa: E402
from validator_record import OTHER, Config, Grid, record  # noqa: E402
from validator_texts import deepspeed_switches  # noqa: E402

Check = Callable[[Config], None]
CHECKS: dict[str, Callable[[], Check]] = {}


def check(name: str) -> Callable[[Callable[[], Check]], Callable[[], Check]]:
    """Registers what makes the check of a grid: a function that raises what the system raises."""

    def register(make: Callable[[], Check]) -> Callable[[], Check]:
        CHECKS[name] = make
        return make

    return register


def _deepspeed_config(settings: dict[str, Any], world: int) -> None:
    """Read a configuration. Where no process has a rank yet, DeepSpeed counts one process and asks no further: here it has rank 0."""
    from deepspeed.runtime import config

    config.dist = types.SimpleNamespace(get_rank=lambda: 0)
    config.DeepSpeedConfig(settings, mpu=types.SimpleNamespace(get_data_parallel_world_size=lambda: world))


@check("deepspeed-batch")
def deepspeed_batch() -> Check:
    """Batch sizes that are all said."""
    names = {"gbs": "train_batch_size", "mbs": "train_micro_batch_size_per_gpu", "gas": "gradient_accumulation_steps"}
    return lambda config: _deepspeed_config({long: config[short] for short, long in names.items()}, config["dp"])


@check("deepspeed-switches")
def deepspeed_options() -> Check:
    """Widths, stages, and what goes with a stage."""
    return lambda config: _deepspeed_config(deepspeed_switches(config), 1)


@contextlib.contextmanager
def fake_group(world: int) -> Iterator[None]:
    """A process group of so many processes, of which only this one exists."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@check("megatron-groups")
def megatron_groups() -> Check:
    """The groups of all degrees, made as in training."""
    from megatron.core import parallel_state

    def one(config: Config) -> None:
        with fake_group(config["world"]):
            try:
                parallel_state.initialize_model_parallel(
                    tensor_model_parallel_size=config["tp"],
                    pipeline_model_parallel_size=config["pp"],
                    virtual_pipeline_model_parallel_size=2 if config["vpp"] else None,
                    context_parallel_size=config["cp"],
                    expert_model_parallel_size=config["ep"],
                    expert_tensor_parallel_size=config["etp"],
                    num_distributed_optimizer_instances=config["instances"],
                    order=config["order"],
                    create_gloo_process_groups=False,
                )
            finally:
                parallel_state.destroy_model_parallel()

    return one


@check("megatron-generator")
def megatron_generator() -> Check:
    """One numbering of devices."""
    from megatron.core.parallel_state import RankGenerator

    return lambda config: RankGenerator(order="tp-cp-ep-dp-pp", **config) and None


def _transformer(**settings: Any) -> None:
    from megatron.core.transformer.transformer_config import TransformerConfig

    TransformerConfig(num_layers=12, hidden_size=48, kv_channels=8, **settings)


@check("megatron-transformer")
def megatron_transformer() -> Check:
    """The model's configuration, as far as it depends on degrees."""
    import torch

    def one(config: Config) -> None:
        full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        _transformer(
            num_attention_heads=config["heads"],
            tensor_model_parallel_size=config["tp"],
            pipeline_model_parallel_size=config["pp"],
            sequence_parallel=config["sp"],
            pipeline_dtype=torch.float32 if config["pipeline_dtype_set"] else None,
            distribute_saved_activations=config["dist_saved_acts"],
            defer_embedding_wgrad_compute=config["defer_emb_wgrad"],
            gradient_accumulation_fusion=True,
            **(full if config["recompute"] else {}),
        )

    return one


@check("megatron-experts")
def megatron_experts() -> Check:
    """The model's configuration, as far as it is about experts."""
    import torch

    def one(config: Config) -> None:
        _transformer(
            num_attention_heads=6,
            num_moe_experts=4 if config["experts_set"] else None,
            expert_model_parallel_size=config["ep"],
            pipeline_model_parallel_size=config["pp"],
            pipeline_dtype=torch.bfloat16,
            virtual_pipeline_model_parallel_size=2 if config["vpp"] else None,
            overlap_moe_expert_parallel_comm=config["overlap_ep"],
            moe_token_dispatcher_type="alltoall",
            add_bias_linear=False,
            bf16=True,
        )

    return one


@check("accelerate-sizes")
def accelerate_sizes() -> Check:
    """Sizes of the mesh, with FSDP 2."""
    from accelerate.parallelism_config import ParallelismConfig

    def one(config: Config) -> None:
        names = ("dp_replicate", "dp_shard", "tp", "cp")
        sizes = ParallelismConfig(**{f"{n}_size": config[n] for n in names}, sp_size=1)
        world = config["world"]
        sizes._validate_accelerator(types.SimpleNamespace(multi_device=world > 1, num_processes=world, is_fsdp2=True))

    return one


@check("torchtitan-degrees")
def torchtitan_degrees() -> Check:
    """The degrees of all axes. What the module imports of torchtitan besides is not asked for here."""
    folder = os.environ.get("TORCHTITAN")
    if folder:
        sys.path.insert(0, folder)
    for name, has in {
        "spmd_types": (),
        "torchtitan.config.configs": ("ParallelismConfig",),
        "torchtitan.tools.logging": ("logger",),
        "torchtitan.tools.utils": ("device_type",),
    }.items():
        if name not in sys.modules:
            stub = types.ModuleType(name)
            for one in has:
                setattr(stub, one, logging.getLogger("torchtitan"))
            sys.modules[name] = stub
    stub = sys.modules["spmd_types"]
    for one in ("PerMeshAxisSpmdType", "PartitionSpec", "Shard"):
        if not hasattr(stub, one):
            setattr(stub, one, object)
    from torchtitan.distributed.parallel_dims import ParallelDims

    return lambda config: ParallelDims(**{n: config[n] for n in ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep")},
                                       world_size=config["world"]) and None  # fmt: skip


class _Stage:
    """As much of a pipeline's stage as a schedule looks at before it runs."""

    def __init__(self, index: int, devices: int, stages: int) -> None:
        self.stage_index, self.num_stages = index, stages
        self.group_size, self.group_rank, self.group = devices, 0, None
        self.is_first, self.is_last, self.has_backward = index == 0, index == stages - 1, False
        self.device = self.submod = None
        self.stage_index_to_group_rank: dict[int, int] = {}


@check("torch-schedules")
def torch_schedules() -> Check:
    """The constructors of pipeline schedules."""
    from torch.distributed.pipelining import schedules

    def one(config: Config) -> None:
        pp, name = config["pp"], config["sched"]
        if name == "1F1B":
            schedules.Schedule1F1B(_Stage(0, pp, pp), config["nmb"])
            return
        kind = {"Interleaved1F1B": "ScheduleInterleaved1F1B", "InterleavedZeroBubble": "ScheduleInterleavedZeroBubble"}
        made = getattr(schedules, kind.get(name, "ScheduleDualPipeV"))
        second = pp if name != "DualPipeV" else 2 * pp - 1
        made([_Stage(0, pp, 2 * pp), _Stage(second, pp, 2 * pp)], config["nmb"])

    return one


@check("torch-chunks")
def torch_chunks() -> Check:
    """Cutting a batch."""
    import torch
    from torch.distributed.pipelining.microbatch import TensorChunkSpec, _split_tensor

    return lambda config: _split_tensor(torch.zeros(config["batch"]), TensorChunkSpec(0), config["nmb"]) and None


@check("torch-balancer")
def torch_balancer() -> Check:
    """Cutting a sequence in pieces of head and tail."""
    from torch.distributed.tensor.experimental._context_parallel._load_balancer import _HeadTailLoadBalancer

    def one(config: Config) -> None:
        _HeadTailLoadBalancer(config["seq"], config["cp"], "cpu")._generate_indices()

    return one


@check("torch-unflatten")
def torch_unflatten() -> Check:
    """Cutting an axis of a mesh in two."""
    from torch.distributed.device_mesh import init_device_mesh

    def one(config: Config) -> None:
        with fake_group(config["extent"]):
            mesh = init_device_mesh("cpu", (config["extent"],), mesh_dim_names=("all",))
            mesh._unflatten(0, (config["first"], config["second"]), ("first", "second"))

    return one


@check("torch-loss")
def torch_loss() -> Check:
    """Which axes split the classes of a loss."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel.loss import _find_all_reduce_mesh_dim

    def one(config: Config) -> None:
        split = config["n_vocab_shard_dims"]
        _find_all_reduce_mesh_dim((*(Shard(1) for _ in range(split)), *(Replicate() for _ in range(3 - split))), 1)

    return one


def asked(grid: Grid, one: Check) -> tuple[str, set[str]]:
    """The verdicts on a grid, and the messages that were not expected."""
    verdicts, unexpected = [], set()
    for config in grid.configs():
        message: str | None = None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                one(config)
        except Exception as refused:
            message = str(refused)
        verdicts.append(grid.verdict(message))
        if verdicts[-1] == OTHER:
            unexpected.add(f"{config}: {message}")
    return "".join(verdicts), unexpected


def main() -> int:
    """Ask about every grid, or about those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--only", action="append", choices=list(GRIDS), help="only these grids; the file keeps the others")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    old: dict[str, Any] = json.loads(options.file.read_text(encoding="utf-8")) if options.file.exists() else {"grids": {}}
    grids, failed = dict(old["grids"]), False
    for name in options.only or GRIDS:
        grid, began = GRIDS[name], time.monotonic()
        verdicts, unexpected = asked(grid, CHECKS[name]())
        for line in sorted(unexpected)[:5]:
            print(f"{name}: unexpected: {line}", file=sys.stderr)
        failed |= bool(unexpected)
        if unexpected:
            continue
        found = {**record(grid, verdicts), "version": importlib.metadata.version(grid.package)}
        failed |= options.check and grids.get(name) != found
        grids[name] = found
        shown = f"{found['configurations']} configurations, {found['accepted']} accepted, {found['disagreements']} disagreements"
        print(f"{name}: {shown}, {time.monotonic() - began:.1f} s")
    if not options.check and not failed:
        data = {"schema": "placeproof.validators/1", "grids": {name: grids[name] for name in GRIDS if name in grids}}
        options.file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(g['configurations'] for g in grids.values())} configurations" + ("; differs" if failed else ""))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
