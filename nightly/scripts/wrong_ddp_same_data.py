"""Wrong: all ranks train on the same samples: the sampler is missing.

Modelled on: PyTorch's tutorial on DistributedDataParallel.
The loss: mean over samples.
"""

import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(0)
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
