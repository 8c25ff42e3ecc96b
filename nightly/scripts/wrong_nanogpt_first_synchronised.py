"""Wrong: the first micro-batch is synchronised, the others stay where they are.

Modelled on: nanoGPT's train.py.
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
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    accum = 4
    for i, (xs, ys) in enumerate(zip(x.chunk(accum), y.chunk(accum))):
        model.require_backward_grad_sync = i == 0
        loss = F.mse_loss(model(xs), ys) / accum
        loss.backward()
    opt.step()
    return model
