"""Wrong: Accelerate divides by the micro-batches besides.

Modelled on: https://github.com/huggingface/accelerate/issues/3661.
The loss: mean over valid tokens of all ranks and micro-batches.
"""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from toys.language import alone, batch, build

WORLD = 2
reference = alone()


def train():
    acc = Accelerator(cpu=True, gradient_accumulation_steps=2)
    rank = acc.process_index
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model, opt = acc.prepare(model, opt)
    x, y = batch(rank)
    n = acc.gather((y != -100).sum()).sum()
    for xs, ys in zip(x.chunk(2), y.chunk(2)):
        with acc.accumulate(model):
            loss = F.cross_entropy(model(xs).flatten(0, 1), ys.flatten(), ignore_index=-100, reduction="sum")
            acc.backward(loss * acc.num_processes / n)
            opt.step()
            opt.zero_grad()
    return model
