"""One layer of a transformer in PyTorch, and what autograd keeps of it: GPT's and Llama's, as they are usually written.

A layer reads the stream, (batch, tokens, hidden), and gives the new one. What it is built from is what frameworks build it from, so that
what is kept is PyTorch's doing; tests/reality/test_model_activations_torch.py compares it with what the programs of
``placeproof.models`` say.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from placeproof.measure.memory import Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSizes:
    """Elements along each dimension of a layer. ``limit``: the most tokens of a sample, for which tables are made."""

    heads: int
    kv_heads: int
    width: int
    ffn: int
    limit: int

    @property
    def hidden(self) -> int:
        """Elements of a token in the stream."""
        return self.heads * self.width


# Attention.


class CoreAttention(nn.Module):
    """Attention between queries, keys and values, written out: scores, mask, softmax, dropout, product."""

    future: Tensor

    def __init__(self, sizes: LayerSizes, dropout: float) -> None:
        super().__init__()
        self.scale, self.groups = sizes.width**-0.5, sizes.heads // sizes.kv_heads
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("future", torch.ones(sizes.limit, sizes.limit, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(batch, heads, tokens, width) of queries and (batch, kv_heads, tokens, width) of keys and values to the former."""
        if self.groups > 1:
            k, v = (x.repeat_interleave(self.groups, dim=1) for x in (k, v))
        tokens = q.shape[2]
        scores = q @ k.transpose(-2, -1) * self.scale
        scores = scores.masked_fill(self.future[:tokens, :tokens], float("-inf"))
        out: Tensor = self.dropout(scores.softmax(dim=-1)) @ v
        return out


class FusedAttention(nn.Module):
    """The same by PyTorch's own function, which chooses a kernel."""

    def __init__(self, sizes: LayerSizes, dropout: float) -> None:
        super().__init__()
        self.dropout, self.groups = dropout, sizes.heads // sizes.kv_heads

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Shapes are those of :class:`CoreAttention`."""
        dropout = self.dropout if self.training else 0.0
        out: Tensor = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=self.groups > 1)
        return out


class Attention(nn.Module):
    """Projections round a core. ``recompute``: the core is a checkpoint (Korthikanti et al. 2022, section 5)."""

    def __init__(self, sizes: LayerSizes, core: nn.Module, *, bias: bool, recompute: bool) -> None:
        super().__init__()
        self.core, self.recompute, self.width = core, recompute, sizes.width
        narrow = sizes.kv_heads * sizes.width
        self.wq = nn.Linear(sizes.hidden, sizes.hidden, bias=bias)
        self.wk = nn.Linear(sizes.hidden, narrow, bias=bias)
        self.wv = nn.Linear(sizes.hidden, narrow, bias=bias)
        self.wo = nn.Linear(sizes.hidden, sizes.hidden, bias=bias)

    def forward(self, n: Tensor) -> Tensor:
        """(batch, tokens, hidden) to the same."""
        q, k, v = (w(n).unflatten(-1, (-1, self.width)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = self.placed(q), self.placed(k)
        o = checkpoint(self.core, q, k, v, use_reentrant=False) if self.recompute else self.core(q, k, v)
        out: Tensor = self.wo(o.transpose(1, 2).flatten(2))
        return out

    def placed(self, x: Tensor) -> Tensor:
        """Queries or keys that know their positions; here they do already."""
        return x


class RotaryAttention(Attention):
    """Attention whose queries and keys are turned by their positions (Su et al. 2021, section 3.4), half of a head against half."""

    cos: Tensor
    sin: Tensor

    def __init__(self, sizes: LayerSizes, core: nn.Module, *, recompute: bool) -> None:
        super().__init__(sizes, core, bias=False, recompute=recompute)
        half = torch.arange(sizes.width // 2) / (sizes.width // 2)
        angle = torch.outer(torch.arange(sizes.limit), 10_000.0**-half).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def placed(self, x: Tensor) -> Tensor:
        """(batch, heads, tokens, width), turned."""
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        first, second = x.chunk(2, dim=-1)
        out: Tensor = x * cos + torch.cat((-second, first), dim=-1) * sin
        return out


# Layers.


class GptLayer(nn.Module):
    """Layer norm, attention, layer norm, GELU, with biases, and dropout of what each of both adds (Radford et al. 2019, section 2.3)."""

    def __init__(self, sizes: LayerSizes, *, fused: bool, dropout: float = 0.0, core_dropout: float = 0.0, recompute: bool = False) -> None:
        super().__init__()
        core = FusedAttention(sizes, core_dropout) if fused else CoreAttention(sizes, core_dropout)
        self.norm1, self.norm2 = nn.LayerNorm(sizes.hidden), nn.LayerNorm(sizes.hidden)
        self.attention = Attention(sizes, core, bias=True, recompute=recompute)
        self.up, self.down = nn.Linear(sizes.hidden, sizes.ffn), nn.Linear(sizes.ffn, sizes.hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, hidden) to the same."""
        x = x + self.dropout(self.attention(self.norm1(x)))
        out: Tensor = x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))
        return out


class WrittenRmsNorm(nn.Module):
    """The root-mean-square norm as Llama's code has it: in fp32, and cast back before the gain."""

    def __init__(self, hidden: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to the same."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.type_as(x)


class LlamaLayer(nn.Module):
    """RMS norm, attention with grouped heads and rotary positions, RMS norm, SwiGLU, without biases (Touvron et al. 2023, section 2.2)."""

    def __init__(self, sizes: LayerSizes, *, fused: bool, written_norm: bool = False, recompute: bool = False) -> None:
        super().__init__()
        norm = WrittenRmsNorm if written_norm else nn.RMSNorm
        core = FusedAttention(sizes, 0.0) if fused else CoreAttention(sizes, 0.0)
        self.norm1, self.norm2 = norm(sizes.hidden), norm(sizes.hidden)
        self.attention = RotaryAttention(sizes, core, recompute=recompute)
        self.gate, self.up = (nn.Linear(sizes.hidden, sizes.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.ffn, sizes.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, hidden) to the same."""
        x = x + self.attention(self.norm1(x))
        n = self.norm2(x)
        out: Tensor = x + self.down(functional.silu(self.gate(n)) * self.up(n))
        return out


# What is kept.


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """Bytes of each storage, in increasing order, parameters apart.

    ``saved``: what the graph keeps when forward is done. ``beside``: what else lives then, held by Python objects of the graph. ``again``:
    what a recomputation has made and left for backward, which begins there: while it runs, it lives beside ``saved``.
    """

    saved: tuple[int, ...]
    beside: tuple[int, ...]
    again: tuple[int, ...]


class _Storages(Kept):
    """What is kept, storage by storage. ``seen``: all that ever were, held so that no address comes twice."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, torch.UntypedStorage] = {}

    def _pack(self, tensor: Tensor) -> Any:
        storage = tensor.untyped_storage()
        self.seen[storage._cdata] = storage
        return super()._pack(tensor)

    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted(size for size, _ in self._alive.values()))

    def known(self) -> set[int]:
        return {*self.seen, *self._parameters}


class _Again(TorchDispatchMode):
    """Storages that a module's forward makes, and those of them that live at the first operation behind it: what backward needs.

    ``known``: storages that were there before, of which an operation only makes views.
    """

    def __init__(self, module: nn.Module, known: Collection[int]) -> None:
        super().__init__()
        self.module, self.known, self.inside = module, known, False
        self.made: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.sizes: tuple[int, ...] = ()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the module until the block ends. A checkpoint stops its forward early, by an exception."""
        handles = [
            self.module.register_forward_pre_hook(lambda *_: setattr(self, "inside", True)),
            self.module.register_forward_hook(lambda *_: setattr(self, "inside", False), always_call=True),
        ]
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if self.made and not self.inside:
            alive = (storage for made in self.made.values() if (storage := made()) is not None)
            self.sizes = tuple(sorted(storage.nbytes() for storage in alive))
            self.made = {}
        result = func(*args, **(kwargs or {}))
        if self.inside:
            storages = [t.untyped_storage() for t in tree_leaves(result) if isinstance(t, Tensor)]
            self.made |= {s._cdata: weakref.ref(s) for s in storages if s._cdata not in self.known}
        return result


def measure_layer(layer: GptLayer | LlamaLayer, x: Tensor, *, full: bool = False, keep_random: bool = True) -> LayerMemory:
    """Run forward and backward of a layer once, and tell what is kept in between.

    ``x``: the stream, (batch, tokens, hidden). ``full``: the whole layer is a checkpoint, which keeps the state of random numbers or not,
    as ``keep_random`` says; not together with a core that is one already. What is kept is told by hooks of autograd; what is computed
    again, which hooks do not see, by the lifetimes of the storages that operations make.
    """
    kept = _Storages()
    checkpoints = full or layer.attention.recompute
    before = {id(t): t for t in _tensors()} if checkpoints else {}  # held, so that no id comes twice
    with kept.watching([layer]):
        y = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=keep_random) if full else layer(x)
    saved = kept.sizes()
    beside = [t for t in _tensors() if id(t) not in before and t is not y] if checkpoints else []
    others = {s._cdata: s.nbytes() for s in (t.untyped_storage() for t in beside) if s._cdata not in kept.known()}
    del beside
    again = _Again(layer if full else layer.attention.core, kept.known())
    with again.watching():
        y.sum().backward()
    return LayerMemory(saved=saved, beside=tuple(sorted(others.values())), again=again.sizes if checkpoints else ())


def _tensors() -> list[Tensor]:
    """Every tensor that Python knows of."""
    return [each for each in gc.get_objects() if type(each) is Tensor]
