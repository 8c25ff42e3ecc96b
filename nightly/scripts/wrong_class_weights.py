"""Wrong: each rank divides by the weights of its own targets.

Modelled on: torch.nn.CrossEntropyLoss with weights of classes.
The loss: weighted mean over tokens of all ranks.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.language import alone_equal_with, build
from toys.language import equal_batch as batch
from toys.one_process import token_mean

WORLD = 2
WEIGHTS = torch.linspace(0.5, 2, 11)


def weighted(model, x, y):
    return token_mean(model, x, y, weight=WEIGHTS)


reference = alone_equal_with(weighted)


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.cross_entropy(model(x).flatten(0, 1), y.flatten(), weight=WEIGHTS, ignore_index=-100).backward()
    opt.step()
    return model
