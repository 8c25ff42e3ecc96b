"""FullyShardedDataParallel (the first generation), each block and the rest a unit: parameters are gathered before each use."""

import common
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

WORLD = 2
STRATEGY = "fsdp"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    wrap = ModuleWrapPolicy({common.Block})
    net = FullyShardedDataParallel(common.model(), auto_wrap_policy=wrap, device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = common.sgd(net)
    x, y = common.share(dist.get_rank(), dist.get_world_size())
    common.loss(net(x), y).backward()
    optimizer.step()
    with FullyShardedDataParallel.summon_full_params(net, writeback=False):
        return {name.replace("_fsdp_wrapped_module.", ""): p for name, p in common.parameters(net).items()}


if __name__ == "__main__":
    train()
