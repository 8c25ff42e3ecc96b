"""Wrong: the optimizer has the parameters of before, which FSDP2 has replaced.

Modelled on: https://github.com/deepspeedai/DeepSpeed/pull/8354.
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
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
