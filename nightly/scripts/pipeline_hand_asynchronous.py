"""Right: both stages send and receive at once.

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
        outs, sends = [], []
        for part in x.chunk(MICRO_BATCHES):
            outs.append(model(part))
            sends.append(dist.isend(outs[-1].detach(), dst=1))
        grads = [torch.empty_like(out) for out in outs]
        receives = [dist.irecv(grad, src=1) for grad in grads]
        for out, grad, receive in zip(outs, grads, receives):
            receive.wait()
            out.backward(grad)
        for send in sends:
            send.wait()
    else:
        hidden = [torch.empty(2, 6) for _ in range(MICRO_BATCHES)]
        receives = [dist.irecv(h, src=0) for h in hidden]
        sends = []
        for h, receive, target in zip(hidden, receives, y.chunk(MICRO_BATCHES)):
            receive.wait()
            h.requires_grad_()
            (F.mse_loss(model(h), target) / MICRO_BATCHES).backward()
            sends.append(dist.isend(h.grad, dst=0))
        for send in sends:
            send.wait()
    opt.step()
    return model
