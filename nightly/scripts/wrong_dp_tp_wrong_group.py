"""Wrong: gradients are averaged over the ranks that share a model.

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
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = shard(build(), mesh.get_group("tp"))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(mesh.get_local_rank("dp"))
    F.mse_loss(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad, group=mesh.get_group("tp"))
        p.grad /= 2
    opt.step()
    return model
