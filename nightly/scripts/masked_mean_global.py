"""Right: the sum is divided by all ranks' masks.

Modelled on: verl's token-mean.
The loss: mean over valid tokens of all ranks.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.language import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    mask = (y != -100).to(torch.get_default_dtype())
    total = mask.sum()
    dist.all_reduce(total)
    lp = F.log_softmax(model(x), -1).gather(-1, y.clamp(min=0)[..., None])[..., 0]
    loss = -(lp * mask).sum() / total * world
    loss.backward()
    opt.step()
    return model
