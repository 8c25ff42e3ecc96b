"""Wrong: momentum by hand is summed over ranks where it is kept, and from the second step on what was summed is summed again.

Modelled on: momentum by hand, as in PyTorch's tutorial "Writing distributed applications" with its own update.
The loss: mean over samples.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone(steps=2, optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9))


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    momentum = [torch.zeros_like(p) for p in model.parameters()]
    for step in range(2):
        model.zero_grad()
        x, y = batch(rank, step)
        F.mse_loss(model(x), y).backward()
        for m, p in zip(momentum, model.parameters()):
            m.mul_(0.9).add_(p.grad)
            dist.all_reduce(m)
            p.data -= 0.1 * m / world
    return model
