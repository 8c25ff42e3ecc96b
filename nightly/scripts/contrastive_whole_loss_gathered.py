"""Right: each rank has the loss of all, a gather with a derivative adds up, and gradients are averaged.

Modelled on: https://github.com/mlfoundations/open_clip/issues/616.
The loss: uniformity over the global batch.
"""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as DF
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def uniformity(model, x, y):
    z = F.normalize(model(x), dim=1)
    return torch.logsumexp(z @ z.T * 5 - 100 * torch.eye(len(x)), 1).mean()


reference = alone_with(uniformity)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, _ = batch(rank)
    z = torch.cat(DF.all_gather(F.normalize(model(x), dim=1)))
    torch.logsumexp(z @ z.T * 5 - 100 * torch.eye(len(z)), 1).mean().backward()
    opt.step()
    return model
