"""Right: an average of parameters is kept beside them.

Modelled on: timm's ModelEma.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank = dist.get_rank()
    model = DDP(build())
    ema = [p.detach().clone() for p in model.parameters()]
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    opt.step()
    with torch.no_grad():
        for e, p in zip(ema, model.parameters()):
            e.mul_(0.99).add_(p, alpha=0.01)
    return model
