"""Right: the gradients of the shared weight are added up over the first stage and the last.

Modelled on: Megatron-LM's embeddings of the first and the last stage.
The loss: mean over tokens.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.pipelines import MICRO_BATCHES, alone_tied, stage_tied, tokens

WORLD = 2
reference = alone_tied()


def train():
    rank = dist.get_rank()
    model = stage_tied(rank, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = tokens()
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
        inputs, losses = [], []
        for part in y.chunk(MICRO_BATCHES):
            hidden = torch.empty(2, 5, 6)
            dist.recv(hidden, src=0)
            inputs.append(hidden.requires_grad_())
            losses.append(F.cross_entropy(model(hidden).flatten(0, 1), part.flatten()) / MICRO_BATCHES)
        for hidden, loss in zip(inputs, losses):
            loss.backward()
            dist.send(hidden.grad, dst=0)
    shared = model.layers["embed"].weight if rank == 0 else model.layers["head"].weight
    dist.all_reduce(shared.grad)
    opt.step()
    return model
