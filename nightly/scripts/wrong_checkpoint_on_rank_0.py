"""Wrong: one rank alone has the parameters of before.

Modelled on: a checkpoint that is loaded after wrapping.
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
    if rank == 0:
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.5)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
