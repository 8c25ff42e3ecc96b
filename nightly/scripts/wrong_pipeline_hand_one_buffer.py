"""Wrong: all micro-batches are received in one buffer, which backward reads later.

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
        outs = []
        for part in x.chunk(MICRO_BATCHES):
            outs.append(model(part))
            dist.send(outs[-1].detach(), dst=1)
        for out in outs:
            grad = torch.empty_like(out)
            dist.recv(grad, src=1)
            out.backward(grad)
    else:
        buffer, hidden, losses = torch.empty(2, 6), [], []
        for part in y.chunk(MICRO_BATCHES):
            dist.recv(buffer, src=0)
            hidden.append(buffer.detach().requires_grad_())
            losses.append(F.mse_loss(model(hidden[-1]), part) / MICRO_BATCHES)
        for h, loss in zip(hidden, losses):
            loss.backward()
            dist.send(h.grad, dst=0)
    opt.step()
    return model
