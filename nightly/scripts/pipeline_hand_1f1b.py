"""Right: one forward and one backward in turn, sent together.

Modelled on: Megatron-LM's send_forward_recv_backward, with batch_isend_irecv.
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
        parts, outs = x.chunk(MICRO_BATCHES), []
        outs.append(model(parts[0]))
        dist.send(outs[0].detach(), 1)
        for part in [*parts[1:], None]:
            grad = torch.empty(2, 6)
            ops = [dist.P2POp(dist.irecv, grad, 1)]
            if part is not None:
                outs.append(model(part))
                ops.append(dist.P2POp(dist.isend, outs[-1].detach(), 1))
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            outs.pop(0).backward(grad)
    else:
        for part in y.chunk(MICRO_BATCHES):
            hidden = torch.empty(2, 6)
            dist.recv(hidden, 0)
            hidden.requires_grad_()
            (F.mse_loss(model(hidden), part) / MICRO_BATCHES).backward()
            dist.send(hidden.grad, 0)
    opt.step()
    return model
