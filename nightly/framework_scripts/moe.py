"""One step of DeepSpeed's engine over its layer of experts, to which tokens are sent by all-to-all."""

import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as by_group
from torch import nn

WORLD = 2
RATE = 0.5
STAGE, CLIP = 0, 0.0


class Net(nn.Module):
    def __init__(self, ranks):
        super().__init__()
        self.enter, self.leave = nn.Linear(6, 8), nn.Linear(8, 3)
        expert = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.mid = MoE(8, expert, num_experts=4, ep_size=ranks, k=1, drop_tokens=False, use_rts=False, min_capacity=0)

    def forward(self, x):
        return self.leave(self.mid(self.enter(x))[0])


def samples():
    draw = torch.Generator().manual_seed(5)
    x, y = torch.randn(8, 5, 6, generator=draw), torch.randn(8, 5, 3, generator=draw)
    rank, world = dist.get_rank(), dist.get_world_size()
    return x.chunk(world)[rank], y.chunk(world)[rank]


def experts(model):
    return model.mid.deepspeed_moe.experts.deepspeed_experts


def train():
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # built with a compiler, for inference alone
    dist.init_process_group("gloo")
    deepspeed.init_distributed("gloo")
    torch.manual_seed(0)
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Net(world)
    own = experts(model)
    for number, expert in enumerate(own):
        torch.manual_seed(1 + rank * len(own) + number)
        for p in expert.parameters():
            nn.init.normal_(p, std=0.5)
    config = {
        "train_micro_batch_size_per_gpu": 8 // int(os.environ["WORLD_SIZE"]),
        "zero_optimization": {"stage": STAGE},
        "gradient_clipping": CLIP,
        "zero_allow_untested_optimizer": True,
    }
    groups = by_group({"params": list(model.parameters()), "name": "all"})
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(groups, lr=RATE), config=config)
    x, y = samples()
    engine.backward(nn.functional.mse_loss(engine(x), y))
    engine.step()
    return engine.module


def whole(model):
    """The experts of all ranks, by their numbers."""
    parts = {name: p for name, p in model.named_parameters() if "deepspeed_experts" not in name}
    own = [{name: p.detach() for name, p in expert.named_parameters()} for expert in experts(model)]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    found = [expert for some in every for expert in some]
    return parts | {f"expert {i}: {name}": p for i, expert in enumerate(found) for name, p in expert.items()}
