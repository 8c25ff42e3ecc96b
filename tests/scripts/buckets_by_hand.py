"""Data parallelism by hand, one flat buffer of gradients for each block, reduced in the background."""

import common
import torch
import torch.distributed as dist
from torch import Tensor

WORLD = 2
STRATEGY = "ddp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = common.model()
    optimizer = common.sgd(net)
    x, y = common.share(rank, world)
    common.loss(net(x), y).backward()
    buckets = [list(m.parameters()) for m in (net.inlet, *net.blocks.values(), net.outlet)]
    flat = [torch.cat([p.grad.flatten() for p in bucket]) for bucket in buckets]
    for work in [dist.all_reduce(f, async_op=True) for f in flat]:
        work.wait()
    for bucket, f in zip(buckets, flat, strict=True):
        for p, g in zip(bucket, f.split([p.numel() for p in bucket]), strict=True):
            p.grad.copy_(g.view_as(p) / world)
    optimizer.step()
    return common.parameters(net)


if __name__ == "__main__":
    train()
