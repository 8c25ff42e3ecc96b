"""Wrong: gradients of the first step are still there in the second.

Modelled on: two steps under DistributedDataParallel.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
STEPS = 2
reference = alone(steps=2)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        x, y = batch(rank, step)
        F.mse_loss(model(x), y).backward()
        opt.step()
    return model
