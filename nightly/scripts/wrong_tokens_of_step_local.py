"""Wrong: divided by the own rank's tokens, and averaged.

Modelled on: transformers of October 2024.
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
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    n = (y != -100).sum().item()
    for xs, ys in zip(x.chunk(2), y.chunk(2)):
        (F.cross_entropy(model(xs).flatten(0, 1), ys.flatten(), ignore_index=-100, reduction="sum") / n).backward()
    opt.step()
    return model
