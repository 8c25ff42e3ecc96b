"""Wrong: each rank takes the mean over its own tokens, and ranks have different numbers of them.

Modelled on: transformers' causal language models under DistributedDataParallel.
The loss: mean over valid tokens of all ranks.
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
    F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100).backward()
    opt.step()
    return model
