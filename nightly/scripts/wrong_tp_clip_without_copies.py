"""Wrong: what is copied is in no norm.

Modelled on: Megatron-LM's clip_grad_norm_, by hand.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.blocks import alone, batch, build, shard, split

WORLD = 2
reference = alone(clip=0.05)


def train():
    model = shard(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(0)
    F.mse_loss(model(x), y).backward()
    sq = torch.zeros(())
    for n, p in model.named_parameters():
        if split(n):
            sq = sq + (p.grad**2).sum()
    dist.all_reduce(sq)
    coef = (0.05 / (sq.sqrt() + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad.mul_(coef)
    opt.step()
    return model
