"""Right: a network that follows the trained one, and that losses of the next step read.

Modelled on: target networks of deep Q-learning, with a soft update.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.one_process import parameters, whole
from toys.regression import batch, build

WORLD = 2
STEPS = 2


def follow(slow, model):
    with torch.no_grad():
        for s, p in zip(slow.parameters(), model.parameters()):
            s.lerp_(p, 0.1)


def reference(world):
    model, slow = build(), build()
    for step in range(2):
        x, y = whole(batch)(world, step)
        model.zero_grad()
        F.mse_loss(model(x), y + 0.9 * slow(x).detach()).backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)
        follow(slow, model)
    return parameters(model)


def train():
    model, slow = DDP(build()), build().requires_grad_(False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        x, y = batch(dist.get_rank(), step)
        aim = y + 0.9 * slow(x)
        opt.zero_grad()
        F.mse_loss(model(x), aim).backward()
        opt.step()
        follow(slow, model)
    return model
