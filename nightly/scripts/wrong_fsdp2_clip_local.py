"""Wrong: each rank clips by the norm of its own shards.

Modelled on: FSDP2 with a clipping of one's own.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toys.regression import alone, batch, build

WORLD = 2
reference = alone(clip=0.05)


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    model = build()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    sq = sum((p.grad.to_local() ** 2).sum() for p in model.parameters())
    coef = (0.05 / (sq.sqrt() + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad.to_local().mul_(coef)
    opt.step()
    return model
