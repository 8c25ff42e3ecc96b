"""Right: all micro-batches of all ranks are divided by the number of their tokens.

Modelled on: https://github.com/verl-project/verl/pull/5877.
The loss: mean over valid tokens of all ranks and micro-batches.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.language import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    n = (y != -100).sum()
    dist.all_reduce(n)
    for s in (slice(0, 3), slice(3, 4)):
        xs, ys = x[s], y[s]
        (F.cross_entropy(model(xs).flatten(0, 1), ys.flatten(), ignore_index=-100, reduction="sum") * world / n).backward()
    opt.step()
    return model
