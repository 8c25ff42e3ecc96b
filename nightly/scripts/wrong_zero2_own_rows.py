"""Wrong: each rank puts its gradient in a row of its own, and scatters the sum of all rows.

Modelled on: https://github.com/deepspeedai/DeepSpeed/issues/823.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    params = list(model.parameters())
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    size = sum(p.numel() for p in params)
    w, g = (F.pad(torch.cat([t.flatten() for t in ts]), (0, -size % world)) for ts in ([p.data for p in params], [p.grad for p in params]))
    rows = torch.zeros(world, len(w))
    rows[rank] = g
    row = torch.empty(1, len(w))
    dist.reduce_scatter_tensor(row, rows)
    own = w.chunk(world)[rank] - 0.1 * row[0].chunk(world)[rank] / world
    dist.all_gather_into_tensor(w, own)
    for p, new in zip(params, w[:size].split([p.numel() for p in params])):
        p.data.copy_(new.view_as(p))
    return model
