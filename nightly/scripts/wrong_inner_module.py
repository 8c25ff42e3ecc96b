"""Wrong: the wrapper is passed by, and nothing is reduced.

Modelled on: DistributedDataParallel whose module is called.
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
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model.module(x), y).backward()
    opt.step()
    return model
