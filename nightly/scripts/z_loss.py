"""Right: two means over samples, each with its own factor.

Modelled on: a router's z-loss.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def with_z_loss(model, x, y):
    h = model(x)
    return F.mse_loss(h, y) + 0.01 * torch.logsumexp(h, -1).pow(2).mean()


reference = alone_with(with_z_loss)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    h = model(x)
    (F.mse_loss(h, y) + 0.01 * torch.logsumexp(h, -1).pow(2).mean()).backward()
    opt.step()
    return model
