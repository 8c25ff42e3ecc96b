"""Tensor parallelism by hand without the all-reduce in backward: what reaches the layers before is one rank's part of a sum."""

from typing import Any

import common
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

WORLD = 2
STRATEGY = "tp"
reference = common.reference


class ToSplit(torch.autograd.Function):
    """Before layers that are split by columns: nothing is done in forward or in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return gradient


class FromSplit(torch.autograd.Function):
    """After a layer that is split by rows: forward sums over the ranks, backward does nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return gradient


class SplitBlock(nn.Module):
    """One rank's part of a block."""

    def __init__(self, block: common.Block, rank: int, world: int) -> None:
        super().__init__()
        self.norm = block.norm
        self.left = nn.Parameter(block.left.weight.detach().chunk(world, 0)[rank].clone())
        self.right = nn.Parameter(block.right.weight.detach().chunk(world, 0)[rank].clone())
        self.down = nn.Parameter(block.down.weight.detach().chunk(world, 1)[rank].clone())

    def forward(self, x: Tensor) -> Tensor:
        y = ToSplit.apply(self.norm(x))
        z = functional.relu(functional.linear(y, self.left)) + functional.relu(functional.linear(y, self.right))
        return x + FromSplit.apply(functional.linear(z, self.down))


def gathered(name: str, part: Tensor, world: int) -> Tensor:
    """The whole of a parameter that is split."""
    parts = [torch.empty_like(part) for _ in range(world)]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts, dim=1 if name.endswith("down") else 0)


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = common.model()
    net.blocks = nn.ModuleDict({name: SplitBlock(block, rank, world) for name, block in net.blocks.items()})
    optimizer = common.sgd(net)
    x, y = common.batch()
    common.loss(net(x), y).backward()
    optimizer.step()
    split = ("left", "right", "down")
    found = common.parameters(net).items()
    return {f"{n}.weight" if n.endswith(split) else n: gathered(n, p, world) if n.endswith(split) else p for n, p in found}


if __name__ == "__main__":
    train()
