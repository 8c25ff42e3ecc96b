"""Wrong: means over the tokens of each micro-batch that count, of which there are other numbers, are averaged.

Modelled on: educational pipelines that are written with send and recv.
The loss: mean over tokens.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from toys.pipelines import MICRO_BATCHES, alone_with_tokens, build_tied, cut, tokens

WORLD = 2


def ignored(model, x, y):
    y[:3, 1:] = -100
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100)


reference = alone_with_tokens(ignored)


def train():
    rank = dist.get_rank()
    model = cut(build_tied(False), rank, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = tokens()
    y[:3, 1:] = -100
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
            losses.append(F.cross_entropy(model(hidden).flatten(0, 1), part.flatten(), ignore_index=-100) / MICRO_BATCHES)
        for hidden, loss in zip(inputs, losses):
            loss.backward()
            dist.send(hidden.grad, dst=0)
    opt.step()
    return model
