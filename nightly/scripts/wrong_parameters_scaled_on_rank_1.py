"""Wrong: one rank scales its parameters after the update.

Modelled on: an average of parameters that is put in their place.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    if rank == 1:
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.99)
    return model
