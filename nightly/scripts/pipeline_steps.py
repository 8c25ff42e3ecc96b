"""Right: several steps of a schedule, with gradients cleared between them.

Modelled on: PyTorch's tutorial on pipeline parallelism.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from toys.pipelines import MICRO_BATCHES, alone, batch, stage

WORLD = 2
STEPS = 2
reference = alone(steps=2, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = stage(rank, world)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    pipe = Schedule1F1B(PipelineStage(model, rank, world, torch.device("cpu")), MICRO_BATCHES, F.mse_loss)
    for step in range(STEPS):
        x, y = batch(step=step)
        opt.zero_grad()
        losses = []
        if rank == 0:
            pipe.step(x)
        else:
            pipe.step(target=y, losses=losses)
        opt.step()
    return model
