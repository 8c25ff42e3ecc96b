"""Wrong: a sampler shares samples out over all ranks, so that targets are of other samples.

Modelled on: scripts of data parallelism that got stages later.
The loss: mean over samples.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from toys.pipelines import MICRO_BATCHES, alone_over_shares, shares, stage

WORLD = 4
reference = alone_over_shares(count=2)


def train():
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "pp"))
    rank = mesh.get_local_rank("pp")
    model = stage(rank, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(*shares(count=dist.get_world_size() // 2))
    sampler = DistributedSampler(data, dist.get_world_size(), dist.get_rank(), shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    part = PipelineStage(model, rank, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    pipe = Schedule1F1B(part, n_microbatches=MICRO_BATCHES, loss_fn=F.mse_loss)
    for x, y in loader:
        opt.zero_grad()
        if rank == 0:
            pipe.step(x)
        else:
            pipe.step(target=y)
        for p in model.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.SUM, mesh.get_group("dp"))
            p.grad /= mesh.size(0)
        opt.step()
        break
    return model
