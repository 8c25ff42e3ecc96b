"""Right: all ranks have the same teacher.

Modelled on: DeiT's distillation.
The loss: distillation from one teacher.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def distilled(model, x, y):
    torch.manual_seed(0)
    teacher = nn.Linear(6, 3)
    return F.mse_loss(model(x), teacher(x).detach())


reference = alone_with(distilled)


def train():
    rank = dist.get_rank()
    torch.manual_seed(0)
    teacher = nn.Linear(6, 3).requires_grad_(False)
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, _ = batch(rank)
    F.mse_loss(model(x), teacher(x)).backward()
    opt.step()
    return model
