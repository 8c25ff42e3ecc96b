"""Right: adapters are trained, the rest is frozen.

Modelled on: LoRA by hand, under DistributedDataParallel.
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


class Lora(nn.Module):
    def __init__(self, d, o):
        super().__init__()
        self.base = nn.Linear(d, o)
        self.base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(2, d) / 4)
        self.b = nn.Parameter(torch.randn(o, 2) / 4)

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


def build():
    torch.manual_seed(0)
    return nn.Sequential(Lora(6, 10), nn.Tanh(), Lora(10, 3))


reference = alone(build, whole(batch), mean_squares)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
