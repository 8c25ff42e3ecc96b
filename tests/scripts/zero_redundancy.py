"""ZeRO stage 1 by ZeroRedundancyOptimizer: gradients are averaged, each rank updates its part and sends it to all."""

import common
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
STRATEGY = "zero1"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    net = DistributedDataParallel(common.model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.SGD, lr=common.LEARNING_RATE, foreach=False)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.parameters(net.module)


if __name__ == "__main__":
    train()
