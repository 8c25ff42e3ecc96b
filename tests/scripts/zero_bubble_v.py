"""A pipeline of four stages on two devices, zero bubble V: the second stage of device r is the one opposite, 3 - r."""

import common
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, ScheduleZBVZeroBubble

WORLD = 2
STRATEGY = "pp"
reference = common.reference
MICROBATCHES = 8


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = [rank, 2 * world - 1 - rank]
    nets = [common.stage(i, 2 * world) for i in mine]
    optimizer = common.sgd(torch.nn.ModuleList(nets))
    stages = [PipelineStage(net, i, 2 * world, torch.device("cpu")) for i, net in zip(mine, nets, strict=True)]
    schedule = ScheduleZBVZeroBubble(stages, MICROBATCHES, loss_fn=common.loss)
    x, y = common.batch()
    schedule.step(*([x] if 0 in mine else []), target=y if 2 * world - 1 in mine else None)
    optimizer.step()
    return {name: p for net in nets for name, p in common.parameters(net).items()}


if __name__ == "__main__":
    train()
