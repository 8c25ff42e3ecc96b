"""Right: no_sync around backward alone has no effect, and each micro-batch is reduced.

Modelled on: https://github.com/huggingface/accelerate/pull/1726.
The loss: mean over samples.
"""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    for i, (xs, ys) in enumerate(zip(x.chunk(4), y.chunk(4))):
        loss = F.mse_loss(model(xs), ys) / 4
        with model.no_sync() if i < 3 else contextlib.nullcontext():
            loss.backward()
    opt.step()
    return model
