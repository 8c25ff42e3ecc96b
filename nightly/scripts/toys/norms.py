"""Layers whose statistics may be those of all ranks."""

from functools import partial

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as DF
from torch import nn

from toys.one_process import alone as _alone
from toys.one_process import mean_squares, whole
from toys.regression import batch


class SyncNorm(nn.Module):
    """Normalises by the mean and the variance of the samples of all ranks."""

    def __init__(self, d):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        n, s = x.shape[0], torch.stack([x.sum(0), (x * x).sum(0)])
        if dist.is_initialized():
            s = DF.all_reduce(s)
            n = n * dist.get_world_size()
        m = s[0] / n
        v = s[1] / n - m * m
        return (x - m) / (v + 1e-5).sqrt() * self.weight + self.bias


class Normed(nn.Module):
    """Subtracts a running mean of its inputs, of all ranks where it is told to."""

    def __init__(self, synchronised):
        super().__init__()
        self.net = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.synchronised = synchronised

    def forward(self, x):
        if self.training:
            m = x.mean(0)
            if self.synchronised and dist.is_initialized():
                dist.all_reduce(m)
                m = m / dist.get_world_size()
            self.mean.mul_(0.9).add_(0.1 * m)
        return self.net(x - self.mean)


def build(norm):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), norm(10), nn.Tanh(), nn.Linear(10, 3))


def build_normed(synchronised=True):
    torch.manual_seed(0)
    return Normed(synchronised)


alone = partial(_alone, partial(build, nn.BatchNorm1d), whole(batch), mean_squares)
alone_sync = partial(_alone, partial(build, SyncNorm), whole(batch), mean_squares)
alone_normed = partial(_alone, build_normed, whole(batch), mean_squares)
