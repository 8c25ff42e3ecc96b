"""Wrong: squares of norms are added up over replicas, too.

Modelled on: https://github.com/ByteDance-Seed/VeOmni/issues/184.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toys.regression import alone, batch, build

WORLD = 4
reference = alone(clip=0.05)


def train():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = build()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(dist.get_rank())
    F.mse_loss(model(x), y).backward()
    sq = sum((p.grad.to_local() ** 2).sum() for p in model.parameters())
    dist.all_reduce(sq)
    coef = (0.05 / (sq.sqrt() + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad.to_local().mul_(coef)
    opt.step()
    return model
