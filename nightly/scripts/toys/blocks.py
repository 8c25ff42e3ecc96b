"""Blocks that are split over ranks by hand, as Megatron-LM splits them: what is up by columns, what is down by rows."""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from toys.one_process import alone as _alone
from toys.one_process import mean_squares, of_rank_0


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, h)
        self.down = nn.Linear(h, d, bias=False)
        self.copy = self.reduce = lambda x: x

    def forward(self, x):
        return x + self.reduce(self.down(torch.tanh(self.up(self.copy(self.norm(x))))))


class Stack(nn.Sequential):
    def __init__(self):
        super().__init__(Block(6, 8), Block(6, 8), nn.Linear(6, 3))

    def whole(self):
        """Parameters by name, put together of the parts of all ranks that split them."""
        whole = {}
        for name, p in self.named_parameters():
            t = p.detach().clone()
            if split(name):
                parts = [torch.empty_like(t) for _ in range(dist.get_world_size(self.group))]
                dist.all_gather(parts, t.contiguous(), group=self.group)
                t = torch.cat(parts, dim=1 if "down.weight" in name else 0)
            whole[name] = t
        return whole


def build():
    torch.manual_seed(0)
    return Stack()


def shard(model, group=None, copy=True):
    """Keep this rank's part of each block. ``copy``: whether backward adds up what enters a block."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    for b in (model[0], model[1]):
        b.up.weight = nn.Parameter(b.up.weight.data.chunk(world, 0)[rank].clone())
        b.up.bias = nn.Parameter(b.up.bias.data.chunk(world, 0)[rank].clone())
        b.down.weight = nn.Parameter(b.down.weight.data.chunk(world, 1)[rank].clone())
        if copy:
            b.copy = lambda x: Copy.apply(x, group)
        b.reduce = lambda x: Reduce.apply(x, group)
    model.group = group
    return model


def split(name):
    return "up" in name or "down" in name


def batch(rank, step=0):
    g = torch.Generator().manual_seed(100 + 10 * step + rank)
    return torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)


alone = partial(_alone, build, of_rank_0(batch), mean_squares)
#: Ranks 0 and 1 split a model, 2 and 3 another; they get one batch each.
alone_in_pairs = partial(_alone, build, lambda world, step: [torch.cat(z) for z in zip(batch(0, step), batch(1, step))], mean_squares)
