"""Right: weighted errors are divided by the number of samples.

Modelled on: a focal loss.
The loss: mean over samples of weight * error.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def weighted(model, x, y):
    return ((model(x) - y).pow(2).mean(1) * x[:, 0].abs()).mean()


reference = alone_with(weighted)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    w = x[:, 0].abs()
    loss = ((model(x) - y).pow(2).mean(1) * w).mean()
    loss.backward()
    opt.step()
    return model
