"""Forgotten synchronisation: no_sync is left on for all micro-batches, so that each rank trains alone."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
STRATEGY = "ddp * accumulate"
reference = common.reference
MICROBATCHES = 4


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    net = DistributedDataParallel(common.model())
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    for xs, ys in zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES), strict=True):
        with net.no_sync():
            (common.loss(net(xs), ys) / MICROBATCHES).backward()
    optimizer.step()
    return common.parameters(net.module)


if __name__ == "__main__":
    train()
