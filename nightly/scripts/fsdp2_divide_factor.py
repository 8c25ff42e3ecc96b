"""Right: the sum over samples is divided by their number on all ranks, and FSDP2 is told not to divide.

Modelled on: torchtitan's train step.
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

    model.set_gradient_divide_factor(1.0)
    model[0].set_gradient_divide_factor(1.0)
    x, y = batch(rank)
    n = torch.tensor(float(len(x)))
    dist.all_reduce(n)
    (F.mse_loss(model(x), y, reduction="sum") / 3 / n).backward()
    opt.step()
    return model
