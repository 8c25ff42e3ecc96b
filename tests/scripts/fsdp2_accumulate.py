"""fully_shard with gradient accumulation: gradients stay whole on each rank, and are reduced after the last micro-batch."""

import common
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORLD = 2
STRATEGY = "fsdp * accumulate"
reference = common.reference
MICROBATCHES = 4


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    net = common.model()
    for block in net.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh, reshard_after_forward=True)
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    for i, (xs, ys) in enumerate(zip(x.chunk(MICROBATCHES), y.chunk(MICROBATCHES), strict=True)):
        net.set_requires_gradient_sync(i == MICROBATCHES - 1)
        (common.loss(net(xs), ys) / MICROBATCHES).backward()
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
