"""Wrong: the mean of norms over ranks that have different experts.

Modelled on: https://github.com/deepspeedai/DeepSpeed/issues/8475.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.experts import alone, build, split
from toys.regression import batch

WORLD = 2
reference = alone(clip=0.05)


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = split(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(rank)
    F.mse_loss(model(x), y).backward()
    for n, p in model.named_parameters():
        if "experts" not in n:
            dist.all_reduce(p.grad)
        p.grad /= world
    dense = sum((p.grad**2).sum() for n, p in model.named_parameters() if "experts" not in n)
    own = sum((p.grad**2).sum() for n, p in model.named_parameters() if "experts" in n)
    norm = (dense + own).sqrt()
    dist.all_reduce(norm)
    norm /= world
    coef = (0.05 / (norm + 1e-6)).clamp(max=1.0)
    for p in model.parameters():
        p.grad.mul_(coef)
    opt.step()
    return model
