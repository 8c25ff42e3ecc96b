"""Right: each rank has the loss of all and the gradient of its own part, multiplied by the ranks.

Modelled on: https://github.com/JohnGiorgi/DeCLUTR/pull/212.
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
    z = torch.cat(zs)
    loss = torch.logsumexp(z @ z.T * 5 - 100 * torch.eye(len(z)), 1).mean()
    (loss * world).backward()
    opt.step()
    return model
