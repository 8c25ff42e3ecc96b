"""Models of plain modules in PyTorch, and what lies in memory while autograd runs them: every storage, after every operation.

They are written as transformers and torch.nn write them, and know nothing of placeproof. Not counted: weights and their gradients, as far
as a weight keeps them; tables of positions and masks, which are there once; ids, targets and positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A model. ``gpt``: layer norms, biases and GELU; else RMS norms, grouped heads that are turned, and a gate."""

    gpt: bool = False
    fused: bool = True
    tied: bool = False
    dropout: float = 0.0
    wide: bool = True
    layers: int = 2
    batch: int = 2
    tokens: int = 16
    kv_heads: int = 2
    group: int = 2
    width: int = 8
    ffn: int = 80
    vocab: int = 64

    @property
    def hidden(self) -> int:
        """Elements of a token in the stream."""
        return self.kv_heads * self.group * self.width

    @property
    def dtype(self) -> torch.dtype:
        """The type of all weights."""
        return torch.float32 if self.wide else torch.bfloat16


class RootMeanSquare(nn.Module):
    """In fp32, cast back before the gain."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        kind = x.dtype
        x = x.to(torch.float32)
        square = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(square + 1e-5)
        return self.gain * x.to(kind)


def swapped(x: Tensor) -> Tensor:
    """Both halves of each head, the second one with another sign."""
    first = x[..., : x.shape[-1] // 2]
    second = x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys by their positions."""
    return (q * cos) + (swapped(q) * sin), (k * cos) + (swapped(k) * sin)


def repeated(x: Tensor, times: int) -> Tensor:
    """(batch, heads, tokens, width) for as many heads more."""
    if times == 1:
        return x
    batch, heads, tokens, width = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, times, tokens, width)
    return x.reshape(batch, heads * times, tokens, width)


class Grouped(nn.Module):
    """Attention of heads that share keys and values."""

    cos: Tensor
    sin: Tensor
    mask: Tensor

    def __init__(self, n: Sizes) -> None:
        super().__init__()
        self.n = n
        narrow = n.kv_heads * n.width
        self.q, self.k, self.v = (nn.Linear(n.hidden, size, bias=False) for size in (n.hidden, narrow, narrow))
        self.o = nn.Linear(n.hidden, n.hidden, bias=False)
        angle = torch.outer(torch.arange(n.tokens), 10_000.0 ** -torch.linspace(0, 1, n.width // 2)).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("mask", torch.full((1, 1, n.tokens, n.tokens), -1e9).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], -1, self.n.width)
        q = self.q(x).view(shape).transpose(1, 2)
        k = self.k(x).view(shape).transpose(1, 2)
        v = self.v(x).view(shape).transpose(1, 2)
        q, k = turned(q, k, self.cos, self.sin)
        o = self.fused(q, k, v) if self.n.fused else self.written(q, k, v)
        o = o.reshape(*x.shape[:-1], -1).contiguous()
        out: Tensor = self.o(o)
        return out

    def fused(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.n.group > 1)
        return o.transpose(1, 2).contiguous()

    def written(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = repeated(k, self.n.group), repeated(v, self.n.group)
        p = torch.matmul(q, k.transpose(2, 3)) * self.n.width**-0.5
        p = p + self.mask
        p = functional.softmax(p, dim=-1, dtype=torch.float32).to(q.dtype)
        o = torch.matmul(p, v)
        return o.transpose(1, 2).contiguous()


class Gated(nn.Module):
    """The feed-forward block with a gate."""

    def __init__(self, n: Sizes) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(n.hidden, n.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(n.ffn, n.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(functional.silu(self.gate(x)) * self.up(x))
        return out


class Plain(nn.Module):
    """Attention of torch.nn's parts, with biases."""

    future: Tensor

    def __init__(self, n: Sizes) -> None:
        super().__init__()
        self.n = n
        self.qkv, self.o = nn.Linear(n.hidden, 3 * n.hidden), nn.Linear(n.hidden, n.hidden)
        self.register_buffer("future", torch.ones(n.tokens, n.tokens, dtype=torch.bool).triu(1))
        self.drop = nn.Dropout(n.dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (piece.unflatten(-1, (-1, self.n.width)).transpose(1, 2) for piece in self.qkv(x).chunk(3, dim=-1))
        if self.n.fused:
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) * self.n.width**-0.5
            scores = scores.masked_fill(self.future, float("-inf"))
            o = self.drop(scores.softmax(-1)) @ v
        out: Tensor = self.o(o.transpose(1, 2).flatten(2))
        return out


class Twice(nn.Module):
    """The feed-forward block with GELU and biases."""

    def __init__(self, n: Sizes) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(n.hidden, n.ffn), nn.Linear(n.ffn, n.hidden)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(functional.gelu(self.up(x)))
        return out


class Layer(nn.Module):
    """Attention and a feed-forward block, each behind a norm and beside the stream."""

    def __init__(self, n: Sizes) -> None:
        super().__init__()
        norm, attention, forward = (nn.LayerNorm, Plain, Twice) if n.gpt else (RootMeanSquare, Grouped, Gated)
        self.norm1, self.attention, self.norm2, self.mlp = norm(n.hidden), attention(n), norm(n.hidden), forward(n)
        self.drop = nn.Dropout(n.dropout)

    def forward(self, x: Tensor) -> Tensor:
        before = x
        x = self.norm1(x)
        x = self.attention(x)
        x = self.drop(x)
        x = before + x
        before = x
        x = self.norm2(x)
        x = self.mlp(x)
        x = self.drop(x)
        return before + x


class Model(nn.Module):
    """Layers between an embedding and a head, with its loss."""

    def __init__(self, n: Sizes) -> None:
        super().__init__()
        self.n = n
        self.table = nn.Embedding(n.vocab, n.hidden)
        self.places = nn.Embedding(n.tokens, n.hidden) if n.gpt else None
        self.layers = nn.ModuleList(Layer(n) for _ in range(n.layers))
        self.norm = nn.LayerNorm(n.hidden) if n.gpt else RootMeanSquare(n.hidden)
        self.head = nn.Linear(n.hidden, n.vocab, bias=False)
        if n.tied:
            self.head.weight = self.table.weight
        self.drop = nn.Dropout(n.dropout)
        self.to(n.dtype)

    def stream(self, ids: Tensor, where: Tensor) -> Tensor:
        """What the head reads."""
        x = self.table(ids)
        if self.places is not None:
            x = self.drop(x + self.places(where))
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.norm(x)
        return out

    def forward(self, ids: Tensor, where: Tensor, target: Tensor) -> Tensor:
        logits = self.head(self.stream(ids, where))
        wide = logits.float()
        return functional.cross_entropy(wide.view(-1, self.n.vocab), target.view(-1))


class Watch(TorchDispatchMode):
    """The storages that live after each operation, by numbers that come once, with their bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.bytes: dict[int, int] = {}
        self.trail: list[tuple[str, frozenset[int]]] = []
        self.shapes: list[tuple[int, ...]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch's compiler is imported, which takes seconds

    def known(self, tensors: Iterable[Tensor]) -> None:
        """Tensors that are not counted."""
        self._see(tensors, counted=False)

    def numbers(self, tensors: Iterable[Tensor]) -> set[int]:
        """Of tensors that live."""
        return {self.live[StorageWeakRef(t.untyped_storage()).cdata][1] for t in tensors}

    def _see(self, tensors: Iterable[Tensor], *, counted: bool = True) -> None:
        self.live = {key: pair for key, pair in self.live.items() if not pair[0].expired()}
        for tensor in tensors:
            reference = StorageWeakRef(tensor.untyped_storage())
            if reference.cdata not in self.live:
                number = len(self.bytes)
                self.live[reference.cdata] = reference, number
                self.bytes[number] = tensor.untyped_storage().nbytes() if counted else 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._see(t for t in tree_leaves(result) if isinstance(t, Tensor))
        self.shapes.append(tuple(result.shape) if isinstance(result, Tensor) else ())
        self.trail.append((str(func), frozenset(number for _, number in self.live.values())))
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Bytes of a step: ``kept`` when forward is over, the loss apart, and the ``most`` in backward, at ``where``; ``forward``: the most
    before that. ``model``: what was run."""

    kept: int
    most: int
    where: str
    forward: int
    model: Model


def step(n: Sizes, *, micro: int = 1) -> Step:
    """The last one of ``micro`` micro-batches of random data, whose gradients are added up."""
    torch.manual_seed(0)
    model, watch = Model(n), Watch()
    ids, target = (torch.randint(n.vocab, (n.batch, n.tokens)) for _ in range(2))
    where = torch.arange(n.tokens)
    for _ in range(micro - 1):
        model(ids, where, target).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    watch.known([*model.parameters(), *model.buffers(), *gradients, ids, target, where])
    del gradients
    own: set[int] = set()
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(lambda w: own.update(watch.numbers([w.grad])))
    with watch:
        loss = model(ids, where, target)
        torch.ones_like(loss)  # so that what is kept is seen once more
        begin = len(watch.trail)
        loss.backward()
    if (
        n.tied and micro == 1
    ):  # what the head gives for the table waits for what the embedding gives, and is then added to it: where the step keeps it
        own |= watch.trail[first := watch.shapes.index((n.vocab, n.hidden), begin)][1] - watch.trail[first - 1][1]
    sums = [sum(watch.bytes[number] for number in live - own) for _, live in watch.trail]
    most = max(range(begin, len(sums)), key=sums.__getitem__)
    scalars = loss.untyped_storage().nbytes() * 2  # the loss, and the ones like it
    return Step(kept=sums[begin - 1] - scalars, most=sums[most], where=watch.trail[most][0], forward=max(sums[:begin]), model=model)
