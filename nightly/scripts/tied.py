"""Right: the tied weight is one parameter.

Modelled on: nanoGPT's tied embedding and head.
The loss: mean over valid tokens.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.language import alone_tied
from toys.language import build as build_with
from toys.language import equal_batch as batch

WORLD = 2
build = partial(build_with, tied=True)
reference = alone_tied()


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100).backward()
    opt.step()
    return model
