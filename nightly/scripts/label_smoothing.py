"""Right: all ranks have the same number of tokens.

Modelled on: timm's label smoothing.
The loss: mean over valid tokens.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.language import alone_equal_with, build
from toys.language import equal_batch as batch
from toys.one_process import token_mean

WORLD = 2
reference = alone_equal_with(partial(token_mean, label_smoothing=0.1))


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, label_smoothing=0.1).backward()
    opt.step()
    return model
