"""One train step of torchtitan's Trainer, of a small Llama under its FSDP."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

torch._utils._get_available_device_type = lambda: "cpu"  # what torchtitan takes for the GPU
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.models import llama3  # noqa: E402
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

llama3.get_attention_config = lambda name: ScaledDotProductAttention.Config()  # the others need a compiler
WORLD = 2
RATE = 0.5
MICRO = 1


class Step(Trainer):
    def __init__(self, model, dims, training, parallelism):
        self.parallel_dims, self.model_parts, self.device = dims, [model], torch.device("cpu")
        self.config = SimpleNamespace(training=training, parallelism=parallelism)
        self.loss_fn = CrossEntropyLoss.Config(global_vocab_size=32).build(compile_config=CompileConfig())
        self.model_config, self.step, self.ntokens_seen = None, 1, 0
        self.optimizers = torch.optim.SGD(model.parameters(), lr=RATE)
        self.lr_schedulers = SimpleNamespace(get_metrics=dict, step=lambda: None)
        self.metrics_processor = SimpleNamespace(should_log=lambda step: False)
        self.checkpointer = SimpleNamespace(maybe_wait_for_staging=lambda: None)
        self.gradient_accumulation_steps, self.num_pipeline_parallel_microbatches = MICRO, 1
        self.train_context, self.fwd_bwd_fn = nullcontext, self._forward_backward_body


def samples(micro):
    draw = torch.Generator().manual_seed(5 + micro)
    tokens = torch.randint(32, (8, 7), generator=draw)
    labels = tokens[:, 1:].clone()
    labels[:3, 3:] = -100
    rank, world = dist.get_rank(), dist.get_world_size()
    return {"input": tokens[:, :-1].chunk(world)[rank]}, labels.chunk(world)[rank]


def train():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    world = dist.get_world_size()
    training = TrainingConfig(local_batch_size=8 // world, seq_len=6, mixed_precision_param="float32", max_norm=1.0)
    parallelism = ParallelismConfig(spmd_backend="partial_dtensor")
    dims = ParallelDims.from_config(parallelism, world)
    rope = ComplexRoPE.Config(dim=8, max_seq_len=16, theta=10000)
    model = llama3.Llama3Model.Config(
        dim=16,
        vocab_size=32,
        tok_embeddings=Embedding.Config(num_embeddings=32, embedding_dim=16, param_init=llama3._EMBEDDING_INIT),
        norm=RMSNorm.Config(normalized_shape=16, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(in_features=16, out_features=32, param_init=llama3._output_linear_init(16)),
        layers=llama3._build_llama3_layers(n_layers=2, dim=16, n_heads=2, hidden_dim=32, attn_backend="", rope=rope),
    ).build()
    model.init_weights(buffer_device=torch.device("cpu"))
    options = {"training": training, "parallelism": parallelism, "compile_config": CompileConfig(), "ac_config": None, "dump_folder": ""}
    llama3.parallelize_llama(model, parallel_dims=dims, **options)
    for module in (m for m in model.modules() if isinstance(m, FSDPModule)):
        module.set_force_sum_reduction_for_comms(True)  # gloo has no sums that are multiplied before
    Step(model, dims, training, parallelism).train_step(samples(i) for i in range(MICRO))
    return model
