"""Right: the norm is taken of averaged gradients, and summed over stages alone.

Modelled on: torchtitan's clipping of gradients over pipeline stages.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from toys.pipelines import MICRO_BATCHES, alone, batch, stage

WORLD = 4
reference = alone(2, clip=0.1)


def train():
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("pp", "dp"))
    rank = mesh.get_local_rank("pp")
    model = stage(rank, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    part = PipelineStage(model, rank, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    pipe = ScheduleGPipe(part, n_microbatches=MICRO_BATCHES, loss_fn=F.mse_loss)
    x, y = batch(mesh.get_local_rank("dp"))
    opt.zero_grad()
    if rank == 0:
        pipe.step(x)
    else:
        pipe.step(target=y)
    for p in model.parameters():
        dist.all_reduce(p.grad, group=mesh.get_group("dp"))
        p.grad /= mesh.size(1)
    squares = sum(p.grad.pow(2).sum() for p in model.parameters())
    dist.all_reduce(squares, group=mesh.get_group("pp"))
    scale = (0.1 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad.mul_(scale)
    opt.step()
    return model
