"""Wrong: statistics are those of each rank's own samples.

Modelled on: PyTorch's BatchNorm under DistributedDataParallel.
The loss: mean over samples, statistics of all ranks' samples.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.norms import alone
from toys.norms import build as build_with
from toys.regression import batch

WORLD = 2
build = partial(build_with, nn.BatchNorm1d)
reference = alone()


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
