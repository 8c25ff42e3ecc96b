"""Wrong: one rank alone has the momentum of before.

Modelled on: a state of the optimizer that is restored.
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
    x, y = batch(rank)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if rank == 0:
        for p in model.parameters():
            opt.state[p]["momentum_buffer"] = torch.ones_like(p)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
