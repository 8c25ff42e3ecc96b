"""Wrong: divided by all ranks' tokens, and FSDP2 averages besides.

Modelled on: torchtitan's loss.
The loss: mean over valid tokens of all ranks.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from toys.language import alone_equal, build
from toys.language import equal_batch as batch

WORLD = 2
reference = alone_equal()


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
    (F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum") / n).backward()
    opt.step()
    return model
