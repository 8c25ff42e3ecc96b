"""fully_shard that keeps a shard among two devices after forward, and gathers from these for backward."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORLD = 4
STRATEGY = "fsdp(4, reshard_after_forward=2)"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    net = common.model()
    for block in net.blocks.values():
        fully_shard(block, mesh=mesh, reshard_after_forward=2)
    fully_shard(net, mesh=mesh, reshard_after_forward=2)
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
