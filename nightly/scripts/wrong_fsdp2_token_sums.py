"""Wrong: sums over tokens are not divided: FSDP2 divides by the ranks alone.

Modelled on: https://github.com/radixark/miles/pull/3231.
The loss: mean over valid tokens of all ranks and micro-batches.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toys.language import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    model = build()
    fully_shard(model.mid, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    for xs, ys in zip(x.chunk(2), y.chunk(2)):
        F.cross_entropy(model(xs).flatten(0, 1), ys.flatten(), ignore_index=-100, reduction="sum").backward()
    opt.step()
    return model
