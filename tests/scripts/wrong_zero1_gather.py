"""ZeRO stage 1 by hand without the last gather: each rank keeps old parameters beside its own shard."""

import common
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

WORLD = 2
STRATEGY = "zero1"
reference = common.reference


def train() -> dict[str, Tensor]:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    net = common.model()
    whole = parameters_to_vector(net.parameters()).detach()
    shard = torch.nn.Parameter(whole.chunk(world)[rank].clone())
    optimizer = torch.optim.SGD([shard], lr=common.LEARNING_RATE)
    x, y = common.share(rank, world)
    common.loss(net(x), y).backward()
    gradients = parameters_to_vector([p.grad for p in net.parameters()])
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter_tensor(shard.grad, gradients)
    shard.grad /= world
    optimizer.step()
    whole.chunk(world)[rank].copy_(shard.detach())
    vector_to_parameters(whole, net.parameters())
    return common.parameters(net)


if __name__ == "__main__":
    train()
