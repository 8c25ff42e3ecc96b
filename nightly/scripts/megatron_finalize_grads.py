"""Right: gradients of sums are added up, and divided by all ranks' tokens.

Modelled on: Megatron-LM's finalize_model_grads.
The loss: mean over valid tokens of all ranks.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.language import alone_equal, build
from toys.language import equal_batch as batch

WORLD = 2
reference = alone_equal()


def train():
    rank = dist.get_rank()
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="sum").backward()
    n = (y != -100).sum()
    dist.all_reduce(n)
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad.div_(n)
    opt.step()
    return model
