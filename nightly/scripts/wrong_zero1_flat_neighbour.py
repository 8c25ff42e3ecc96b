"""Wrong: a rank updates another rank's part.

Modelled on: ZeRO-1 by hand, with one flat buffer.
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
    flat = torch.cat([p.grad.flatten() for p in params])
    pad = -flat.numel() % world
    flat = F.pad(flat, (0, pad))
    shard = torch.empty(flat.numel() // world, dtype=flat.dtype)
    dist.reduce_scatter_tensor(shard, flat)
    shard /= world
    w = F.pad(torch.cat([p.data.flatten() for p in params]), (0, pad))
    own = w.chunk(world)[(rank + 1) % world].clone()
    own -= 0.1 * shard
    parts = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(parts, own)
    w = torch.cat(parts)
    off = 0
    for p in params:
        p.data.copy_(w[off : off + p.numel()].view_as(p))
        off += p.numel()
    return model
