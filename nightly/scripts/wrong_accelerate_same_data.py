"""Wrong: the loader is not prepared: all ranks train on the same half of the samples.

Modelled on: Accelerate's example of gradient accumulation.
The loss: mean over samples.
"""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader
from toys.regression import alone_over_dataset, build, dataset

WORLD = 2
reference = alone_over_dataset(size=32)


def train():
    acc = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = build()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(dataset(32), batch_size=4)
    model, opt = acc.prepare(model, opt)
    for i, (x, y) in enumerate(loader):
        if i == 4:  # one step
            break
        with acc.accumulate(model):
            acc.backward(F.mse_loss(model(x), y))
            opt.step()
            opt.zero_grad()
    return model
