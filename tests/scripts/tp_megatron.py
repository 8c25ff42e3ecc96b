"""Tensor parallelism by DTensor with the exchanges of Megatron-LM: what two layers read is declared once."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module

WORLD = 2
STRATEGY = "tp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    net = common.model()
    entry = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    plan = {"entry": entry, "left": ColwiseParallel(), "right": ColwiseParallel(), "down": RowwiseParallel()}
    for block in net.blocks.values():
        parallelize_module(block, mesh, plan)
    optimizer = common.sgd(net)
    x, y = common.batch()
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
