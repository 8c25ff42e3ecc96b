"""Wrong: under `no_sync` gradients of copies are never reduced.

Modelled on: educational pipelines that are written with send and recv.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.pipelines import MICRO_BATCHES, alone, batch, stage

WORLD = 4
reference = alone(2)


def train():
    degree = dist.get_world_size() // 2
    replica, rank = dist.get_rank() % degree, dist.get_rank() // degree
    copies = [dist.new_group(range(n * degree, (n + 1) * degree)) for n in range(2)]
    model = stage(rank, 2)
    parallel = DDP(model, process_group=copies[rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(replica)
    if rank == 0:
        with parallel.no_sync():
            outs = []
            for part in x.chunk(MICRO_BATCHES):
                outs.append(parallel(part))
                dist.send(outs[-1].detach(), dst=replica + degree)
            for out in outs:
                grad = torch.empty_like(out)
                dist.recv(grad, src=replica + degree)
                out.backward(grad)
    else:
        with parallel.no_sync():
            inputs, losses = [], []
            for part in y.chunk(MICRO_BATCHES):
                hidden = torch.empty(len(part), 6)
                dist.recv(hidden, src=replica)
                inputs.append(hidden.requires_grad_())
                losses.append(F.mse_loss(parallel(hidden), part) / MICRO_BATCHES)
            for hidden, loss in zip(inputs, losses):
                loss.backward()
                dist.send(hidden.grad, dst=replica)

    opt.step()
    return model
