"""fully_shard on a mesh of two axes: shards within one, copies along the other."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORLD = 4
STRATEGY = "hsdp(root=keep)"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("rep", "shard"))
    net = common.model()
    for block in net.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
