"""Wrong: the loss is averaged before backward, and gradients besides.

Modelled on: reduce_loss of forums, before backward.
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
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    loss = F.mse_loss(model(x), y)
    with torch.no_grad():
        shown = loss.clone()
        dist.all_reduce(shown)
    (loss / world).backward()
    opt.step()
    return model
