"""Wrong: a stage takes the share of its rank in the world, and the next stage that of another.

Modelled on: PyTorch's tutorial on pipeline parallelism.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from toys.pipelines import MICRO_BATCHES, alone_over_shares, shares, stage

WORLD = 4
reference = alone_over_shares()


def train():
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "pp"))
    rank = mesh.get_local_rank("pp")
    model = stage(rank, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    part = PipelineStage(model, rank, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    pipe = ScheduleGPipe(part, n_microbatches=MICRO_BATCHES, loss_fn=F.mse_loss)
    x, y = shares(dist.get_rank(), dist.get_world_size())
    opt.zero_grad()
    if rank == 0:
        pipe.step(x)
    else:
        pipe.step(target=y)
    for p in model.parameters():
        dist.all_reduce(p.grad, group=mesh.get_group("dp"))
        p.grad /= mesh.size(0)
    opt.step()
    return model
