"""Right: a layer has one output, of which one rank has all and the other none, and clip_grad_norm_ takes the norm of all shards.

Modelled on: PyTorch's tutorial on FSDP2.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toys.one_process import alone
from toys.regression import batch

WORLD = 2


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 1))


def loss(model, x, y):
    return F.mse_loss(model(x), y[:, :1])


reference = alone(build, lambda world, step: [torch.cat(z) for z in zip(*map(batch, range(world)))], loss, clip=0.05)


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    model = build()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    x, y = batch(rank)
    loss(model, x, y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    opt.step()
    return model
