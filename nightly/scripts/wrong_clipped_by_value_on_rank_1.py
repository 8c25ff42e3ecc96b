"""Wrong: one rank clips its averaged gradients, number by number, and others do not.

Modelled on: gradients averaged by hand.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
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
    if rank == 1:
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
    opt.step()
    return model
