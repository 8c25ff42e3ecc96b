"""Wrong: divided by the number of all ranks' tokens, and averaged besides.

Modelled on: transformers' average_tokens_across_devices, before https://github.com/huggingface/transformers/pull/35651.
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
    n = (y != -100).sum()
    dist.all_reduce(n)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum") / n
    loss.backward()
    opt.step()
    return model
