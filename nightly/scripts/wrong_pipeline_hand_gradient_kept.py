"""Wrong: the gradient of the received buffer is not cleared between micro-batches.

Modelled on: educational pipelines that are written with send and recv.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.pipelines import MICRO_BATCHES, alone, batch, stage

WORLD = 2
reference = alone()


def train():
    rank = dist.get_rank()
    model = stage(rank, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch()
    opt.zero_grad()
    if rank == 0:
        for part in x.chunk(MICRO_BATCHES):
            out = model(part)
            dist.send(out.detach(), dst=1)
            grad = torch.empty_like(out)
            dist.recv(grad, src=1)
            out.backward(grad)
    else:
        hidden = torch.empty(len(y) // MICRO_BATCHES, 6).requires_grad_()
        for part in y.chunk(MICRO_BATCHES):
            dist.recv(hidden.detach(), src=0)
            (F.mse_loss(model(hidden), part) / MICRO_BATCHES).backward()
            dist.send(hidden.grad, dst=0)
    opt.step()
    return model
