"""Wrong: the learning rate of other ranks stays as it is.

Modelled on: a scheduler that the main process steps.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
STEPS = 2
reference = alone(steps=2, rates=(0.1, 0.05))


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sched = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
    for step in range(2):
        x, y = batch(rank, step)
        opt.zero_grad()
        F.mse_loss(model(x), y).backward()
        opt.step()
        if rank == 0:
            sched.step()
    return model
