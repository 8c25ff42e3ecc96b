"""Right: gradients are reduced with the last micro-batch.

Modelled on: FSDP2's set_requires_gradient_sync.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    model = build()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    x, y = batch(rank)
    for i, (xs, ys) in enumerate(zip(x.chunk(4), y.chunk(4))):
        model.set_requires_gradient_sync(i == 3)
        (F.mse_loss(model(xs), ys) / 4).backward()
    opt.step()
    return model
