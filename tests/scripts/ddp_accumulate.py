"""DistributedDataParallel with gradient accumulation: the last micro-batch synchronises, each loss is divided by their number."""

from contextlib import nullcontext

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
    for i, (xs, ys) in enumerate(zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES), strict=True)):
        with nullcontext() if i == MICROBATCHES - 1 else net.no_sync():
            (common.loss(net(xs), ys) / MICROBATCHES).backward()
    optimizer.step()
    return common.parameters(net.module)


if __name__ == "__main__":
    train()
