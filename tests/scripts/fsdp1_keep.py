"""FullyShardedDataParallel (the first generation), SHARD_GRAD_OP: what forward gathers stays until backward has used it."""

import common
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

WORLD = 2
STRATEGY = "fsdp(reshard_after_forward=false)"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    wrap = ModuleWrapPolicy({common.Block})
    net = FullyShardedDataParallel(
        common.model(),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        auto_wrap_policy=wrap,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    common.loss(net(x), y).backward()
    optimizer.step()
    with FullyShardedDataParallel.summon_full_params(net, writeback=False):
        return {name.replace("_fsdp_wrapped_module.", ""): p for name, p in common.parameters(net).items()}


if __name__ == "__main__":
    train()
