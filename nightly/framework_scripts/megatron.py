"""One step of Megatron-core's DistributedDataParallel, optimizer and parallel layers."""

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import TransformerConfig
from torch import nn

for name in ("tensor", "zeros"):  # the optimizer makes single numbers on a GPU
    make = getattr(torch, name)
    setattr(torch, name, lambda *values, make=make, **options: make(*values, **{k: v for k, v in options.items() if k != "device"}))
torch.cuda.current_device = lambda: torch.device("cpu")  # where buffers are made
WORLD = 2
TP, MICRO = 1, 2


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        options = {"config": config, "init_method": nn.init.xavier_normal_}
        self.config = config
        self.first = ColumnParallelLinear(8, 16, gather_output=False, **options)
        self.second = RowParallelLinear(16, 4, bias=True, input_is_parallel=True, skip_bias_add=False, **options)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)[0]))[0]


def samples(micro):
    draw = torch.Generator().manual_seed(5 + micro)
    x, y = torch.randn(8, 8, generator=draw), torch.randn(8, 4, generator=draw)
    rank, world = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    return x.chunk(world)[rank], y.chunk(world)[rank]


def train():
    dist.init_process_group("gloo")
    if not parallel_state.model_parallel_is_initialized():  # the recorder runs a script several times
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=TP)
    torch.manual_seed(0)
    shape = {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 1, "tensor_model_parallel_size": TP}
    config = TransformerConfig(use_cpu_initialization=True, gradient_accumulation_fusion=False, **shape)
    net = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True), Net(config))
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="sgd", lr=0.5, clip_grad=0.0, sgd_momentum=0.0, weight_decay=0.0), [net])
    net.zero_grad_buffer()
    for micro in range(MICRO):
        x, y = samples(micro)
        (nn.functional.mse_loss(net(x), y) / MICRO).backward()
    finalize_model_grads([net])
    optimizer.step()
    return net.module


def whole(model):
    """Of parameters that are split, the parts of all ranks."""
    parts = {}
    for name, p in model.named_parameters():
        parts[name] = p.detach()
        if getattr(p, "partition_dim", -1) >= 0 and TP > 1:
            each = [torch.empty_like(p) for _ in range(TP)]
            dist.all_gather(each, p.detach().contiguous())
            parts[name] = torch.cat(each, dim=p.partition_dim)
    return parts
