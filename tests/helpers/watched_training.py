"""Trainings on several processes that are watched: right ones of several strategies, and faults that are planted into them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from placeproof.measure.watch import Watch, watch

PRELOAD = ("torch.distributed.fsdp", "torch.distributed.tensor.parallel", "torch.nn.parallel", "torch.optim", "torch._dynamo")
#: Longer than two rows of columns that are hashed, so that both ways of hashing are used.
HIDDEN, WIDE = 8, 4400

_BUFFERS: dict[str, dict[str, Any]] = {"ddp_own_buffers": {"broadcast_buffers": False}}


class Net(nn.Module):
    """A small network with a norm, a bias, a saved buffer, a cache, and a layer that may be unused."""

    def __init__(self, *, norm: bool = False, unused: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(HIDDEN) if norm else nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, WIDE)
        self.down = nn.Linear(WIDE, HIDDEN)
        self.spare = nn.Linear(HIDDEN, HIDDEN) if unused else None
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("cache", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.cache = self.cache + x.detach().mean()  # differs from rank to rank, and is not saved
        return x + self.down(torch.relu(self.up(self.norm(x)))) * self.scale[0]


@dataclass(kw_only=True)
class Run:
    """A training: what faults change. ``rank``: of this process; ``step``: counts from 1; ``skip``: whether the update is left out."""

    base: str
    rank: int
    model: Any = None
    optimizer: Any = None
    step: int = 0
    skip: bool = False
    counts: list[tuple[float, float | None]] = field(default_factory=list)

    def tensor(self, name: str) -> Tensor:
        """A parameter or a buffer, by the end of its name; of one that is split, the part of this rank."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        (found,) = [t for n, t in named if n.endswith(name)]
        return found

    def local(self, name: str) -> Tensor:
        return _local(self.tensor(name).detach())

    def gradient(self, name: str) -> Tensor:
        found = self.tensor(name).grad
        assert found is not None
        return _local(found)

    def state(self, name: str, key: str) -> Tensor:
        return _local(self.optimizer.state[self.tensor(name)][key])


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``when``: "built", before it is watched; "backward", before gradients are reduced; "reduced", before the update; "updated", after it.
    ``what``: the kind of the finding that has to be first, and the end of the name in it. ``step``: at which it is planted, and on each
    later one if it stays."""

    base: str
    when: str
    do: Callable[[Run], Any]
    what: str
    name: str
    step: int = 3
    stays: bool = False


def _local(t: Tensor) -> Tensor:
    return t.to_local() if isinstance(t, DTensor) else t


def _parallel(net: Net, base: str) -> nn.Module:
    if base.startswith("ddp") or base in ("amp", "accumulate", "frozen", "sgd"):
        return DistributedDataParallel(net, find_unused_parameters=base == "ddp_unused", **_BUFFERS.get(base, {}))
    if base == "hsdp":
        return fully_shard(net, mesh=init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("copies", "parts")))
    if base == "fsdp2":
        return fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    if base in ("tp", "fsdp2_tp"):
        size = dist.get_world_size()
        shape = (1, size) if base == "tp" else (2, size // 2)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
        parallelize_module(net, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        return net if base == "tp" else fully_shard(net, mesh=mesh["dp"])
    return net


def _build(base: str, rank: int) -> Run:
    torch.manual_seed(1)
    net = Net(norm="norm" in base, unused=base == "ddp_unused")
    if base == "frozen":
        net.up.requires_grad_(False)
    model = _parallel(net, base)
    free = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(free, lr=1e-2, momentum=0.9) if base == "sgd" else torch.optim.AdamW(free, lr=1e-3)
    return Run(base=base, rank=rank, model=model, optimizer=optimizer)


def _backward(run: Run, scaler: Any, plant: Callable[[str], None]) -> None:
    """Gradients of the mean over the ranks, each of which has samples of its own, unless tensor parallelism shares them."""
    seed = 0 if run.base == "tp" else run.rank // (dist.get_world_size() // 2) if run.base == "fsdp2_tp" else run.rank
    data = torch.Generator().manual_seed(1000 * run.step + seed)
    passes = 3 if run.base == "accumulate" else 1
    for i in range(passes):
        x = torch.randn(4, HIDDEN, generator=data)
        with run.model.no_sync() if run.base == "accumulate" and i < passes - 1 else nullcontext():
            with torch.autocast("cpu", torch.bfloat16, enabled=run.base == "amp"):
                loss = (run.model(x).float() ** 2).mean() / passes
            (loss if scaler is None else scaler.scale(loss)).backward()
    plant("backward")
    if run.base.startswith("hand"):
        for p in run.model.parameters():
            if p.grad is not None and not getattr(p, "forgotten", False):
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()


def train(base: str, fault: Fault | None, steps: int, every: int, **options: Any) -> tuple[list[Any], int, str]:
    """The findings, in which step the first one came, and the report."""
    rank = dist.get_rank()
    if base.endswith("_world"):
        base, options = base.removesuffix("_world"), {"group": dist.group.WORLD, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PyTorch is about to call broadcast_buffers otherwise
        run = _build(base, rank)

    def plant(when: str) -> None:
        due = fault is not None and (run.step == fault.step or (fault.stays and run.step > fault.step))
        if fault is not None and fault.when == when and (when == "built" or due):
            with torch.no_grad():
                fault.do(run)

    plant("built")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if base == "amp" else None
    seen = -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the findings: they are returned
        watched: Watch = watch(run.model, run.optimizer, every=every, raises=False, **options)
        seen = 0 if watched.findings else -1
        for run.step in range(1, steps + 1):
            run.skip, run.counts = False, []
            run.optimizer.zero_grad()
            _backward(run, scaler, plant)
            if scaler is not None:
                scaler.unscale_(run.optimizer)
            if base not in ("hand_unclipped", "tp", "fsdp2_tp"):
                nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
            plant("reduced")
            for tokens, divisor in run.counts:
                watched.count(tokens, divisor=divisor)
            if scaler is not None:
                scaler.step(run.optimizer)
                scaler.update()
            elif not run.skip:
                run.optimizer.step()
            plant("updated")
            if watched.findings and seen < 0:
                seen = run.step
        watched.close()
    return watched.findings, seen, watched.report()


def _on(rank: int, do: Callable[[Run], Any]) -> Callable[[Run], Any]:
    return lambda run: do(run) if run.rank == rank else None


def _skip(run: Run) -> None:
    run.skip = True


def _rate(run: Run) -> None:
    run.optimizer.param_groups[0]["lr"] *= 1.5


def _decay(run: Run) -> None:
    run.optimizer.param_groups[0]["weight_decay"] = 0.5


def _betas(run: Run) -> None:
    run.optimizer.param_groups[0]["betas"] = (0.8, 0.999)


def _thaw(name: str) -> Callable[[Run], Any]:
    return lambda run: run.tensor(name).requires_grad_(False)


def _forget(name: str) -> Callable[[Run], Any]:
    def do(run: Run) -> None:
        run.tensor(name).forgotten = True  # type: ignore[attr-defined]

    return do


def _drop(name: str) -> Callable[[Run], Any]:
    def do(run: Run) -> None:
        run.tensor(name).grad = None

    return do


def _flip(t: Tensor) -> None:
    """The last bit of one element."""
    t.view(-1)[t.numel() // 2 :][:1].view(torch.int32).bitwise_xor_(1)


def _swap(t: Tensor) -> None:
    """The first two rows change places."""
    t[:2] = t[:2].flip(0).clone()


def _seeded(run: Run) -> None:
    torch.manual_seed(run.rank)
    for p in run.model.parameters():
        _local(p).normal_(0, 0.1)


def _counted(own: int, divisor: Callable[[int], float | None]) -> Callable[[Run], Any]:
    """Rank r tells of 10 + own r tokens."""
    return lambda run: run.counts.append((10 + own * run.rank, divisor(run.rank)))


def _named(kind: str, name: str, step: int = 3, **changes: Any) -> Callable[..., Fault]:
    return lambda base, when, do, **more: Fault(base=base, when=when, do=do, what=kind, name=name, step=step, **{**changes, **more})


#: On two processes, by name; the last rank errs.
FAULTS: dict[str, Fault] = {
    # a rank's update is skipped
    "skip, DDP": _named("update count", "")("ddp", "reduced", _on(1, _skip)),
    "skip, by hand": _named("update count", "")("hand", "reduced", _on(1, _skip)),
    "skip the first, SGD": _named("update count", "", 1)("sgd", "reduced", _on(0, _skip)),
    "skip, sharded": _named("update count", "")("fsdp2", "reduced", _on(1, _skip)),
    "skip two, DDP": _named("update count", "", 4)("ddp", "reduced", _on(1, lambda r: _skip(r) if r.step < 6 else None), stays=True),
    # a parameter changes on one rank
    "a bit of a weight": _named("parameter", "up.weight")("ddp", "updated", _on(1, lambda r: _flip(r.local("up.weight")))),
    "a bit of a bias": _named("parameter", "down.bias", 5)("ddp", "reduced", _on(0, lambda r: _flip(r.local("down.bias")))),
    "a bit of a frozen weight": _named("parameter", "up.weight")("frozen", "updated", _on(1, lambda r: _flip(r.local("up.weight")))),
    "two rows change places": _named("parameter", "up.weight")("hand", "updated", _on(1, lambda r: _swap(r.local("up.weight")))),
    "signs of a norm": _named("parameter", "norm.weight", 7)("ddp", "updated", _on(1, lambda r: r.local("norm.weight").neg_())),
    "an unused weight": _named("parameter", "spare.bias")("ddp_unused", "updated", _on(1, lambda r: r.local("spare.bias").zero_())),
    "nan in one place": _named("parameter", "down.bias", 5)(
        "sgd", "reduced", _on(1, lambda r: r.local("down.bias")[:1].fill_(float("nan")))
    ),
    "a copied norm, TP": _named("parameter", "norm.bias")("tp", "updated", _on(1, lambda r: r.local("norm.bias").add_(1e-3))),
    "a copied bias, TP": _named("parameter", "down.bias")("tp", "updated", _on(1, lambda r: r.local("down.bias").add_(1e-3))),
    # begun apart
    "seeds, by hand": _named("parameter", "norm.weight")("hand", "built", _seeded),
    "a bias at the start": _named("parameter", "up.bias")("hand", "built", _on(1, lambda r: r.local("up.bias").zero_())),
    "seeds after the wrapper": _named("parameter", "norm.weight")("ddp", "built", _seeded),
    "a norm at the start, TP": _named("parameter", "norm.weight")("tp", "built", _on(1, lambda r: r.local("norm.weight").mul_(2))),
    "frozen on one rank": _named("settings", "norm.bias")("tp", "built", _on(1, _thaw("norm.bias"))),
    # gradients
    "no reduction of a bias": _named("gradient", "down.bias", stays=True)("hand_unclipped", "backward", _forget("down.bias")),
    "no reduction of a weight": _named("gradient", "up.weight", stays=True)("hand_unclipped", "backward", _forget("up.weight")),
    "no reduction of a norm, AdamW": _named("gradient", "norm.bias", stays=True)("hand_unclipped", "backward", _forget("norm.bias")),
    "a scaled gradient": _named("gradient", "up.weight", stays=True)("ddp", "reduced", _on(1, lambda r: r.gradient("up.weight").mul_(2))),
    "all gradients scaled": _named("gradient", "norm.weight", stays=True)(
        "sgd", "reduced", _on(1, lambda r: [p.grad.mul_(1.01) for p in r.model.parameters()])
    ),
    "scaled once": _named("optimizer state", "up.bias")("ddp", "reduced", _on(1, lambda r: r.gradient("up.bias").mul_(0.5))),
    "scaled, AMP": _named("gradient", "up.bias", stays=True)("amp", "reduced", _on(0, lambda r: r.gradient("up.bias").mul_(4))),
    "scaled, accumulated": _named("gradient", "up.bias", stays=True)(
        "accumulate", "reduced", _on(1, lambda r: r.gradient("up.bias").mul_(3))
    ),
    "scaled on a norm, TP": _named("gradient", "norm.weight", stays=True)(
        "tp", "reduced", _on(1, lambda r: r.gradient("norm.weight").mul_(2))
    ),
    "a dropped gradient": _named("update count", "down.bias", stays=True)("ddp", "reduced", _on(1, _drop("down.bias"))),
    # settings
    "rate, DDP": _named("settings", "norm.weight", stays=True)("ddp", "updated", _on(1, _rate)),
    "rate, sharded": _named("settings", "norm.weight", stays=True)("fsdp2", "updated", _on(1, _rate)),
    "decay": _named("settings", "norm.weight")("hand", "updated", _on(1, _decay)),
    "betas, TP": _named("settings", "norm.weight")("tp", "updated", _on(1, _betas)),
    "rate, frozen": _named("settings", "norm.weight")("frozen", "reduced", _on(0, _rate)),
    # optimizer state
    "momentum": _named("optimizer state", "up.weight")(
        "sgd", "updated", _on(1, lambda r: r.state("up.weight", "momentum_buffer").mul_(0.9))
    ),
    "second moment": _named("optimizer state", "up.bias")("ddp", "updated", _on(1, lambda r: _flip(r.state("up.bias", "exp_avg_sq")))),
    "count of updates": _named("update count", "down.bias")("ddp", "updated", _on(1, lambda r: r.state("down.bias", "step").sub_(1))),
    "count, sharded": _named("update count", "down.bias")("fsdp2", "updated", _on(1, lambda r: r.state("down.bias", "step").sub_(1))),
    "first moment, TP": _named("optimizer state", "norm.bias")("tp", "updated", _on(1, lambda r: r.state("norm.bias", "exp_avg").zero_())),
    # buffers
    "a buffer": _named("buffer", "scale")("ddp_own_buffers", "updated", _on(1, lambda r: r.local("scale")[1:].add_(1))),
    "a buffer, sharded": _named("buffer", "scale")("fsdp2", "updated", _on(1, lambda r: r.local("scale")[1:].add_(1))),
    "local batch norm": _named("buffer", "norm.running_mean", 1)("ddp_norm", "updated", lambda r: None),
    "local batch norm, by hand": _named("buffer", "norm.running_mean", 1)("hand_norm", "updated", lambda r: None),
    # token counts
    "mean of means": _named("token count", "")("ddp", "reduced", _counted(2, lambda r: None)),
    "one rank's tokens": _named("token count", "")("ddp", "reduced", _counted(2, lambda r: 10.0)),
    "a total that is not divided": _named("token count", "")("fsdp2", "reduced", _counted(2, lambda r: 22.0)),
}
#: On four processes: two copies of two parts.
FAULTS_OF_FOUR: dict[str, Fault] = {
    "a part of one copy, HSDP": _named("parameter", "up.weight")("hsdp", "updated", _on(3, lambda r: _flip(r.local("up.weight")))),
    "moments of one copy, HSDP": _named("optimizer state", "up.bias")(
        "hsdp", "updated", _on(2, lambda r: r.state("up.bias", "exp_avg").neg_())
    ),
    "a part scaled, HSDP": _named("gradient", "down.weight", stays=True)(
        "hsdp", "reduced", _on(1, lambda r: r.gradient("down.weight").mul_(2))
    ),
    "rate, HSDP": _named("settings", "norm.weight")("hsdp", "updated", _on(3, _rate)),
    "a copied norm, FSDP2 x TP": _named("parameter", "down.bias")("fsdp2_tp", "updated", _on(3, lambda r: r.local("down.bias").add_(1e-3))),
    "a norm whole along TP, FSDP2 x TP": _named("parameter", "norm.weight")(
        "fsdp2_tp_world", "updated", lambda r: _flip(r.local("norm.weight")) if r.rank in (1, 3) else None
    ),
    "seeds of copies, HSDP": _named("parameter", "norm.weight")("hsdp", "built", _seeded),
}
RIGHT = ("ddp", "hand", "sgd", "amp", "accumulate", "frozen", "ddp_unused", "ddp_own_buffers", "fsdp2", "tp")
RIGHT_OF_FOUR = ("ddp", "hsdp", "fsdp2_tp", "fsdp2_tp_world", "fsdp2", "tp")
