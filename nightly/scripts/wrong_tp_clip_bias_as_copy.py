"""Wrong: a parameter that is split over ranks is taken for a copy, and counts on rank 0 alone.

Modelled on: https://github.com/NVIDIA/Megatron-LM/issues/7452, finding 8.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.blocks import alone, batch, build, shard, split

WORLD = 2
reference = alone(clip=0.05)


def train():
    rank = dist.get_rank()
    model = shard(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(0)
    F.mse_loss(model(x), y).backward()
    sq = torch.zeros(())
    for n, p in model.named_parameters():
        if rank == 0 or (split(n) and "bias" not in n):
            sq = sq + (p.grad**2).sum()
    dist.all_reduce(sq)
    coef = (0.05 / (sq.sqrt() + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad.mul_(coef)
    opt.step()
    return model
