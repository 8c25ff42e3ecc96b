"""Right: ranks that share a model drop the same.

Modelled on: https://github.com/NVIDIA/Megatron-LM/pull/206.
The loss: mean over samples.
"""

import torch
import torch.nn.functional as F
from toys.blocks import batch, build, shard
from toys.one_process import alone, of_rank_0

WORLD = 2


def dropped(model, x, y):
    h = model(x)
    torch.manual_seed(7)
    return F.mse_loss(F.dropout(h, 0.5), y)


reference = alone(build, of_rank_0(batch), dropped)


def train():
    model = shard(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(0)
    h = model(x)
    torch.manual_seed(7)
    F.mse_loss(F.dropout(h, 0.5), y).backward()
    opt.step()
    return model
