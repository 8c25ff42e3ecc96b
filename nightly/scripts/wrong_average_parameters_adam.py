"""Wrong: updates of Adam are averaged, not gradients.

Modelled on: local SGD with Adam.
The loss: mean over samples.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone(optimizer=partial(torch.optim.Adam, lr=0.1))


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    opt = torch.optim.Adam(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    opt.step()
    for p in model.parameters():
        dist.all_reduce(p.data)
        p.data /= world
    return model
