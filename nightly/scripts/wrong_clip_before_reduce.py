"""Wrong: each rank clips its own gradients, and then they are averaged.

Modelled on: gradients averaged by hand, with clip_grad_norm_.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone(clip=0.05)


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    opt.step()
    return model
