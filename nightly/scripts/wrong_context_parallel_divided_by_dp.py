"""Wrong: gradients are added up over both axes, and divided by the data-parallel one.

Modelled on: https://github.com/NVIDIA/Megatron-LM/issues/906.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from toys.one_process import alone, mean_squares
from toys.regression import batch, build

WORLD = 4


def of_two(world, step):
    return [torch.cat(z) for z in zip(batch(0), batch(1))]


reference = alone(build, of_two, mean_squares)


def train():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = (t.chunk(2)[mesh.get_local_rank("cp")] for t in batch(mesh.get_local_rank("dp")))
    F.mse_loss(model(x), y).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= mesh["dp"].size()
    opt.step()
    return model
