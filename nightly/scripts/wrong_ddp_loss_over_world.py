"""Wrong: the loss is divided by the number of ranks, and DistributedDataParallel averages.

Modelled on: PyTorch's tutorial on DistributedDataParallel.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    opt.zero_grad()
    (F.mse_loss(model(x), y) / world).backward()
    opt.step()
    return model
