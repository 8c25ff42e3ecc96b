"""Right: each rank divides by the same constant.

Modelled on: Dr. GRPO's sum over a constant.
The loss: masked sum over a constant (Dr. GRPO): batch * length.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.language import alone_with, batch, build

WORLD = 2


def masked(model, x, y):
    log_p = F.log_softmax(model(x), -1).gather(-1, y.clamp(min=0)[..., None])[..., 0]
    return -(log_p * (y != -100)).mean()


reference = alone_with(masked)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    mask = (y != -100).to(torch.get_default_dtype())
    lp = F.log_softmax(model(x), -1).gather(-1, y.clamp(min=0)[..., None])[..., 0]
    loss = -(lp * mask).mean()
    loss.backward()
    opt.step()
    return model
