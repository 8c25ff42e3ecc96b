"""Right: the loss is divided by the micro-batches, and the schedule leaves gradients alone.

Modelled on: torchtitan's rescaled losses for gradient accumulation.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from toys.pipelines import MICRO_BATCHES, alone, batch, stage

WORLD = 2


def rescaled(out, y):
    return F.mse_loss(out, y) / MICRO_BATCHES


reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = stage(rank, world)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    pipe = Schedule1F1B(
        PipelineStage(model, rank, world, torch.device("cpu")), n_microbatches=MICRO_BATCHES, loss_fn=rescaled, scale_grads=False
    )
    x, y = batch()
    opt.zero_grad()
    if rank == 0:
        pipe.step(x)
    elif rank == world - 1:
        pipe.step(target=y)
    else:
        pipe.step()
    opt.step()
    return model
