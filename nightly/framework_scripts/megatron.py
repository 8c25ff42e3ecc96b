"""One step of Megatron-core's schedule, DistributedDataParallel, optimizer and parallel layers."""

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.enums import ModelType
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import TransformerConfig
from torch import nn

WORLD = 2
RATE = 0.5
TP, MICRO, SHARDED, CLIP = 1, 3, False, 0.0
PER_TOKEN, UNEQUAL = False, False


def without_gpu():
    """Megatron-core makes numbers and buffers on a GPU, and asks whether parameters lie there. The recorder runs a script several times."""
    if torch.cuda.current_device.__name__ == "on_processor":
        return
    for name in ("tensor", "zeros", "empty"):
        make = getattr(torch, name)
        setattr(torch, name, lambda *values, make=make, **options: make(*values, **{k: v for k, v in options.items() if k != "device"}))
    torch.cuda.current_device = on_processor
    torch.Tensor.type = lambda self, *to: self.to(*to) if to else "torch.cuda.FloatTensor" if self.dtype == torch.float32 else "another"


def on_processor():
    return torch.device("cpu")


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        options = {"config": config, "init_method": nn.init.xavier_normal_}
        self.config, self.model_type = config, ModelType.encoder_or_decoder
        self.first = ColumnParallelLinear(8, 16, gather_output=False, **options)
        self.second = RowParallelLinear(16, 4, bias=True, input_is_parallel=True, skip_bias_add=False, **options)

    def set_input_tensor(self, tensors):
        pass

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)[0]))[0]


def samples(micro):
    draw = torch.Generator().manual_seed(5 + micro)
    x, y = torch.randn(8, 5, 8, generator=draw), torch.randint(4, (8, 5), generator=draw)
    mask = torch.ones(8, 5)
    mask[:3, 2:] = 0 if UNEQUAL else 1
    rank, world = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    return tuple(t.chunk(world)[rank] for t in (x, y, mask))


def forward_step(data, model):
    x, y, mask = next(data)

    def loss(output):
        each = nn.functional.cross_entropy(output.transpose(1, 2), y, reduction="none")
        total = (each * mask).sum()
        return total, mask.sum().int(), {"loss": total.detach()}

    return model(x), loss


def train():
    without_gpu()
    dist.init_process_group("gloo")
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=TP)
    torch.manual_seed(0)
    shape = {"num_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "tensor_model_parallel_size": TP}
    own = {"use_cpu_initialization": True, "gradient_accumulation_fusion": False, "calculate_per_token_loss": PER_TOKEN}
    config = TransformerConfig(finalize_model_grads_func=finalize_model_grads, **own, **shape)
    buckets = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=SHARDED)
    net = DistributedDataParallel(config, buckets, Net(config))
    settings = {"lr": RATE, "clip_grad": CLIP, "sgd_momentum": 0.0, "weight_decay": 0.0, "use_distributed_optimizer": SHARDED}
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam" if SHARDED else "sgd", adam_eps=0.1, **settings), [net])
    net.zero_grad_buffer()
    step = get_forward_backward_func()
    data = (samples(i) for i in range(MICRO))
    step(forward_step_func=forward_step, data_iterator=data, model=net, num_microbatches=MICRO, seq_length=5, micro_batch_size=8)
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
