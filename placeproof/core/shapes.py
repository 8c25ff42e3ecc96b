"""The tensors of a concrete model: what exact bytes are counted from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from placeproof.core.diagnostics import refuse

#: Types of buffers with the bytes of an element; 0: as many as an element of the weights has.
BUFFER_TYPES = {
    "dtype": 0,
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


#: Types of parameters with the bytes of an element.
WEIGHT_TYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter tensor. ``shape`` is that of the whole tensor, in elements.

    ``split``: the dimension that an axis which splits the hidden dimension divides; None where each of its devices has it all.
    ``dtype``: the name of its element type, a key of :data:`WEIGHT_TYPES`; empty where whoever asks says it. ``trained``: whether it
    requires a gradient; ``idle``: it does, and a step gives it none.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    dtype: str = ""
    trained: bool = True
    idle: bool = False

    @property
    def elements(self) -> int:
        """Number of elements of the whole tensor."""
        return prod(self.shape)

    @property
    def learns(self) -> bool:
        """Whether a step gives it a gradient."""
        return self.trained and not self.idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What is gathered at once: the weights of one wrapped module, in the order in which they are registered.

    ``blocks``: the blocks that it computes, by the names of their programs. ``backward``: whether backward comes to it, as what it makes
    requires a gradient.
    """

    name: str
    weights: tuple[Weight, ...]
    blocks: tuple[str, ...] = ()
    backward: bool = True

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return sum(w.elements for w in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """A concrete model. The first unit is the root: what no other unit wraps; the others are in the order of forward.

    ``dims``: sizes by name, as the programs of its blocks call them (``batch``, ``tokens``, ``hidden``, ...). ``used``: the names of all
    weights that learn so that their gradients become ready in the reverse order, None where that is not known; see :attr:`by_use` for what
    holds
    where it is empty. ``buffers``: elements of what the model registers beside its weights, by their type, where "dtype" is that of the
    weights; None where that is not known. ``registered``: the names of all weights in the order in which the model registers them, empty
    for that of the units, None where it is not known. ``notes``: what else is to be said of what is counted from them.
    """

    name: str
    units: tuple[Unit, ...]
    dims: tuple[tuple[str, int], ...] = ()
    used: tuple[str, ...] | None = ()
    buffers: tuple[tuple[str, int], ...] | None = ()
    registered: tuple[str, ...] | None = ()
    notes: tuple[str, ...] = ()

    @property
    def elements(self) -> int:
        """Number of parameters."""
        return sum(u.elements for u in self.units)

    @property
    def weights(self) -> Iterator[Weight]:
        """Every parameter tensor, unit by unit."""
        return (w for u in self.units for w in u.weights)

    @property
    def by_use(self) -> list[Weight]:
        """Every weight in the order in which forward uses them first: as ``used`` says; otherwise those of the root but the last, then the
        other units, each in its own order, then the last one of the root. Raises InputError where it is not known."""
        if self.used is None:
            message = f"in which order {self.name} uses its parameters is not known, and what is exchanged here depends on it"
            refuse("PP203", message, help="say `used` in a file of shapes, which `--shapes-to FILE` writes")
        if self.used:
            every = {w.name: w for w in self.weights}
            named = [every[name] for name in self.used if name in every]
            return [*named, *(w for w in self.weights if w.name not in self.used)]  # those get no gradient
        root, *others = self.units
        return [*root.weights[:-1], *(w for unit in others for w in unit.weights), *root.weights[-1:]]

    @property
    def by_registration(self) -> list[Weight]:
        """Every weight in the order in which the model registers them. Raises InputError where it is not known."""
        if self.registered is None:
            message = f"in which order {self.name} registers its parameters is not known, and what is exchanged here depends on it"
            refuse("PP203", message, help="say `registered` in a file of shapes, which `placeproof shapes` writes for a training script")
        every = {w.name: w for w in self.weights}
        return [every[name] for name in self.registered] if self.registered else list(every.values())

    @property
    def plain(self) -> bool:
        """Whether all weights learn, and are of the type that whoever asks says."""
        return all(w.learns and not w.dtype for w in self.weights) and all(u.backward for u in self.units)

    @property
    def ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the root's weights that are used before the other units, and of those that are used later; where there are no
        others, all but the last, and the last."""
        names, root = [w.name for w in self.by_use], {w.name for w in self.units[0].weights}
        first = next((at for at, name in enumerate(names) if name not in root), max(0, len(names) - 1))
        return tuple(names[:first]), tuple(name for name in names[first:] if name in root)

    def dim(self, name: str) -> int:
        """The size of a named dimension; raises KeyError."""
        return dict(self.dims)[name]


def _unit(name: str, prefix: str, rows: Iterable[tuple[str, tuple[int, ...], int | None]], blocks: tuple[str, ...]) -> Unit:
    """A unit of weights, each with its name behind the prefix, its shape, and the dimension that tensor parallelism divides."""
    return Unit(name=name, weights=tuple(Weight(name=prefix + n, shape=s, split=d) for n, s, d in rows), blocks=blocks)


#: Each is a unit of its own, with its parameters.
MOST_LAYERS = 10_000


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
    used = ("attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w3", "w2")
    return Shapes(
        name=f"transformer, {layers} layers of {hidden}",
        units=(
            _unit("root", "", root, ("embedding", "norm", "head")),
            *(_unit(f"layers.{i}", f"layers.{i}.", layer, ("norm", "attention", "norm", "feed_forward")) for i in range(layers)),
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
        used=("embedding.weight", *(f"layers.{i}.{n}.weight" for i in range(layers) for n in used), "norm.weight", "head.weight"),
    )
