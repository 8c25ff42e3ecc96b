"""Local batch normalisation: each rank normalises by the mean and the variance of its own samples.

The reference divides by square roots, too: what differs is not in the last bits.
"""

import common
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
STRATEGY = "ddp"


class Normed(nn.Module):
    """The model after a batch normalisation of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = common.model()
        self.norm = nn.BatchNorm1d(common.WIDTH, dtype=self.net.inlet.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.norm(x.transpose(1, 2)).transpose(1, 2))


def reference() -> dict[str, Tensor]:
    """One process that normalises over the whole batch."""
    net, (x, y) = Normed(), common.batch()
    optimizer = common.sgd(net)
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.parameters(net)


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    net = DistributedDataParallel(Normed())
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.parameters(net.module)


if __name__ == "__main__":
    train()
