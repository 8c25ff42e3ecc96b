"""One step of PyTorch's FullyShardedDataParallel, or DistributedDataParallel, with what scripts put around modules."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WORLD = 2
RATE = 0.5
SHARDED, COMPILED, CHECKPOINT = True, False, None


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)

    def inner(self, x):
        return x + self.down(torch.tanh(self.up(x)))

    def forward(self, x):
        return self.inner(x) if CHECKPOINT is None else checkpoint(self.inner, x, use_reentrant=CHECKPOINT == "reentrant")


def samples():
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(8, 6, generator=draw), torch.randn(8, 6, generator=draw)
    rank, world = dist.get_rank(), dist.get_world_size()
    return x.chunk(world)[rank], y.chunk(world)[rank]


def train():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    blocks = [Block() for _ in range(2)]
    if SHARDED:
        blocks = [FullyShardedDataParallel(block, use_orig_params=True, device_id=torch.device("cpu")) for block in blocks]
    if COMPILED:
        blocks = [torch.compile(block) for block in blocks]
    net = nn.Sequential(nn.Linear(6, 6), *blocks)
    net = FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu")) if SHARDED else DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    x, y = samples()
    nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
    return net


def whole(model):
    if not SHARDED:
        return dict(model.named_parameters())
    with FullyShardedDataParallel.summon_full_params(model):
        return {name: p.detach().clone() for name, p in model.named_parameters()}
