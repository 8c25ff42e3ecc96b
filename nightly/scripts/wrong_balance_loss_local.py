"""Wrong: the product of means over the own rank's samples, meant over all.

Modelled on: Switch Transformer's balance loss.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def balanced(model, x, y):
    h = model(x)
    return F.mse_loss(h, y) + 0.1 * (h.softmax(-1).mean(0) ** 2).sum()


reference = alone_with(balanced)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    h = model(x)
    p = h.softmax(-1).mean(0)
    (F.mse_loss(h, y) + 0.1 * (p * p).sum()).backward()
    opt.step()
    return model
