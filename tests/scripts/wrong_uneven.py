"""Uneven batches averaged per rank: one rank has three times as many samples, and each rank counts alike."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
STRATEGY = "ddp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    net = DistributedDataParallel(common.model())
    optimizer = common.sgd(net)
    x, y = (t.tensor_split([12])[dist.get_rank()] for t in common.batch())
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.parameters(net.module)


if __name__ == "__main__":
    train()
