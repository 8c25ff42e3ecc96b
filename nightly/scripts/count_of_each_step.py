"""Right: gradients of sums are divided by the tokens of the step.

Modelled on: https://github.com/meta-pytorch/torchtune/pull/1917.
The loss: mean over valid tokens of all ranks.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.language import alone, batch, build

WORLD = 2
STEPS = 2
reference = alone(steps=2)


def train():
    rank = dist.get_rank()
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        x, y = batch(rank, step)
        opt.zero_grad()
        n = (y != -100).sum()
        dist.all_reduce(n)
        F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum").backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= n
        opt.step()
    return model
