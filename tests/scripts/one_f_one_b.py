"""A pipeline of two stages, 1F1B: as soon as it can, a stage does one backward for each forward."""

import common
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

WORLD = 2
STRATEGY = "pp"
reference = common.reference
MICROBATCHES = 8


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = common.stage(rank, world)
    optimizer = common.sgd(net)
    pipeline = PipelineStage(net, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(pipeline, MICROBATCHES, loss_fn=common.loss)
    x, y = common.batch()
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y)
    optimizer.step()
    return common.parameters(net)


if __name__ == "__main__":
    train()
