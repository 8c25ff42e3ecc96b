"""Wrong: a temperature that no module has gets the gradient of its own rank.

Modelled on: the temperature of soft actor-critic, which has an optimizer of its own.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.one_process import parameters, whole
from toys.regression import batch, build

WORLD = 2


def reference(world):
    model, heat = build(), torch.ones(1, requires_grad=True)
    x, y = whole(batch)(world, 0)
    F.mse_loss(model(x) * heat, y).backward()
    with torch.no_grad():
        for p in (*model.parameters(), heat):
            p.sub_(p.grad, alpha=0.1)
    return {**parameters(model), "heat": heat.detach()}


def train():
    model, heat = DDP(build()), torch.ones(1, requires_grad=True)
    opt, heat_opt = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD([heat], lr=0.1)
    x, y = batch(dist.get_rank())
    F.mse_loss(model(x) * heat, y).backward()
    opt.step()
    heat_opt.step()
    model.module.heat = torch.nn.Parameter(heat.detach())
    return model
