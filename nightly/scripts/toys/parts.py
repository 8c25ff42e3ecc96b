"""Layers of which each rank makes its own part alone, as Megatron-LM's modules do; a bias by columns begins with zeros."""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from toys.blocks import Copy, Reduce
from toys.one_process import alone as _alone
from toys.one_process import mean_squares, of_rank_0


def _made(size, seed):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) / 2


class Column(nn.Module):
    def __init__(self, inside, outside, seed, rank, world, copy):
        super().__init__()
        self.copy = copy and world > 1
        self.weight = nn.Parameter(_made((outside, inside), seed).chunk(world, 0)[rank].clone())
        self.bias = nn.Parameter(torch.zeros(outside // world))

    def forward(self, x):
        return F.linear(Copy.apply(x, None) if self.copy else x, self.weight, self.bias)


class Row(nn.Module):
    def __init__(self, inside, outside, seed, rank, world, each):
        super().__init__()
        self.each, self.world = each, world
        self.weight = nn.Parameter(_made((outside, inside), seed).chunk(world, 1)[rank].clone())
        self.bias = nn.Parameter(_made((outside,), seed + 1))

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias if self.each else None)
        y = Reduce.apply(y, None) if self.world > 1 else y
        return y if self.each else y + self.bias


class Embedding(nn.Module):
    def __init__(self, words, width, seed, rank, world):
        super().__init__()
        self.world, self.words, self.first = world, words // world, rank * (words // world)
        self.weight = nn.Parameter(_made((words, width), seed)[self.first : self.first + self.words].clone())

    def forward(self, tokens):
        other = (tokens < self.first) | (tokens >= self.first + self.words)
        x = F.embedding((tokens - self.first).masked_fill(other, 0), self.weight).masked_fill(other[..., None], 0.0)
        return Reduce.apply(x, None) if self.world > 1 else x


class Block(nn.Module):
    def __init__(self, seed, rank, world, copy, each):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up = Column(6, 8, seed, rank, world, copy)
        self.down = Row(8, 6, seed + 1, rank, world, each)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(nn.Module):
    """``copy``: whether backward adds up what enters a block; ``each``: each rank adds the bias of a layer that is split by rows."""

    def __init__(self, rank=0, world=1, copy=True, each=False):
        super().__init__()
        self.embedding = Embedding(12, 6, 5, rank, world)
        self.blocks = nn.ModuleList(Block(seed, rank, world, copy, each) for seed in (10, 20))
        torch.manual_seed(0)
        self.head = nn.Linear(6, 3)

    def forward(self, tokens):
        x = self.embedding(tokens).mean(1)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def whole(self):
        """Parameters by name, put together of the parts of all ranks."""
        whole = {}
        for name, p in self.named_parameters():
            t = p.detach().clone()
            if "up" in name or "down.weight" in name or "embedding" in name:
                parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, t)
                t = torch.cat(parts, dim=1 if "down" in name else 0)
            whole[name] = t
        return whole


def batch(rank, step=0):
    g = torch.Generator().manual_seed(100 + 10 * step + rank)
    return torch.randint(0, 12, (4, 5), generator=g), torch.randn(4, 3, generator=g)


alone = partial(_alone, Net, of_rank_0(batch), mean_squares)
