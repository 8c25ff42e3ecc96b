"""Wrong: advantages are normalised over the own rank's samples.

Modelled on: CleanRL's PPO.
The loss: PPO, advantages normalised over the whole batch.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.regression import alone_with, batch, build

WORLD = 2


def ppo(model, x, y):
    advantages = (y[:, 0] - y[:, 0].mean()) / (y[:, 0].std() + 1e-8)
    return (-advantages * F.log_softmax(model(x), -1)[:, 0]).mean()


reference = alone_with(ppo)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    adv = y[:, 0]
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    lp = F.log_softmax(model(x), -1)[:, 0]
    ratio = (lp - lp.detach()).exp()
    torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean().backward()
    opt.step()
    return model
