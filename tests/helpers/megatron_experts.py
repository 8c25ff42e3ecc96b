"""Layers with experts as Megatron-core and Transformer Engine run them, in PyTorch on the CPU, as in :mod:`megatron_layers`.

Tokens go to experts by all-to-all among ``devices``, as if these had the same tokens. Every expert gets as many, so that each device does.
Sources: NVIDIA/Megatron-LM@23e00ed and NVIDIA/TransformerEngine@v2.11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from megatron_layers import Context, Norm, RowLinear, Sizes, Stage, SwiGLU, add_product, clear, kernel
from torch import Tensor
from torch.autograd import Function


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSizes(Sizes):
    """``experts`` of which each token goes to ``choices``; ``devices`` share them out. ``shared``: the inner width of an expert that every
    token passes, 0 for none; ``sigmoid``: whether gates are sigmoids."""

    experts: int
    choices: int
    devices: int = 1
    shared: int = 0
    sigmoid: bool = False


class Router(Function):
    """The product of the router. Source: megatron/core/transformer/moe/moe_utils.py, RouterGatingLinearFunction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, device: Context) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.device = device
        return kernel(device.watch, "router", lambda: x @ weight.T)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        dx = kernel(ctx.device.watch, "drouter", lambda: gradients[0] @ weight)
        dw = kernel(ctx.device.watch, "wrouter", lambda: gradients[0].flatten(0, -2).T @ x.flatten(0, -2), apart=0)
        return dx, dw, None


class Scores(Function):
    """The choices of tokens, and their gates. Source: transformer_engine/pytorch/router.py, FusedTopkScoreFunction.

    Whom a token goes to is told by ``chosen`` here, so that every expert gets as many; its gates are a softmax over these.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, chosen: Tensor, sigmoid: bool, device: Context) -> Tensor:
        def work() -> tuple[Tensor, Tensor]:
            if sigmoid:
                scores = torch.sigmoid(logits)
                return scores * chosen / (scores * chosen).sum(-1, keepdim=True), scores
            gates = torch.softmax(logits.float().masked_fill(~chosen, -math.inf), -1).to(logits.dtype)
            return gates, gates.clone()

        gates, scores = kernel(device.watch, "scores", work)
        ctx.save_for_backward(chosen, scores)
        ctx.device, ctx.sigmoid = device, sigmoid
        return gates

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (chosen, scores), (dp,) = ctx.saved_tensors, gradients

        def work() -> Tensor:
            z = (scores * chosen).sum(-1, keepdim=True)
            p = scores * chosen / z if ctx.sigmoid else scores
            within = dp - (dp * p).sum(-1, keepdim=True)
            return within * chosen / z * scores * (1 - scores) if ctx.sigmoid else p * within

        return kernel(ctx.device.watch, "dscores", work), None, None, None


class Permute(Function):
    """Rows of tokens, by experts. Source: transformer_engine/pytorch/permutation.py, _moe_permute_mask_map."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Tensor, chosen: Tensor, device: Context) -> tuple[Tensor, Tensor]:
        ctx.device, ctx.tokens = device, len(x)
        ctx.save_for_backward(chosen)
        rows, experts = chosen.T.nonzero().unbind(-1)[::-1]
        return kernel(device.watch, "permute", lambda: (x[rows], gates[rows, experts]))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (chosen,), (dx, dgates) = ctx.saved_tensors, gradients
        rows, experts = chosen.T.nonzero().unbind(-1)[::-1]

        def work() -> tuple[Tensor, Tensor]:
            made = dx.new_zeros(ctx.tokens, dx.shape[-1]).index_add_(0, rows, dx)
            return made, dgates.new_zeros(chosen.shape).index_put_((rows, experts), dgates)

        return *kernel(ctx.device.watch, "dpermute", work), None, None


class Unpermute(Function):
    """The sum of a token's rows. Source: transformer_engine/pytorch/permutation.py, _moe_unpermute_mask_map."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, chosen: Tensor, device: Context) -> Tensor:
        ctx.device = device
        ctx.save_for_backward(chosen)
        rows = chosen.T.nonzero()[:, 1]
        return kernel(device.watch, "unpermute", lambda: x.new_zeros(len(chosen), x.shape[-1]).index_add_(0, rows, x))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (chosen,) = ctx.saved_tensors
        rows = chosen.T.nonzero()[:, 1]
        return kernel(ctx.device.watch, "dunpermute", lambda: gradients[0][rows]), None, None


class Moved(Function):
    """What changes places, and is as large there: an all-to-all among ``devices`` that have the same, or a sort of chunks.

    Sources: megatron/core/tensor_parallel/mappings.py, _AllToAll; transformer_engine/pytorch/permutation.py, _moe_chunk_sort.
    """

    @staticmethod
    def forward(ctx: Any, name: str, device: Context, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.name, ctx.device = name, device
        return kernel(device.watch, name, lambda: tuple(t.clone() for t in tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, *kernel(ctx.device.watch, f"d{ctx.name}", lambda: tuple(t.clone() for t in gradients))


class Grouped(Function):
    """Products of all experts of a device. Source: transformer_engine/pytorch/module/grouped_linear.py, _GroupedLinear."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str, device: Context, *weights: Tensor) -> Tensor:
        parts = torch.split(x, len(x) // len(weights))
        out = kernel(device.watch, f"{name}.product", lambda: torch.cat([p @ w.T for p, w in zip(parts, weights, strict=True)]))
        ctx.save_for_backward(*parts, *weights)
        ctx.name, ctx.device, ctx.mains = name, device, [w.main_grad for w in weights]  # type: ignore[attr-defined]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        number = len(ctx.mains)
        parts, weights = ctx.saved_tensors[:number], ctx.saved_tensors[number:]
        dys = torch.split(gradients[0], len(gradients[0]) // number)
        watch = ctx.device.watch
        dx = kernel(watch, f"{ctx.name}.dgrad", lambda: torch.cat([d @ w for d, w in zip(dys, weights, strict=True)]))
        for main, d, p in zip(ctx.mains, dys, parts, strict=True):
            kernel(watch, f"{ctx.name}.wgrad", lambda m=main, d=d, p=p: add_product(m, d, p))
        clear(*parts)
        return dx, None, None, *(None for _ in weights)


class WeightedSwiGLU(Function):
    """Source: megatron/core/fusions/fused_bias_swiglu.py, WeightedSwiGLUFunction."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, weight: Tensor, device: Context) -> Tensor:
        ctx.save_for_backward(y, weight)
        ctx.device = device

        def work() -> Tensor:
            g, u = y.chunk(2, -1)
            return torch.nn.functional.silu(g) * u * weight

        return kernel(device.watch, "weighted", work)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (y, weight), (da,) = ctx.saved_tensors, gradients

        def work() -> tuple[Tensor, Tensor]:
            g, u = y.chunk(2, -1)
            s = torch.sigmoid(g)
            dw = (da * g * s * u).sum(-1, keepdim=True)
            return torch.cat((da * weight * s * (1 + g * (1 - s)) * u, da * weight * g * s), -1), dw

        return *kernel(ctx.device.watch, "dweighted", work), None


class Dispatcher:
    """Source: megatron/core/transformer/moe/token_dispatcher.py, MoEAlltoAllTokenDispatcher."""

    def __init__(self, sizes: ExpertSizes, device: Context) -> None:
        self.sizes, self.device = sizes, device
        self.several = sizes.experts // sizes.devices > 1

    def moved(self, name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
        alone = self.sizes.devices == 1 if name == "all_to_all" else not self.several
        return tensors if alone else Moved.apply(name, self.device, *tensors)

    def preprocess(self, hidden: Tensor, probs: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        self.shape, self.probs, self.chosen = hidden.shape, probs, chosen
        return Permute.apply(hidden.view(-1, hidden.shape[-1]), probs, chosen, self.device)

    def dispatch(self, hidden: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
        (hidden,) = self.moved("all_to_all", hidden)
        (probs,) = self.moved("all_to_all", probs)
        return hidden, probs

    def postprocess(self, hidden: Tensor, probs: Tensor) -> tuple[Tensor, ...]:
        return self.moved("sort", hidden, probs)

    def combine_preprocess(self, hidden: Tensor) -> Tensor:
        (hidden,) = self.moved("sort", hidden)
        return hidden

    def combine(self, hidden: Tensor) -> Tensor:
        (hidden,) = self.moved("all_to_all", hidden)
        return hidden

    def combine_postprocess(self, hidden: Tensor) -> Tensor:
        return Unpermute.apply(hidden, self.chosen, self.device).view(self.shape)


class ExpertStage(Stage):
    """A stage whose layers have experts; those of one device, each with matrices of its own."""

    sizes: ExpertSizes

    def __init__(self, sizes: ExpertSizes) -> None:
        super().__init__(sizes)
        tokens = sizes.tokens * sizes.batch
        first = torch.arange(tokens)[:, None] * sizes.choices
        self.chosen = torch.zeros(tokens, sizes.experts, dtype=torch.bool)
        self.chosen.scatter_(1, (first + torch.arange(sizes.choices)) % sizes.experts, True)
        self.dispatchers = [Dispatcher(sizes, self.device) for _ in self.layers]

    def shapes(self) -> list[tuple[int, ...]]:
        n: ExpertSizes = self.sizes
        own = n.experts // n.devices
        shared = [(2 * n.shared, n.hidden), (n.hidden, n.shared)] if n.shared else []
        routed = [*[(2 * n.ffn, n.hidden)] * own, *[(n.hidden, n.ffn)] * own]
        return [*super().shapes()[:4], (n.experts, n.hidden), *routed, *shared]

    def layer(self, weights: list[Tensor], x: Tensor) -> Tensor:
        number = next(i for i, own in enumerate(self.layers) if own is weights)
        x = x + self.attention(x, *weights[:3])
        n = Norm.apply(x, weights[3], self.device)
        return x + self.moe(self.dispatchers[number], n, *weights[4:])

    def router(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """Source: megatron/core/transformer/moe/router.py, TopKRouter."""
        logits = Router.apply(hidden, weight, self.device)
        return Scores.apply(logits.view(-1, logits.shape[-1]), self.chosen, self.sizes.sigmoid, self.device)

    def experts(self, hidden: Tensor, probs: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
        """Source: megatron/core/transformer/moe/experts.py, TEGroupedMLP."""
        half = len(weights) // 2
        probs = probs.unsqueeze(-1)
        inner = Grouped.apply(hidden, "fc1", self.device, *weights[:half])
        inner = WeightedSwiGLU.apply(inner, probs, self.device)
        return Grouped.apply(inner, "fc2", self.device, *weights[half:])

    def shared_expert(self, hidden: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        """Source: megatron/core/transformer/moe/shared_experts.py, SharedExpertMLP."""
        return RowLinear.apply(SwiGLU.apply(RowLinear.apply(hidden, w1, "shared1", self.device), self.device), w2, "shared2", self.device)

    def moe(self, dispatcher: Dispatcher, hidden: Tensor, router: Tensor, *weights: Tensor) -> Tensor:
        """Source: megatron/core/transformer/moe/moe_layer.py, MoELayer.forward."""
        own = 2 * (self.sizes.experts // self.sizes.devices)

        def router_and_preprocess(hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            residual = hidden
            probs = self.router(hidden, router)
            hidden, probs = dispatcher.preprocess(hidden, probs, self.chosen)
            return hidden, probs, residual

        def compute(hidden: Tensor, probs: Tensor, residual: Tensor) -> tuple[Tensor, Tensor | None]:
            shared = self.shared_expert(residual, *weights[own:]) if self.sizes.shared else None
            dispatched, permuted = dispatcher.postprocess(hidden, probs)
            expert_output = self.experts(dispatched, permuted, weights[:own])
            output = dispatcher.combine_preprocess(expert_output)
            return output, shared

        def combine(output: Tensor, shared: Tensor | None) -> Tensor:
            output = dispatcher.combine(output)
            output = dispatcher.combine_postprocess(output)
            return output if shared is None else output + shared

        def custom_forward(hidden: Tensor) -> Tensor:
            hidden, probs, residual = router_and_preprocess(hidden)
            dispatched, probs = dispatcher.dispatch(hidden, probs)
            output, shared = compute(dispatched, probs, residual)
            return combine(output, shared)

        return custom_forward(hidden)
