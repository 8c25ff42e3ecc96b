"""Wrong: a hook before the optimizer's step adds up gradients, and divides none.

Modelled on: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_pre_hook.html.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def add(opt, args, kwargs):
    for p in opt.param_groups[0]["params"]:
        dist.all_reduce(p.grad)


def train():
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    opt.register_step_pre_hook(add)
    x, y = batch(dist.get_rank())
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
