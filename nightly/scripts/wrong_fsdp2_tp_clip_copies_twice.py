"""Wrong: squares are summed over all ranks, and those of a bias, of which the tensor axis has copies, count twice.

Modelled on: FSDP2 with tensor parallelism and a clipping of one's own.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
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
    grads = [p.grad.to_local() for p in model.parameters()]
    total = sum((g**2).sum() for g in grads)
    dist.all_reduce(total)
    for g in grads:
        g.mul_((0.05 / (total.sqrt() + 1e-6)).clamp(max=1.0))
    opt.step()
    return model
