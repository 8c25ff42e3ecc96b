"""Wrong: gradients are added up over half of the ranks, and divided by all.

Modelled on: Megatron-LM's data and tensor parallelism, by hand.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from toys.blocks import alone_in_pairs, batch, build, shard

WORLD = 4
reference = alone_in_pairs()


def train():
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = shard(build(), mesh.get_group("tp"))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(mesh.get_local_rank("dp"))
    F.mse_loss(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=mesh.get_group("dp"))
        p.grad /= world
    opt.step()
    return model
