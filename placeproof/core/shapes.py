"""The tensors of a concrete model: what exact bytes are counted from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter tensor. ``shape`` is that of the whole tensor, in elements.

    ``split``: the dimension that an axis which splits the hidden dimension divides; None where each of its devices has it all.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements of the whole tensor."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is gathered at once: the weights of one wrapped module, in the order in which they are registered.

    ``blocks``: the blocks that it computes, by the names of their programs.
    """

    name: str
    weights: tuple[Weight, ...]
    blocks: tuple[str, ...] = ()

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return sum(w.elements for w in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """A concrete model. The first unit is the root: what no other unit wraps; the others are in the order of forward.

    ``dims``: sizes by name, as the programs of its blocks call them (``batch``, ``tokens``, ``hidden``, ...).
    """

    name: str
    units: tuple[Unit, ...]
    dims: tuple[tuple[str, int], ...] = ()

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return sum(u.elements for u in self.units)

    @property
    def weights(self) -> Iterator[Weight]:
        """Every parameter tensor, unit by unit."""
        return (w for u in self.units for w in u.weights)

    def dim(self, name: str) -> int:
        """The size of a named dimension; raises KeyError."""
        return dict(self.dims)[name]


def transformer(
    *,
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocab: int,
    batch: int,
    tokens: int,
    kv_heads: int | None = None,
) -> Shapes:
    """A decoder without biases: norm, attention, norm, gated feed-forward; embedding, last norm and head in the root unit.

    Weights of linear layers are (output, input), as PyTorch keeps them. ``batch`` and ``tokens`` are those of one forward pass on
    one device. Raises ValueError where heads do not divide the hidden size, or key-value heads the heads.
    """
    kv = kv_heads or heads
    if hidden % heads or heads % kv:
        raise ValueError(f"hidden size {hidden}, {heads} heads and {kv} key-value heads do not divide one another")
    width = kv * (hidden // heads)
    layer = (
        ("attention_norm.weight", (hidden,), None),
        ("wq.weight", (hidden, hidden), 0),
        ("wk.weight", (width, hidden), 0),
        ("wv.weight", (width, hidden), 0),
        ("wo.weight", (hidden, hidden), 1),
        ("ffn_norm.weight", (hidden,), None),
        ("w1.weight", (ffn, hidden), 0),
        ("w2.weight", (hidden, ffn), 1),
        ("w3.weight", (ffn, hidden), 0),
    )
    root = (("embedding.weight", (vocab, hidden), 0), ("norm.weight", (hidden,), None), ("head.weight", (vocab, hidden), 0))

    def unit(name: str, prefix: str, rows: tuple[tuple[str, tuple[int, ...], int | None], ...], blocks: tuple[str, ...]) -> Unit:
        return Unit(name=name, weights=tuple(Weight(name=prefix + n, shape=s, split=d) for n, s, d in rows), blocks=blocks)

    return Shapes(
        name=f"transformer, {layers} layers of {hidden}",
        units=(
            unit("root", "", root, ("embedding", "norm", "head")),
            *(unit(f"layers.{i}", f"layers.{i}.", layer, ("norm", "attention", "norm", "feed_forward")) for i in range(layers)),
        ),
        dims=(
            ("layers", layers),
            ("hidden", hidden),
            ("heads", heads),
            ("kv_heads", kv),
            ("width", hidden // heads),
            ("ffn", ffn),
            ("vocab", vocab),
            ("batch", batch),
            ("tokens", tokens),
        ),
    )
