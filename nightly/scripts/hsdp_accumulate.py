"""Right: shards add up micro-batches, and replicas reduce the sum once.

Modelled on: FSDP2's `set_requires_all_reduce` on a mesh of two axes.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toys.regression import alone, batch, build

WORLD = 4
reference = alone()


def train():
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
    model = build()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(dist.get_rank())
    for i in range(2):
        model.set_requires_all_reduce(i == 1)
        (F.mse_loss(model(x[2 * i : 2 * i + 2]), y[2 * i : 2 * i + 2]) / 2).backward()
    opt.step()
    return model
