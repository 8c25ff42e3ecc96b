"""Wrong: negatives get the gradient of the own rank alone.

Modelled on: SimCLR with dist.all_gather, the own part put back.
The loss: uniformity over the global batch.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def uniformity(model, x, y):
    z = F.normalize(model(x), dim=1)
    return torch.logsumexp(z @ z.T * 5 - 100 * torch.eye(len(x)), 1).mean()


reference = alone_with(uniformity)


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, _ = batch(rank)
    z = F.normalize(model(x), dim=1)
    zs = [torch.empty_like(z) for _ in range(world)]
    dist.all_gather(zs, z.detach())
    zs[rank] = z
    zs = torch.cat(zs)
    s = z @ zs.T * 5
    s = s - 100 * torch.eye(world * len(x))[rank * len(x) : (rank + 1) * len(x)]
    torch.logsumexp(s, 1).mean().backward()
    opt.step()
    return model
