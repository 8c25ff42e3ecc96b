"""Layers of Llama as Megatron-core and Transformer Engine run them, in PyTorch on the CPU, and what lies in memory meanwhile.

Each kernel of theirs is one function here, whose inner values are nowhere; what it makes is there from its end on. What is kept, what is
freed by hand, in which order products are made, and which names hold a tensor, is as in their sources, which each class names. What PyTorch
itself does (its engine, its additions of gradients) is done by PyTorch.

Not counted: weights and their gradients, but for that of the embedding's table, which is a tensor of its own; integers; single numbers;
what a kernel needs inside. Sources: NVIDIA/Megatron-LM@23e00ed and NVIDIA/TransformerEngine@v2.11.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, Variable
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    """The bytes of all storages that live, after each operation; ``most`` of them, and ``where`` that was."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.inside = False
        self.most, self.where, self.trail = 0, "", list[tuple[str, int]]()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch's compiler is imported, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.inside:
            self.see(str(func), result if isinstance(result, (tuple, list)) else (result,))
        return result

    def apart(self, tensors: Iterable[Tensor]) -> None:
        """Tensors that are not counted."""
        for tensor in tensors:
            reference = StorageWeakRef(tensor.untyped_storage())
            self.live[reference.cdata] = reference, 0

    def see(self, name: str, tensors: Iterable[Any]) -> None:
        """An operation that made ``tensors`` is over."""
        self.live = {key: pair for key, pair in self.live.items() if not pair[0].expired()}
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                reference = StorageWeakRef(tensor.untyped_storage())
                counted = tensor.is_floating_point() and tensor.untyped_storage().nbytes() > 8
                self.live.setdefault(reference.cdata, (reference, tensor.untyped_storage().nbytes() if counted else 0))
        now = sum(size for _, size in self.live.values())
        self.trail.append((name, now))
        if now > self.most:
            self.most, self.where = now, name


def kernel(watch: Watch, name: str, work: Callable[[], Any], *, apart: int | None = None) -> Any:
    """What one kernel makes; ``apart``: which of it is not counted, a gradient of a weight."""
    watch.inside = True
    try:
        result = work()
    finally:
        watch.inside = False
    made = list(result) if isinstance(result, tuple) else [result]
    if apart is not None:
        watch.apart([made[apart]])
    watch.see(name, made)
    return result


def clear(*tensors: Tensor) -> None:
    """Free tensors under all their names. Source: transformer_engine/pytorch/utils.py, clear_tensor_data."""
    for tensor in tensors:
        tensor.data = torch.empty(0, dtype=tensor.dtype)


EPSILON = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A model, how it is split, and how a step of it runs.

    ``parts``: devices of tensor and sequence parallelism; ``stages``: of the pipeline; ``last``: whether of these the last one is meant, or
    the first; ``layers``: of that stage; ``micro``: micro-batches. ``statistics``: whether a norm's factor is counted, four bytes for each
    token.
    """

    hidden: int
    ffn: int
    vocab: int
    heads: int
    kv_heads: int
    tokens: int
    layers: int
    batch: int = 1
    micro: int = 1
    stages: int = 1
    last: bool = True
    parts: int = 1
    full: bool = False
    dtype: torch.dtype = torch.float32
    statistics: bool = False

    @property
    def first(self) -> bool:
        return self.stages == 1 or not self.last

    @property
    def width(self) -> int:
        return self.hidden // self.heads


@dataclass(slots=True)
class Context:
    """What kernels of one device share: the watch, its group of ``parts`` devices, and the buffer that Megatron-core gathers into."""

    watch: Watch
    parts: int
    statistics: bool
    buffer: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def norm(self, name: str, x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        return kernel(self.watch, name, lambda: normed(x, gain), apart=None if self.statistics else 1)

    def gather(self, x: Tensor) -> Tensor:
        """Parts of all devices, as if these had the same."""
        return x if self.parts == 1 else kernel(self.watch, "all_gather", lambda: torch.cat([x] * self.parts))

    def scatter(self, x: Tensor) -> Tensor:
        """Its own part."""
        return x if self.parts == 1 else kernel(self.watch, "reduce_scatter", x[: len(x) // self.parts].clone)

    def into_buffer(self, x: Tensor) -> Tensor:
        """As ``gather``, into a buffer that stays. Source: megatron/core/utils.py, GlobalMemoryBuffer."""
        if self.parts == 1:
            return x
        shape = (len(x) * self.parts, *x.shape[1:])
        if shape not in self.buffer:
            self.buffer[shape] = kernel(self.watch, "buffer", lambda: torch.empty(shape, dtype=x.dtype))
        kernel(self.watch, "all_gather", lambda: self.buffer[shape].copy_(torch.cat([x] * self.parts)))
        return self.buffer[shape]


def normed(x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    factor = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + EPSILON)
    return (x.float() * factor * gain.float()).to(x.dtype), factor


def norm_backward(dn: Tensor, x: Tensor, factor: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    dh, unit = dn.float() * gain.float(), x.float() * factor
    dx = factor * (dh - unit * (dh * unit).mean(-1, keepdim=True))
    return dx.to(x.dtype), (dn.float() * unit).flatten(0, -2).sum(0).to(x.dtype)


def add_product(main: Tensor, dy: Tensor, x: Tensor) -> Tensor:
    return main.add_(dy.flatten(0, -2).float().T @ x.flatten(0, -2).float())


class NormLinear(Function):
    """A norm and the product behind it. Source: transformer_engine/pytorch/module/layernorm_linear.py, _LayerNormLinear."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, weight: Tensor, name: str, device: Context) -> Tensor:
        n, factor = device.norm(f"{name}.norm", x, gain)
        total = device.gather(n)
        out = kernel(device.watch, f"{name}.product", lambda: total @ weight.T)
        if total is not n:
            clear(total)
        ctx.save_for_backward(x, gain, weight, n, factor)
        ctx.name, ctx.device, ctx.main = name, device, weight.main_grad  # type: ignore[attr-defined]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, gain, weight, n, factor = ctx.saved_tensors
        (dy,), watch, name = gradients, ctx.device.watch, ctx.name
        total = ctx.device.gather(n)
        made = kernel(watch, f"{name}.dgrad", lambda: dy @ weight)
        dn = ctx.device.scatter(made)
        kernel(watch, f"{name}.wgrad", lambda: add_product(ctx.main, dy, total))
        clear(n, total)
        dx, dgain = kernel(watch, f"{name}.dnorm", lambda: norm_backward(dn, x, factor, gain), apart=1)
        return dx, dgain, None, None, None


class RowLinear(Function):
    """A product whose parts are added up. Source: transformer_engine/pytorch/module/linear.py, _Linear."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, name: str, device: Context) -> Tensor:
        made = kernel(device.watch, f"{name}.product", lambda: x @ weight.T)
        out = device.scatter(made)
        ctx.save_for_backward(x, weight)
        ctx.name, ctx.device, ctx.main = name, device, weight.main_grad  # type: ignore[attr-defined]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        dy = ctx.device.gather(gradients[0])
        dx = kernel(ctx.device.watch, f"{ctx.name}.dgrad", lambda: dy @ weight)
        kernel(ctx.device.watch, f"{ctx.name}.wgrad", lambda: add_product(ctx.main, dy, x))
        if dy is not gradients[0]:
            clear(dy)
        return dx, None, None, None


class Head(Function):
    """The product behind the last norm.

    Source: megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, device: Context) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.device, ctx.main = device, weight.main_grad  # type: ignore[attr-defined]
        total = device.into_buffer(x)
        return kernel(device.watch, "head.product", lambda: total @ weight.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        (dy,) = gradients
        total = ctx.device.into_buffer(x)
        made = kernel(ctx.device.watch, "head.dgrad", lambda: dy @ weight)
        dx = ctx.device.scatter(made)
        kernel(ctx.device.watch, "head.wgrad", lambda: add_product(ctx.main, dy, total))
        return dx, None, None


class Norm(Function):
    """Source: transformer_engine/pytorch/ops/basic/rmsnorm.py, RMSNorm."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, device: Context) -> Tensor:
        n, factor = device.norm("last.norm", x, gain)
        ctx.save_for_backward(x, gain, factor)
        ctx.device = device
        return n

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, gain, factor = ctx.saved_tensors
        dx, dgain = kernel(ctx.device.watch, "last.dnorm", lambda: norm_backward(gradients[0], x, factor, gain), apart=1)
        return dx, dgain, None


class Loss(Function):
    """The mean loss, whose gradient is written over the logits.

    Source: transformer_engine/pytorch/cross_entropy.py, CrossEntropyFunction.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, device: Context) -> Tensor:
        def work() -> Tensor:
            p = torch.softmax(logits.float(), -1)
            picked = p.gather(-1, target[..., None])
            logits.copy_((p.scatter_add(-1, target[..., None], -torch.ones_like(picked))) / target.numel())
            return -picked.log().mean()

        loss = kernel(device.watch, "loss", work)
        ctx.save_for_backward(logits.detach())
        ctx.device = device
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dlogits,) = ctx.saved_tensors
        return kernel(ctx.device.watch, "dloss", lambda: dlogits.mul_(gradients[0])), None, None


class SwiGLU(Function):
    """Source: megatron/core/fusions/fused_bias_swiglu.py, SwiGLUFunction."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, device: Context) -> Tensor:
        ctx.save_for_backward(y)
        ctx.device = device

        def work() -> Tensor:
            g, u = y.chunk(2, -1)
            return torch.nn.functional.silu(g) * u

        return kernel(device.watch, "swiglu", work)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (y,) = ctx.saved_tensors

        def work() -> Tensor:
            g, u = y.chunk(2, -1)
            s = torch.sigmoid(g)
            return torch.cat((gradients[0] * s * (1 + g * (1 - s)) * u, gradients[0] * g * s), -1)

        return kernel(ctx.device.watch, "dswiglu", work), None


class Split(Function):
    """Source: transformer_engine/pytorch/utils.py, SplitAlongDim; what comes back is never one tensor here, and is joined."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int], device: Context) -> tuple[Tensor, ...]:
        ctx.device = device
        return torch.split(x, sizes, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return kernel(ctx.device.watch, "join", lambda: torch.cat(gradients, -1)), None, None


class Rotation(Function):
    """Positions. Source: transformer_engine/pytorch/attention/rope.py, FusedRoPEFunc."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Context) -> Tensor:
        ctx.device = device
        return kernel(device.watch, "rotation", lambda: rotated(x, 1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return kernel(ctx.device.watch, "drotation", lambda: rotated(gradients[0], -1)), None


def rotated(x: Tensor, sign: int) -> Tensor:
    """Pairs of [s, b, heads, width], turned by their position."""
    angle = sign * torch.arange(len(x))[:, None, None, None] / torch.arange(1, x.shape[-1] // 2 + 1)
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1).to(x.dtype)


def probabilities(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("sbgnd,tbgd->bgnst", q.float(), k.float()) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones(len(q), len(q)).triu(1).bool(), -math.inf)
    lse = scores.logsumexp(-1, keepdim=True)
    return (scores - lse).exp(), lse


class Attention(Function):
    """Source: transformer_engine/pytorch/attention/dot_product_attention/backends.py, FusedAttnFunc."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, device: Context) -> Tensor:
        def work() -> tuple[Tensor, Tensor]:
            p, lse = probabilities(q.unflatten(2, (k.shape[2], -1)), k)
            return torch.einsum("bgnst,tbgd->sbgnd", p, v.float()).flatten(2, 3).to(q.dtype).contiguous(), lse

        o, lse = kernel(device.watch, "attention", work)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.device = device
        return o

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, o, _lse = ctx.saved_tensors
        (do,) = gradients

        def work() -> tuple[Tensor, ...]:
            qs, dos, os = (t.unflatten(2, (k.shape[2], -1)).float() for t in (q, do, o))
            p, _ = probabilities(qs, k)
            dp = torch.einsum("sbgnd,tbgd->bgnst", dos, v.float())
            ds = p * (dp - torch.einsum("sbgnd,sbgnd->bgns", dos, os)[..., None]) / math.sqrt(q.shape[-1])
            dq = torch.einsum("bgnst,tbgd->sbgnd", ds, k.float()).flatten(2, 3)
            dk = torch.einsum("bgnst,sbgnd->tbgd", ds, qs)
            dv = torch.einsum("bgnst,sbgnd->tbgd", p, dos)
            return tuple(t.to(q.dtype).contiguous() for t in (dq, dk, dv))

        return *kernel(ctx.device.watch, "dattention", work), None


class Embedding(Function):
    """The table's rows, [b, s, h].

    Source: pytorch/pytorch@v2.8.0:aten/src/ATen/native/cuda/Embedding.cu, embedding_dense_backward_cuda.
    """

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, device: Context) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.device, ctx.rows = device, len(table)
        return kernel(device.watch, "embedding", lambda: table[ids % ctx.rows])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (ids,) = ctx.saved_tensors
        dy = gradients[0].contiguous()

        def work() -> Tensor:
            return dy.new_zeros(ctx.rows, dy.shape[-1]).index_add_(0, ids.flatten() % ctx.rows, dy.flatten(0, 1))

        return None, kernel(ctx.device.watch, "dtable", work), None


class ToParts(Function):
    """Source: megatron/core/tensor_parallel/mappings.py, _ReduceScatterToSequenceParallelRegion."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Context) -> Tensor:
        ctx.device = device
        return device.scatter(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.device.gather(gradients[0]), None


class Checkpoint(Function):
    """Source: megatron/core/tensor_parallel/random.py, CheckpointFunction."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        ctx.run = run
        with torch.no_grad():
            out = run(x)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx: Any, *args: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        inputs = x.detach().requires_grad_()
        with torch.enable_grad():
            outputs = ctx.run(inputs)
        torch.autograd.backward(outputs, args)
        return None, inputs.grad


class Stage:
    """A stage of a pipeline: its weights, forward, and a step in the order 1F1B."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes, self.watch = sizes, Watch()
        self.device = Context(self.watch, sizes.parts, sizes.statistics)
        n, h, t = sizes, sizes.hidden, sizes.parts
        self.split = [n.heads // n.kv_heads * n.width, n.width, n.width]
        self.layers = [[self.weight(*shape) for shape in self.shapes()] for _ in range(n.layers)]
        self.table = self.weight(n.vocab // t, h) if n.first else None
        self.gain, self.head = (self.weight(h), self.weight(n.vocab // t, h)) if n.last else (None, None)

    def shapes(self) -> list[tuple[int, ...]]:
        """Those of a layer's weights, in the order in which it has them."""
        n, h, t = self.sizes, self.sizes.hidden, self.sizes.parts
        return [(h,), (n.kv_heads // t * sum(self.split), h), (h, n.heads // t * n.width), (h,), (2 * n.ffn // t, h), (h, n.ffn // t)]

    def weight(self, *shape: int) -> Tensor:
        """A weight beside a gradient in which all of its gradients are added up, as distributed data parallelism does it."""
        made = torch.randn(shape) / math.sqrt(shape[-1]) if len(shape) > 1 else 1 + torch.randn(shape) / 4
        weight = made.to(self.sizes.dtype).requires_grad_()
        weight.main_grad = torch.zeros(shape)  # type: ignore[attr-defined]
        self.watch.apart([weight, weight.main_grad])  # type: ignore[attr-defined]
        weight.register_post_accumulate_grad_hook(self.added)
        return weight

    @staticmethod
    def added(weight: Tensor) -> None:
        """Source: megatron/core/distributed/distributed_data_parallel.py, _make_backward_post_hook."""
        if weight.grad is not None:
            weight.main_grad.add_(weight.grad)  # type: ignore[attr-defined]
            weight.grad = None

    def attention(self, x: Tensor, gain: Tensor, wqkv: Tensor, wo: Tensor) -> Tensor:
        """Source: megatron/core/transformer/attention.py, SelfAttention."""
        mixed = NormLinear.apply(x, gain, wqkv, "qkv", self.device)
        mixed = mixed.view(*mixed.shape[:2], -1, sum(self.split))
        q, k, v = Split.apply(mixed, self.split, self.device)
        del mixed
        q = q.reshape(*q.shape[:2], -1, self.sizes.width)
        q, k = Rotation.apply(q, self.device), Rotation.apply(k, self.device)
        o = Attention.apply(q, k, v.contiguous(), self.device)
        return RowLinear.apply(o.flatten(2), wo, "proj", self.device)

    def feed(self, x: Tensor, gain: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        """Source: megatron/core/transformer/mlp.py, MLP."""
        y = NormLinear.apply(x, gain, w1, "fc1", self.device)
        y = SwiGLU.apply(y, self.device)
        return RowLinear.apply(y, w2, "fc2", self.device)

    def layer(self, weights: list[Tensor], x: Tensor) -> Tensor:
        """Source: megatron/core/transformer/transformer_layer.py, TransformerLayer."""
        x = x + self.attention(x, *weights[:3])
        return x + self.feed(x, *weights[3:])

    def forward(self, x: Tensor | None, ids: Tensor, target: Tensor) -> Tensor:
        """Source: megatron/core/models/gpt/gpt_model.py, GPTModel."""
        if self.table is not None:
            x = Embedding.apply(ids, self.table, self.device).transpose(0, 1).contiguous()
            x = x if self.sizes.parts == 1 else ToParts.apply(x, self.device)
        for weights in self.layers:

            def run(x: Tensor, weights: list[Tensor] = weights) -> Tensor:
                return self.layer(weights, x)

            x = Checkpoint.apply(run, x) if self.sizes.full else run(x)
        if self.head is None:
            return x
        n = Norm.apply(x, self.gain, self.device)
        del x
        return Loss.apply(Head.apply(n, self.head, self.device), target, self.device)

    def step(self, ids: Tensor, target: Tensor) -> None:
        """Source: megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_without_interleaving."""
        n = self.sizes
        warmup = min(0 if n.last else n.stages - 1, n.micro)
        sources: list[Any] = []
        outputs: list[Any] = []

        def received(*, grad: bool) -> Tensor | None:
            if n.last if grad else n.first:
                return None
            made = kernel(self.watch, "received", lambda: torch.randn(n.tokens // n.parts, n.batch, n.hidden).to(n.dtype))
            return made if grad else made.requires_grad_()

        def handed_on(output: Tensor) -> None:
            sources.append(source)
            outputs.append(output)
            if not n.last:
                output.data = torch.empty(1, dtype=n.dtype)

        def back(source: Tensor | None, output: Tensor, dy: Tensor | None) -> Tensor | None:
            run_backward((output,), (torch.ones_like(output) if dy is None else dy,))
            return None if source is None else source.grad

        with self.watch:
            for _ in range(warmup):
                source = received(grad=False)
                output = self.forward(source, ids, target)
                handed_on(output)
            if n.micro > warmup:
                source = received(grad=False)
            for i in range(n.micro - warmup):
                output = self.forward(source, ids, target)
                dy = received(grad=True)
                handed_on(output)
                source, output = sources.pop(0), outputs.pop(0)
                dx = back(source, output, dy)
                source = received(grad=False) if i < n.micro - warmup - 1 else None
            for _ in range(warmup):
                source, output = sources.pop(0), outputs.pop(0)
                dy = received(grad=True)
                dx = back(source, output, dy)
            del dx, dy


def run_backward(outputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> None:
    """Backward of outputs whose values are gone already. Source: schedules.py, custom_backward."""
    Variable._execution_engine.run_backward(outputs, gradients, False, False, (), allow_unreachable=True, accumulate_grad=True)
