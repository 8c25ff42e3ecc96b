"""fully_shard along one axis of the mesh, tensor parallelism by DTensor along the other."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module

WORLD = 4
STRATEGY = "fsdp(root=keep) * tp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    net = common.model()
    entry = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    plan = {"entry": entry, "left": ColwiseParallel(), "right": ColwiseParallel(), "down": RowwiseParallel()}
    for block in net.blocks.values():
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(net, mesh=mesh["dp"])
    optimizer = common.sgd(net)
    x, y = common.share(mesh.get_local_rank("dp"), mesh["dp"].size())
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
