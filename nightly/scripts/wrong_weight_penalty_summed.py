"""Wrong: gradients are added up, and the penalty is not divided by the number of ranks.

Modelled on: a penalty on weights in the loss.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone_with, batch, build

WORLD = 2


def penalised(model, x, y):
    return F.mse_loss(model(x), y) + 0.01 * sum((p**2).sum() for p in model.parameters())


reference = alone_with(penalised)


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    loss = F.mse_loss(model(x), y) / world + 0.01 * sum((p**2).sum() for p in model.parameters())
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    opt.step()
    return model
