"""Measuring Megatron-core: a decoder of its parallel layers, its buffers of gradients, on gloo processes of this machine.

Needs torch and megatron-core. Its DistributedOptimizer wants tensors of a GPU; what it sends in a step is the gathering of parameters that
DistributedDataParallel offers (``start_param_sync``), which is called here in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state  # type: ignore[import-not-found,import-untyped]
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # type: ignore[import-not-found,import-untyped]
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding  # type: ignore[import-not-found,import-untyped]
from megatron.core.tensor_parallel.mappings import gather_from_tensor_model_parallel_region  # type: ignore[import-not-found,import-untyped]
from megatron.core.transformer import TransformerConfig  # type: ignore[import-not-found,import-untyped]
from torch import Tensor, nn
from torch.nn import functional

from placeproof.core.shapes import Shapes
from placeproof.cost.exact.megatron import DEFAULTS
from placeproof.measure import memory
from placeproof.measure.processes import message, run
from placeproof.measure.recorder import Recorder
from placeproof.measure.systems.cases import SystemCase, SystemMeasured


def measure(cases: Sequence[SystemCase], *, patience: float = 20.0) -> list[SystemMeasured]:
    """What each case does, all on one mesh. ``patience``: seconds for each. Raises RuntimeError where one fails."""
    dp, tp = cases[0].mesh["dp"], cases[0].mesh["tp"]

    def every(rank: int, size: int, directory: Path) -> list[SystemMeasured]:
        torch.cuda.current_device = lambda: torch.device("cpu")  # where buffers are made
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=tp)
        return [_one(case) for case in cases]

    outcomes = run(dp * tp, every, timeout=patience * len(cases), collective_timeout=patience)
    if outcomes[0].value is None or any(outcome.kind != "ok" for outcome in outcomes):
        errors = "\n".join(outcome.error for outcome in outcomes if outcome.error)
        raise RuntimeError(f"Megatron-core could not be measured: {message(outcomes)}\n{errors}")
    return outcomes[0].value


class _Layer(nn.Module):
    """Norm, attention, norm, gated feed-forward, between Megatron's linear layers. Tokens are the first dimension, as in Megatron."""

    def __init__(self, shapes: Shapes, config: TransformerConfig) -> None:
        super().__init__()
        hidden, ffn, self.width = shapes.dim("hidden"), shapes.dim("ffn"), shapes.dim("width")
        narrow = shapes.dim("kv_heads") * self.width
        tp = parallel_state.get_tensor_model_parallel_world_size()
        self.parts = [hidden // tp, narrow // tp, narrow // tp]
        self.attention_norm = _norm(hidden, config)
        self.linear_qkv = _column(hidden, hidden + 2 * narrow, config)
        self.linear_proj = _row(hidden, hidden, config)
        self.ffn_norm = _norm(hidden, config)
        self.linear_fc1 = _column(hidden, 2 * ffn, config)
        self.linear_fc2 = _row(ffn, hidden, config)

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, batch, hidden) to the same; of the tokens a device's own with sequence parallelism."""
        q, k, v = (
            part.unflatten(-1, (-1, self.width)).permute(1, 2, 0, 3)
            for part in self.linear_qkv(self.attention_norm(x))[0].split(self.parts, dim=-1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.linear_proj(y.permute(2, 0, 1, 3).flatten(2))[0]
        gate, up = self.linear_fc1(self.ffn_norm(x))[0].chunk(2, dim=-1)
        out: Tensor = x + self.linear_fc2(functional.silu(gate) * up)[0]
        return out


class _Decoder(nn.Module):
    """Embedding, layers, norm, head."""

    def __init__(self, shapes: Shapes, config: TransformerConfig) -> None:
        super().__init__()
        hidden, vocab = shapes.dim("hidden"), shapes.dim("vocab")
        self.config = config
        self.embedding = VocabParallelEmbedding(
            vocab, hidden, init_method=_fill, reduce_scatter_embeddings=config.sequence_parallel, config=config
        )
        self.layers = nn.ModuleList(_Layer(shapes, config) for _ in shapes.units[1:])
        self.norm = _norm(hidden, config)
        self.head = _column(hidden, vocab, config)

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, tokens) to logits (tokens, batch, vocab)."""
        x = self.embedding(ids)
        if not self.config.sequence_parallel:  # with it, the embedding does so itself
            x = x.transpose(0, 1).contiguous()
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = gather_from_tensor_model_parallel_region(self.head(self.norm(x))[0])
        return logits


def _fill(weight: Tensor) -> None:
    nn.init.uniform_(weight, -0.25, 0.25)


def _norm(hidden: int, config: TransformerConfig) -> nn.LayerNorm:
    norm = nn.LayerNorm(hidden, bias=False, dtype=config.params_dtype)
    norm.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
    return norm


def _column(inputs: int, outputs: int, config: TransformerConfig) -> nn.Module:
    layer: nn.Module = ColumnParallelLinear(inputs, outputs, config=config, init_method=_fill, bias=False, gather_output=False)
    return layer


def _row(inputs: int, outputs: int, config: TransformerConfig) -> nn.Module:
    layer: nn.Module = RowParallelLinear(
        inputs, outputs, config=config, init_method=_fill, bias=False, input_is_parallel=True, skip_bias_add=False
    )
    return layer


def _config(case: SystemCase, dtype: torch.dtype) -> TransformerConfig:
    return TransformerConfig(
        num_layers=len(case.shapes.units) - 1,
        hidden_size=case.shapes.dim("hidden"),
        num_attention_heads=case.shapes.dim("heads"),
        tensor_model_parallel_size=case.mesh["tp"],
        sequence_parallel=bool(case.options["sequence_parallel"]),
        params_dtype=dtype,
        bf16=dtype is torch.bfloat16,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
    )


def _one(case: SystemCase) -> SystemMeasured:
    options = {**DEFAULTS, **case.options}
    torch.manual_seed(0)
    config = _config(case, getattr(torch, str(options["dtype"])))
    kept = {k: v for k, v in options.items() if k not in ("dtype", "sequence_parallel")}
    parts: Any = DistributedDataParallel(config, DistributedDataParallelConfig(**kept), _Decoder(case.shapes, config))
    _check(case, parts)
    groups = {
        "dp": parallel_state.get_data_parallel_group(with_context_parallel=True),
        "tp": parallel_state.get_tensor_model_parallel_group(),
    }
    recorder = Recorder({str(group.group_name): (axis,) for axis, group in groups.items()})
    ids = torch.randint(case.shapes.dim("vocab"), (case.shapes.dim("batch"), case.shapes.dim("tokens")))
    for _ in range(2):
        recorder.take()
        parts.zero_grad_buffer()
        with recorder:
            recorder.phase = "forward"
            loss = functional.cross_entropy(parts(ids).float().flatten(0, 1), ids.T.flatten())
            recorder.phase = "backward"
            torch.autograd.backward(loss)
            recorder.phase = "update"
            finalize_model_grads([parts])
            if options["use_distributed_optimizer"]:
                parts.start_param_sync(force_sync=True)
    dist.barrier()
    sizes = {
        "parameters": memory.held(parts.parameters()),
        "gradients": memory.held(buffer.grad_data for buffer in parts.buffers),
    }
    return SystemMeasured(exchanges=recorder.take(), memory=sizes, version=version("megatron-core"))


def _check(case: SystemCase, module: nn.Module) -> None:
    """Raise ValueError where the module's parameters are not, by name and size, the weights of the shapes."""
    tp = case.mesh["tp"]
    expected = {w.name: w.elements // (tp if w.split is not None else 1) for w in case.shapes.weights}
    sizes = {name.removeprefix("module."): p.numel() for name, p in module.named_parameters()}
    if expected != sizes:
        raise ValueError(f"the shapes say {expected}, the module has {sizes}")
