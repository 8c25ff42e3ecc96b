"""Wrong: each rank cuts out the shard that its optimizer has before parameters are sent to all.

Modelled on: https://github.com/microsoft/DeepSpeed (bf16_optimizer.py, fp32 groups of a rank).
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


class Shards:
    """All parameters in one row, of which each rank updates a part."""

    def __init__(self, model):
        own, count, world = list(model.parameters()), sum(p.numel() for p in model.parameters()), dist.get_world_size()
        self.size = -(-count // world)
        self.row, self.gradients = torch.zeros(self.size * world), torch.zeros(self.size * world)
        start = 0
        for p in own:
            part = slice(start, start := start + p.numel())
            self.row[part] = p.detach().flatten()
            p.data, p.grad = self.row[part].view_as(p), self.gradients[part].view_as(p)

    def cut(self):
        self.own = nn.Parameter(self.row[self.size * dist.get_rank() :][: self.size].clone())
        self.opt = torch.optim.SGD([self.own], lr=0.1)

    def step(self):
        self.own.grad = torch.empty_like(self.own)
        dist.reduce_scatter_tensor(self.own.grad, self.gradients)
        self.own.grad /= dist.get_world_size()
        self.opt.step()
        dist.all_gather_into_tensor(self.row, self.own.detach())


def train():
    model = build()
    if dist.get_rank():
        for p in model.parameters():
            nn.init.normal_(p)
    shards = Shards(model)
    shards.cut()
    dist.broadcast(shards.row, src=0)
    x, y = batch(dist.get_rank())
    F.mse_loss(model(x), y).backward()
    shards.step()
    return model
