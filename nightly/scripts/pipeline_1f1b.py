"""Right: 1F1B on four stages, with Adam.

Modelled on: PyTorch's tutorial on pipeline parallelism.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from toys.pipelines import MICRO_BATCHES, alone, batch, stage

WORLD = 4
reference = alone(optimizer=lambda p: torch.optim.Adam(p, lr=0.01))


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = stage(rank, world)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    pipe = Schedule1F1B(PipelineStage(model, rank, world, torch.device("cpu")), n_microbatches=MICRO_BATCHES, loss_fn=F.mse_loss)
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
