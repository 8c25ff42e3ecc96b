"""Right: DistributedDataParallel around each stage reduces after the last micro-batch.

Modelled on: PyTorch's tests of pipelining beside DistributedDataParallel.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel as DDP
from toys.pipelines import MICRO_BATCHES, alone, batch, stage

WORLD = 4
reference = alone(2)


def train():
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("pp", "dp"))
    rank = mesh.get_local_rank("pp")
    model = stage(rank, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    part = PipelineStage(DDP(model, process_group=mesh.get_group("dp")), rank, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    pipe = Schedule1F1B(part, n_microbatches=MICRO_BATCHES, loss_fn=F.mse_loss)
    x, y = batch(mesh.get_local_rank("dp"))
    opt.zero_grad()
    if rank == 0:
        pipe.step(x)
    else:
        pipe.step(target=y)
    opt.step()
    return model
