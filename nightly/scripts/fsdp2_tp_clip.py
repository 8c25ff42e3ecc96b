"""Right: clip_grad_norm_ takes the norm of all parameters, which lie in parts over two axes, or in copies over one of them.

Modelled on: torchtitan's train step with data and tensor parallelism.
The loss: mean over samples.
"""

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from toys.one_process import alone, mean_squares
from toys.regression import batch, build

WORLD = 4
reference = alone(build, lambda world, step: [torch.cat(z) for z in zip(batch(0), batch(1))], mean_squares, clip=0.05)


def train():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(build(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model[0], mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(mesh.get_local_rank("dp"))
    F.mse_loss(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    opt.step()
    return model
