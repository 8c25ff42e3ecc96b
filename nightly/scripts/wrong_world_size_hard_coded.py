"""Wrong: two ranks divide by four.

Modelled on: gradients averaged by hand.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank = dist.get_rank()
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()

    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= 4
    opt.step()
    return model
