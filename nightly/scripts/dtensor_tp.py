"""Right: split by columns, then by rows.

Modelled on: PyTorch's tutorial on tensor parallelism.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from toys.blocks import batch
from toys.one_process import alone, mean_squares, of_rank_0
from toys.regression import build

WORLD = 2
reference = alone(build, of_rank_0(batch), mean_squares)


def train():
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    model = parallelize_module(build(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch(0)
    F.mse_loss(model(x), y).backward()
    opt.step()
    return model
