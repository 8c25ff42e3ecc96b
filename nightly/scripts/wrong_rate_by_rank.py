"""Wrong: ranks have different learning rates.

Modelled on: a learning rate that is set by hand.
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
        opt.param_groups[0]["lr"] = 0.2
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
