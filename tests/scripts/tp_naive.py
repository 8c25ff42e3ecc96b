"""Tensor parallelism by DTensor, each linear layer by itself: two that read the same all-reduce its gradient twice."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORLD = 2
STRATEGY = "tp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    net = common.model()
    plan = {"left": ColwiseParallel(), "right": ColwiseParallel(), "down": RowwiseParallel()}
    for block in net.blocks.values():
        parallelize_module(block, mesh, plan)
    optimizer = common.sgd(net)
    x, y = common.batch()
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
