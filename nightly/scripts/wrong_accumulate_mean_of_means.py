"""Wrong: each micro-batch takes the mean over its own tokens, and they have different numbers of them.

Modelled on: https://github.com/huggingface/transformers/pull/34191.
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
    for xs, ys in zip(x.chunk(4), y.chunk(4)):
        (F.cross_entropy(model(xs).flatten(0, 1), ys.flatten(), ignore_index=-100) / 4).backward()
    opt.step()
    return model
