"""Wrong: each rank clips by the norm of what it updates itself.

Modelled on: ZeRO-2 by hand, with whole tensors.
The loss: mean over samples.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone(clip=0.05, optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9))


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    params = list(model.parameters())
    mine = [p for i, p in enumerate(params) if i % world == rank]
    opt = torch.optim.SGD(mine, lr=0.1, momentum=0.9)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    for i, p in enumerate(params):
        dist.reduce(p.grad, dst=i % world)
        p.grad /= world
    torch.nn.utils.clip_grad_norm_(mine, 0.05)
    opt.step()
    for i, p in enumerate(params):
        dist.broadcast(p.data, src=i % world)
    return model
