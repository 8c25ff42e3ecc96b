"""Wrong: each rank divides by the weights of its own samples.

Modelled on: a weighted mean over samples.
The loss: weighted mean of all samples.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def weighted(model, x, y):
    weights = x[:, 0].abs()
    return ((model(x) - y).pow(2).mean(1) * weights).sum() / weights.sum()


reference = alone_with(weighted)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    w = x[:, 0].abs()
    loss = ((model(x) - y).pow(2).mean(1) * w).sum() / w.sum()
    loss.backward()
    opt.step()
    return model
