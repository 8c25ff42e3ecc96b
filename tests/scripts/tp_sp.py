"""Tensor and sequence parallelism by DTensor: between blocks, each device has its part of the tokens."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

WORLD = 2
STRATEGY = "tp * sp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    net = common.model()
    plan = {
        "norm": SequenceParallel(),
        "entry": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "left": ColwiseParallel(),
        "right": ColwiseParallel(),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    for block in net.blocks.values():
        parallelize_module(block, mesh, plan)
    ends = {
        "inlet": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "outlet": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(net, mesh, ends)
    optimizer = common.sgd(net)
    x, y = common.batch()
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
