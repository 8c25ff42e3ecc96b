"""Wrong: each rank clips by the norm of its own shards.

Modelled on: Megatron-LM's tensor parallelism, by hand.
The loss: mean over samples.
"""

import torch
import torch.nn.functional as F
from toys.blocks import alone, batch, build, shard

WORLD = 2
reference = alone(clip=0.05)


def train():
    model = shard(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(0)
    F.mse_loss(model(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    opt.step()
    return model
