"""Right: squares of gradients are summed over the stages before the root.

Modelled on: torchtitan's clipping of gradients over pipeline stages.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from toys.pipelines import MICRO_BATCHES, alone, batch, stage

WORLD = 2
reference = alone(clip=0.1)


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = stage(rank, world)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    pipe = ScheduleGPipe(PipelineStage(model, rank, world, torch.device("cpu")), n_microbatches=MICRO_BATCHES, loss_fn=F.mse_loss)
    x, y = batch()
    opt.zero_grad()
    if rank == 0:
        pipe.step(x)
    elif rank == world - 1:
        pipe.step(target=y)
    else:
        pipe.step()
    squares = sum(p.grad.pow(2).sum() for p in model.parameters())
    dist.all_reduce(squares)
    scale = (0.1 / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad.mul_(scale)
    opt.step()
    return model
