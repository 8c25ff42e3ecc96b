"""How each implementation is laid around a module, and which optimizer goes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import CustomPolicy
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from placeproof.cost.exact.optimizers import OPTIMIZERS
from placeproof.cost.exact.options import Value
from placeproof.measure.training.models import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a wrap needs to know. ``mesh`` has a dimension for each of the axes, in order, whatever it calls it. ``groups``: axes of process
    groups that a wrap makes besides those of the mesh, by the names of the groups. ``buffers``: elements of the model's buffers by type.
    """

    mesh: DeviceMesh
    axes: tuple[str, ...]
    backend: str
    options: Mapping[str, Value]
    buffers: tuple[tuple[str, int], ...] = ()
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def part(self, *axes: str) -> DeviceMesh:
        """The mesh of these axes alone."""
        names = self.mesh.mesh_dim_names
        assert names is not None
        return self.mesh[tuple(names[self.axes.index(axis)] for axis in axes)]

    def group(self, axis: str) -> dist.ProcessGroup:
        """This rank's process group along an axis."""
        return self.mesh.get_group(self.axes.index(axis))

    def dtype(self, option: str) -> torch.dtype | None:
        """The element type that an option names; None where it is not set, or not taken."""
        name = self.options.get(option)
        return None if name is None else getattr(torch, str(name))


Wrap: TypeAlias = Callable[[Model, Job], nn.Module]


def ddp(model: Model, job: Job) -> nn.Module:
    """DistributedDataParallel over all devices."""
    for kind, count in job.buffers:
        dtype = job.dtype("dtype") if kind == "dtype" else getattr(torch, kind)
        model.register_buffer(f"buffer_{kind}", torch.zeros(count, dtype=dtype))
    module = DistributedDataParallel(
        model,
        process_group=job.group("dp"),
        bucket_cap_mb=job.options["bucket_cap_mb"],
        find_unused_parameters=bool(job.options["find_unused"]),
    )
    if job.backend == "fake":
        # The annotations of a hook are compared with types; those of a function in this file are texts.
        module.register_comm_hook(job.group("dp"), lambda group, bucket: _as_the_reducer(group, bucket))  # noqa: PLW0108
    return module


def _as_the_reducer(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What DistributedDataParallel's reducer does by itself: it cannot wait for the fake backend, which has no futures."""
    dist.all_reduce(bucket.buffer().div_(group.size()), group=group)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def _fsdp1(strategy: str) -> Wrap:
    def wrap(model: Model, job: Job) -> nn.Module:
        parts = set(model.parts())
        param, reduce = job.dtype("param_dtype"), job.dtype("reduce_dtype")
        return FullyShardedDataParallel(
            model,
            process_group=job.group("dp"),
            sharding_strategy=ShardingStrategy[strategy],
            auto_wrap_policy=CustomPolicy(lambda module: module in parts),
            mixed_precision=MixedPrecision(param_dtype=param, reduce_dtype=reduce) if param or reduce else None,
            device_id=torch.device("cpu"),
        )

    return wrap


def _fsdp2(axes: tuple[str, ...], *, reshard: bool | str | None = None) -> Wrap:
    """``fully_shard`` of the units in the order of forward, then of the root; a text as ``reshard`` names the option that says it."""

    def wrap(model: Model, job: Job) -> nn.Module:
        mesh = job.part(*axes)
        policy = MixedPrecisionPolicy(param_dtype=job.dtype("param_dtype"), reduce_dtype=job.dtype("reduce_dtype"))
        after: Any = job.options[reshard] if isinstance(reshard, str) else reshard
        for part in (*model.parts(), model):
            fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=after)
            job.groups.update(_sub_groups(part))
        return model

    return wrap


def _sub_groups(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """The groups of the inner factor over which a module keeps a shard after forward: each ``fully_shard`` makes its own."""
    assert isinstance(module, FSDPModule)
    groups: dict[str, tuple[str, ...]] = {}
    for group in module._get_fsdp_state()._fsdp_param_groups:
        after = group.post_forward_mesh_info
        if after is not None and after.mesh != group.mesh_info.mesh:
            groups[str(after.shard_process_group.group_name)] = ("dp_inner",)
    return groups


#: What tensor parallelism does to the matrices, whatever else: queries, keys, values and the two factors of the gated feed-forward are
#: split by output features, what ends a block by input features.
_MATRICES: Mapping[str, Any] = {
    "wq": ColwiseParallel,
    "wk": ColwiseParallel,
    "wv": ColwiseParallel,
    "w1": ColwiseParallel,
    "w3": ColwiseParallel,
    "wo": RowwiseParallel,
    "w2": RowwiseParallel,
}


#: Where several linear layers read the same.
_INPUTS = ("attention_input", "ffn_input")


def _split(model: Model, job: Job, layer: Mapping[str, ParallelStyle], outside: Mapping[str, ParallelStyle]) -> nn.Module:
    plan = {f"layers.*.{name}": style for name, style in layer.items()} | dict(outside)
    return parallelize_module(model, job.part("tp"), plan)


def tp_naive(model: Model, job: Job) -> nn.Module:
    """Every linear layer by itself. Each ColwiseParallel declares its input (Replicate) on its own, so that each all-reduces its own
    gradient of it; RowwiseParallel returns Replicate. Embedding: RowwiseParallel, the vocabulary split (weight Shard(0)), input and
    output Replicate. Head: ColwiseParallel (weight Shard(0)), its logits gathered to Replicate. Norms are not distributed.
    """
    outside = {"embedding": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate())}
    return _split(model, job, {name: style() for name, style in _MATRICES.items()}, outside)


def tp_megatron(model: Model, job: Job) -> nn.Module:
    """As naive, but what several linear layers read is declared once: PrepareModuleInput, from Replicate to Replicate, on
    ``attention_input`` and ``ffn_input``. Its gradient is one partial sum, all-reduced once.
    """
    outside = {"embedding": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate())}
    once = {name: PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate()) for name in _INPUTS}
    return _split(model, job, {name: style() for name, style in _MATRICES.items()} | once, outside)


def tp_sp(model: Model, job: Job) -> nn.Module:
    """The residual stream is Shard(1), split by tokens: RowwiseParallel and the embedding return Shard(1), norms are SequenceParallel
    (weights Replicate), PrepareModuleInput gathers (Shard(1) to Replicate) on ``attention_input`` and ``ffn_input``. Head:
    ColwiseParallel from Shard(1), its logits gathered to Replicate.
    """
    layer: dict[str, ParallelStyle] = {
        name: style(output_layouts=Shard(1)) if style is RowwiseParallel else style() for name, style in _MATRICES.items()
    }
    layer |= {name: PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()) for name in _INPUTS}
    layer |= {name: SequenceParallel() for name in ("attention_norm", "ffn_norm")}
    outside = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    return _split(model, job, layer, outside)


#: By the names that a subject's ``wraps`` gives.
WRAPS: Mapping[str, Wrap] = {
    "ddp": ddp,
    "fsdp1": _fsdp1("FULL_SHARD"),
    "fsdp1_grad_op": _fsdp1("SHARD_GRAD_OP"),
    "fsdp1_no_shard": _fsdp1("NO_SHARD"),
    "fsdp2": _fsdp2(("dp",)),
    "fsdp2_all": _fsdp2(("dp",), reshard=True),
    "fsdp2_keep": _fsdp2(("dp",), reshard=False),
    "fsdp2_sub": _fsdp2(("dp",), reshard="k"),
    "hsdp": _fsdp2(("rep", "shard")),
    "tp_naive": tp_naive,
    "tp_megatron": tp_megatron,
    "tp_sp": tp_sp,
}


def optimizer(modules: Iterable[nn.Module], job: Job, *, sharded: bool) -> torch.optim.Optimizer:
    """The optimizer of all parameters of the modules; with ``sharded``, ZeroRedundancyOptimizer around it."""
    parameters = [p for module in modules for p in module.parameters()]
    of = OPTIMIZERS[str(job.options["optimizer"])]
    kind, given = getattr(torch.optim, of.kind), {"lr": 2.0**-10, "foreach": False, **of.given}
    if not sharded:
        plain: torch.optim.Optimizer = kind(parameters, **given)
        return plain
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(
        parameters,
        optimizer_class=kind,
        process_group=job.group("dp"),
        parameters_as_bucket_view=bool(job.options["bucket_view"]),
        **given,
    )
