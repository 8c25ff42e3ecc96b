"""Wrong: subsets overlap.

Modelled on: PyTorch's ImageNet example with subsets.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from toys.regression import alone, batch, build

WORLD = 2
reference = alone()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    data = TensorDataset(*(torch.cat(z) for z in zip(*(batch(r) for r in range(world)))))
    part = Subset(data, range(rank * 2, rank * 2 + 4))
    model = DDP(build())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(part, batch_size=4):
        F.mse_loss(model(x), y).backward()
    opt.step()
    return model
