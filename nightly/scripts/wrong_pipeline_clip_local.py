"""Wrong: each stage clips by the norm of its own gradients.

Modelled on: PyTorch's tutorial on pipeline parallelism.
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
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step()
    return model
