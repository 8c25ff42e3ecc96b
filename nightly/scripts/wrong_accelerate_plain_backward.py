"""Wrong: backward is not called by Accelerate, and nobody divides by the micro-batches.

Modelled on: Accelerate's example of gradient accumulation.
The loss: mean over samples.
"""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader
from toys.regression import alone_over_dataset, build, dataset

WORLD = 2
reference = alone_over_dataset()


def train():
    acc = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(dataset(), batch_size=4)
    model, opt, loader = acc.prepare(model, opt, loader)
    for x, y in loader:
        with acc.accumulate(model):
            F.mse_loss(model(x), y).backward()
            opt.step()
            opt.zero_grad()
    return model
