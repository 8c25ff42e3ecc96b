"""Right: averaged gradients are clipped, then AdamW updates.

Modelled on: nanoGPT's train.py, with clipping.
The loss: mean over samples.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
reference = alone(optimizer=partial(torch.optim.AdamW, lr=0.1), clip=0.05)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.AdamW(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    opt.step()
    return model
