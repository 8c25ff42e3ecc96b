"""Wrong: divided by the number of all ranks' tokens, and averaged besides.

Modelled on: transformers' average_tokens_across_devices.
The loss: mean over valid tokens of all ranks.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.language import alone_equal, build
from toys.language import equal_batch as batch

WORLD = 2
reference = alone_equal()


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    n = (y != -100).sum()
    dist.all_reduce(n)
    (F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum") / n).backward()
    opt.step()
    return model
