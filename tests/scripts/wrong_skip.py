"""A skipped collective: only rank 0 reduces the loss over the ranks, to show it."""

import common
import torch.distributed as dist
from torch import Tensor

WORLD = 2
STRATEGY = "ddp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = common.model(seed=rank)
    for p in net.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = common.sgd(net)
    x, y = common.share(rank, world)
    loss = common.loss(net(x), y)
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
    if rank == 0:
        dist.all_reduce(loss.detach())
    return common.parameters(net)


if __name__ == "__main__":
    train()
