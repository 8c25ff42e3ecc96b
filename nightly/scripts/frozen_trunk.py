"""Right: the first layer is frozen.

Modelled on: PyTorch's tutorial on transfer learning.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.one_process import alone, mean_squares, whole
from toys.regression import batch, build

WORLD = 2


def frozen():
    model = build()
    model[0].requires_grad_(False)
    return model


reference = alone(frozen, whole(batch), mean_squares)


def train():
    rank = dist.get_rank()
    model = build()
    model[0].requires_grad_(False)
    model = DDP(model)
    opt = torch.optim.SGD(model.module[2].parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
