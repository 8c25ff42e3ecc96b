"""fully_shard with clipping by the norm of all gradients, which DTensors take over all shards.

The limit is above the norm: clip_grad_norm_ divides by norm + 1e-6, so that only a factor of 1 is exact.
"""

import common
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORLD = 2
STRATEGY = None
LIMIT = 2.0**20


def reference() -> dict[str, Tensor]:
    """One process that clips by the same limit."""
    net, (x, y) = common.model(), common.batch()
    optimizer = common.sgd(net)
    common.loss(net(x), y).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), LIMIT, foreach=False)
    optimizer.step()
    return common.parameters(net)


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    net = common.model()
    for block in net.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    common.loss(net(x), y).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), LIMIT, foreach=False)
    optimizer.step()
    return common.full_parameters(net)


if __name__ == "__main__":
    train()
