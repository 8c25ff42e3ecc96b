"""Data parallelism with different numbers of samples on the ranks: each sums its losses, and the sum is divided by the whole number."""

import common
import torch.distributed as dist
from torch import Tensor

WORLD = 2
STRATEGY = None
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    net = common.model()
    optimizer = common.sgd(net)
    x, y = (t.tensor_split([12])[dist.get_rank()] for t in common.batch())
    common.loss(net(x), y, reduction="sum").backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= common.batch()[1].numel()
    optimizer.step()
    return common.parameters(net)


if __name__ == "__main__":
    train()
