"""Right: averaged gradients are clipped, number by number.

Modelled on: clip_grad_value_ under DistributedDataParallel.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.one_process import mean_squares, parameters, whole
from toys.regression import batch, build

WORLD = 2


def reference(world):
    model = build()
    mean_squares(model, *whole(batch)(world, 0)).backward()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad.clamp(-0.01, 0.01), alpha=-0.1)
    return parameters(model)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
    opt.step()
    return model
