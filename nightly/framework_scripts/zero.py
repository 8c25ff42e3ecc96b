"""One step of DeepSpeed's engine."""

import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

WORLD = 2
RATE = 0.5
STAGE, CLIP, MICRO = 0, 0.0, 1


def samples(micro):
    draw = torch.Generator().manual_seed(5 + micro)
    x, y = torch.randn(8, 6, generator=draw), torch.randn(8, 3, generator=draw)
    rank, world = dist.get_rank(), dist.get_world_size()
    return x.chunk(world)[rank], y.chunk(world)[rank]


def train():
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # built with a compiler, for inference alone
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
    config = {
        "train_micro_batch_size_per_gpu": 8 // int(os.environ["WORLD_SIZE"]),
        "gradient_accumulation_steps": MICRO,
        "zero_optimization": {"stage": STAGE},
        "gradient_clipping": CLIP,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    for micro in range(MICRO):
        x, y = samples(micro)
        loss = nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
    return engine.module


def whole(model):
    if STAGE < 3:
        return dict(model.named_parameters())
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return {name: p.detach().clone() for name, p in model.named_parameters()}
