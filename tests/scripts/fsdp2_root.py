"""fully_shard of each block and of the root, all of which let go of their parameters after forward."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORLD = 2
STRATEGY = "fsdp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    net = common.model()
    for block in net.blocks.values():
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(net, mesh=mesh, reshard_after_forward=True)
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    common.loss(net(x), y).backward()
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
