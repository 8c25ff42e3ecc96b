"""Right: each rank has two stages, and 1F1B is interleaved.

Modelled on: PyTorch's tutorial on pipeline parallelism.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from toys.pipelines import MICRO_BATCHES, Part, alone, batch, stage

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [stage(rank + world * n, 2 * world) for n in range(2)]
    opt = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.1)
    stages = [PipelineStage(part, rank + world * n, 2 * world, torch.device("cpu")) for n, part in enumerate(parts)]
    pipe = ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=F.mse_loss)
    x, y = batch()
    if rank == 0:
        pipe.step(x)
    else:
        pipe.step(target=y)
    opt.step()
    return Part({name: layer for part in parts for name, layer in part.layers.items()})
