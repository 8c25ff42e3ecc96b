"""Wrong: neighbours in one gradient are averaged, and not what ranks have of an element.

Modelled on: a mean by hand over gathered gradients.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    for p in model.parameters():
        out = torch.empty(world * p.grad.numel())
        dist.all_gather_into_tensor(out, p.grad.flatten())
        p.grad.copy_(out.view(-1, world).mean(1).view_as(p.grad))
    opt.step()
    return model
