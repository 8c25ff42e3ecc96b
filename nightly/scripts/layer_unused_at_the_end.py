"""Right: the layer that the last micro-batch does not use is reduced, too.

Modelled on: https://github.com/pytorch/pytorch/issues/69031, https://github.com/pytorch/pytorch/pull/124193.
The loss: mean over samples.
"""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.one_process import alone, whole
from toys.regression import batch

WORLD = 2


class Halves(nn.Module):
    """The first half of a batch goes through one layer, the second through another."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x, half):
        return (self.second if half else self.first)(x)


def build():
    torch.manual_seed(0)
    return Halves()


def halves(model, x, y):
    parts = list(zip(x.split(2), y.split(2)))
    return sum(F.mse_loss(model(xs, i % 2), ys) for i, (xs, ys) in enumerate(parts)) / len(parts)


reference = alone(build, whole(batch), halves)


def train():
    rank = dist.get_rank()
    model = DDP(build(), find_unused_parameters=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    for i, (xs, ys) in enumerate(zip(x.chunk(2), y.chunk(2))):
        with model.no_sync() if i == 0 else contextlib.nullcontext():
            (F.mse_loss(model(xs, i), ys) / 2).backward()
    opt.step()
    return model
