"""A regression of three numbers on six, by two layers; each rank draws four samples of its own."""

from functools import partial

import torch
from torch import nn
from torch.utils.data import TensorDataset

from toys.one_process import alone as _alone
from toys.one_process import mean_squares, whole


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def batch(rank, step=0, size=4):
    g = torch.Generator().manual_seed(100 + 10 * step + rank)
    return torch.randn(size, 6, generator=g), torch.randn(size, 3, generator=g)


def dataset(size=16):
    """Samples for loaders."""
    g = torch.Generator().manual_seed(7)
    return TensorDataset(torch.randn(size, 6, generator=g), torch.randn(size, 3, generator=g))


alone = partial(_alone, build, whole(batch), mean_squares)
#: With another loss, of (model, x, y).
alone_with = partial(_alone, build, whole(batch))


def alone_over_dataset(size=16, **options):
    """Over ``dataset``, of which all is one step."""
    return _alone(build, lambda world, step: dataset(size).tensors, mean_squares, **options)
