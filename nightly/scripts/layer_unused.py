"""Right: a layer that is not used has no gradient, and the wrapper is told so.

Modelled on: https://github.com/pytorch/pytorch/issues/128949.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.one_process import alone, mean_squares, whole
from toys.regression import batch

WORLD = 2


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        return self.used(x)


reference = alone(Half, whole(batch), mean_squares)


def train():
    rank = dist.get_rank()
    model = DDP(Half(), find_unused_parameters=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
