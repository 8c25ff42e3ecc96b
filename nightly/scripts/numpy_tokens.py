"""Right: each rank draws windows of a text that NumPy has.

Modelled on: https://github.com/karpathy/nanoGPT (get_batch).
The loss: mean over tokens.
"""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.one_process import parameters

WORLD = 2
TEXT = np.random.default_rng(0).integers(0, 10, 200).astype(np.uint16)


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))


def batch(rank, step):
    g = torch.Generator().manual_seed(1337 + 10 * step + rank)
    starts = torch.randint(len(TEXT) - 9, (4,), generator=g)
    x = torch.stack([torch.from_numpy(TEXT[i : i + 8].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(TEXT[i + 1 : i + 9].astype(np.int64)) for i in starts])
    return x, y


def trained(model, draw):
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(2):
        x, y = draw(step)
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
    return model


def reference(world):
    return parameters(trained(build(), lambda step: map(torch.cat, zip(*(batch(r, step) for r in range(world))))))


def train():
    return trained(DDP(build()), lambda step: batch(dist.get_rank(), step))
