"""Right: the tied weight is averaged twice, which changes nothing.

Modelled on: nanoGPT's tied embedding and head, by hand.
The loss: mean over valid tokens.
"""

from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.language import alone_tied
from toys.language import build as build_with
from toys.language import equal_batch as batch

WORLD = 2
build = partial(build_with, tied=True)
reference = alone_tied()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100).backward()
    for m in [model.emb, model.mid, model.norm, model.head]:
        for p in m.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
    opt.step()
    return model
