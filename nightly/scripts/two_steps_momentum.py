"""Right: momentum is the same on all ranks.

Modelled on: two steps under DistributedDataParallel.
The loss: mean over samples.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
STEPS = 2
reference = alone(steps=2, optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9))


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(2):
        x, y = batch(rank, step)
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
    return model
