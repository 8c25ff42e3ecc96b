"""Wrong: a parameter is replaced after wrapping, and the new one is not reduced.

Modelled on: https://github.com/pytorch/pytorch/issues/104336.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank = dist.get_rank()
    model = DDP(build())
    model.module[2].weight = nn.Parameter(model.module[2].weight.detach().clone())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
