"""Wrong: means over tokens are weighted by samples.

Modelled on: https://github.com/verl-project/verl/issues/5625.
The loss: mean over valid tokens of all ranks and micro-batches.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.language import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank = dist.get_rank()
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    for s in (slice(0, 3), slice(3, 4)):
        xs, ys = x[s], y[s]
        (F.cross_entropy(model(xs).flatten(0, 1), ys.flatten(), ignore_index=-100) * len(xs) / len(x)).backward()
    opt.step()
    return model
