"""Right: each rank has the same penalty, and gradients are averaged.

Modelled on: a penalty on weights in the loss.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def penalised(model, x, y):
    return F.mse_loss(model(x), y) + 0.01 * sum((p**2).sum() for p in model.parameters())


reference = alone_with(penalised)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    loss = F.mse_loss(model(x), y) + 0.01 * sum((p**2).sum() for p in model.parameters())
    loss.backward()
    opt.step()
    return model
