"""Right: each micro-batch is scaled by the ranks over the tokens of the step.

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
    n = (y != -100).sum()
    dist.all_reduce(n)
    for xs, ys in zip(x.chunk(2), y.chunk(2)):
        (F.cross_entropy(model(xs).flatten(0, 1), ys.flatten(), ignore_index=-100, reduction="sum") * world / n).backward()
    opt.step()
    return model
