"""Wrong: the number of tokens is that of the first micro-batch, doubled.

Modelled on: transformers' get_batch_samples.
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
    n = (y[:2] != -100).sum()
    dist.all_reduce(n)
    n = n.item() * 2
    for xs, ys in zip(x.chunk(2), y.chunk(2)):
        (F.cross_entropy(model(xs).flatten(0, 1), ys.flatten(), ignore_index=-100, reduction="sum") * world / n).backward()
    opt.step()
    return model
