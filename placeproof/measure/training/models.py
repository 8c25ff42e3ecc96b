"""Torch modules of concrete shapes: what a measured step trains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from placeproof.core.diagnostics import Problems
from placeproof.core.shapes import Shapes, Unit, Weight
from placeproof.measure.training.subjects import is_decoder


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a model that a pipeline stage holds: some of the units other than the root, and which end of the root."""

    units: range
    first: bool
    last: bool


def whole(shapes: Shapes) -> Piece:
    """All of the model."""
    return Piece(range(1, len(shapes.units)), first=True, last=True)


class Model(nn.Module):
    """What every measured model is: a root module, and units of it that can be wrapped, in the order of forward."""

    _units: tuple[str, ...]

    def parts(self) -> Iterator[nn.Module]:
        """The modules of the units other than the root, in the order of forward."""
        return (self.get_submodule(name) for name in self._units)


def build(shapes: Shapes, piece: Piece | None = None) -> Model:
    """The decoder where the shapes are those of :func:`placeproof.core.shapes.transformer`, a stack otherwise."""
    return decoder(shapes, piece) if is_decoder(shapes) else stack(shapes, piece)


def check(shapes: Shapes, module: nn.Module) -> None:
    """Raise InputError where the module's parameters are not, by name and shape, the weights of the shapes."""
    expected = {w.name: w.shape for w in shapes.weights}
    shapes_there = {name: tuple(p.shape) for name, p in module.named_parameters()}
    problems = Problems()
    for name in sorted(expected.keys() | shapes_there.keys()):
        if expected.get(name) != shapes_there.get(name):
            wanted, got = (f"shape {s}" if s is not None else "nothing" for s in (expected.get(name), shapes_there.get(name)))
            problems.add(
                "PP202", f"weight `{name}`: the shapes say {wanted}, the module has {got}", help="describe the module that is measured"
            )
    problems.raise_if_any()


def stream_shape(shapes: Shapes) -> tuple[int, int, int]:
    """(batch, tokens, hidden) of what flows from unit to unit; a dimension that the shapes do not name is 1."""
    dims = dict(shapes.dims)
    return dims.get("batch", 1), dims.get("tokens", 1), dims.get("hidden", 1)


# Any weights of any shape.


class _Unit(nn.Module):
    """Adds the mean square of each of its weights to the stream.

    The gradient of a weight needs the weight, so that backward reads parameters as it does in real models; nothing else is kept.
    """

    def __init__(self, weights: Iterable[tuple[str, tuple[int, ...]]], used: Sequence[str]) -> None:
        """Registers weights in their order; forward uses them in that of ``used``, which names them and may name others."""
        super().__init__()
        parameters = {name: _register(self, name, shape) for name, shape in weights}
        self._used = [parameters[name] for name in used if name in parameters]

    def forward(self, x: Tensor) -> Tensor:
        """The stream (any shape) plus one number for each weight."""
        return self._add(x, self._used)

    def _add(self, x: Tensor, weights: Iterable[tuple[str, str]]) -> Tensor:
        for path, name in weights:
            x = x + getattr(self.get_submodule(path), name).square().mean()
        return x


class Stack(_Unit, Model):
    """Units in a row, each weight used in the order that the shapes say; those of the root before the units or after them."""

    def __init__(self, shapes: Shapes, piece: Piece) -> None:
        begin, end = shapes.ends
        registered = {*(begin if piece.first else ()), *(end if piece.last else ())}
        super().__init__([(w.name, w.shape) for w in shapes.units[0].weights if w.name in registered], (*begin, *end))
        self._begin = len(begin) if piece.first else 0
        self._units = tuple(shapes.units[i].name for i in piece.units)
        names = [w.name for w in shapes.by_use]
        for i in piece.units:
            unit = shapes.units[i]
            prefix = unit.name + "."
            made = _Unit(((w.name.removeprefix(prefix), w.shape) for w in unit.weights), [n.removeprefix(prefix) for n in names])
            _place(self, unit.name, made)

    def forward(self, x: Tensor) -> Tensor:
        """The stream after all units; its shape does not change."""
        x = self._add(x, self._used[: self._begin])
        for part in self.parts():
            x = part(x)
        return self._add(x, self._used[self._begin :])


def stack(shapes: Shapes, piece: Piece | None = None) -> Model:
    """A module with exactly these weights, each used once, in the order in which they are listed.

    Raises InputError for a weight without a dimension or an element, a name that is not below its unit's, or one that occurs twice.
    """
    problems = Problems()
    seen: set[str] = set()
    for unit in shapes.units:
        for weight in unit.weights:
            _check_weight(unit, weight, unit is shapes.units[0], seen, problems)
    if not _in_a_row(shapes):
        message = f"{shapes.name} uses weights of one unit among those of another, which no row of units does"
        problems.add("PP202", message, help="leave out `used`, or name units in it instead of their parameters")
    problems.raise_if_any()
    return Stack(shapes, piece or whole(shapes))


def _in_a_row(shapes: Shapes) -> bool:
    """Whether units other than the root are used one after the other, in their order, and the root before and after them alone."""
    place = {w.name: at for at, unit in enumerate(shapes.units) for w in unit.weights}
    begin, end = shapes.ends
    names = [w.name for w in shapes.by_use]
    inner = [place[name] for name in names[len(begin) : len(names) - len(end)]]
    return inner == sorted(inner) and 0 not in inner


def _check_weight(unit: Unit, weight: Weight, root: bool, seen: set[str], problems: Problems) -> None:
    if not weight.shape or min(weight.shape) < 1:
        problems.add("PP202", f"weight `{weight.name}` has shape {weight.shape}", help="give it at least one dimension, each at least 1")
    if not root and not weight.name.startswith(unit.name + "."):
        problems.add(
            "PP202", f"weight `{weight.name}` is not of unit `{unit.name}` by its name", help=f"call it `{unit.name}.{weight.name}`"
        )
    if weight.name in seen:
        problems.add("PP202", f"two weights are called `{weight.name}`", help="give each a name of its own")
    seen.add(weight.name)


def _register(module: nn.Module, name: str, shape: tuple[int, ...]) -> tuple[str, str]:
    """A new parameter under a dotted name; where it can be found, as the path of its module and its own name."""
    path, _, leaf = name.rpartition(".")
    _path(module, path).register_parameter(leaf, nn.Parameter(torch.empty(shape)))
    return path, leaf


def _place(module: nn.Module, name: str, part: nn.Module) -> None:
    path, _, leaf = name.rpartition(".")
    _path(module, path).add_module(leaf, part)


def _path(module: nn.Module, path: str) -> nn.Module:
    """The submodule under a dotted path, made where it is missing."""
    for name in filter(None, path.split(".")):
        if name not in module._modules:
            module.add_module(name, nn.Module())
        module = module.get_submodule(name)
    return module


# The decoder.


class Layer(nn.Module):
    """Norm, attention, norm, gated feed-forward, each pair with a residual.

    ``attention_input`` and ``ffn_input`` do nothing: they are where tensor parallelism changes the layout of what several linear
    layers read. Heads are counted from what the linear layers return, so that each device computes the heads that it has.
    """

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        hidden, ffn, self.width = shapes.dim("hidden"), shapes.dim("ffn"), shapes.dim("width")
        narrow = shapes.dim("kv_heads") * self.width
        self.attention_norm = nn.LayerNorm(hidden, bias=False)
        self.wq = nn.Linear(hidden, hidden, bias=False)
        self.wk = nn.Linear(hidden, narrow, bias=False)
        self.wv = nn.Linear(hidden, narrow, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)
        self.ffn_norm = nn.LayerNorm(hidden, bias=False)
        self.w1 = nn.Linear(hidden, ffn, bias=False)
        self.w2 = nn.Linear(ffn, hidden, bias=False)
        self.w3 = nn.Linear(hidden, ffn, bias=False)
        self.attention_input = nn.Identity()
        self.ffn_input = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, hidden) to the same."""
        x = x + self.attention(self.attention_input(self.attention_norm(x)))
        y = self.ffn_input(self.ffn_norm(x))
        out: Tensor = x + self.w2(functional.silu(self.w1(y)) * self.w3(y))
        return out

    def attention(self, x: Tensor) -> Tensor:
        """Causal attention: (batch, tokens, hidden) to the same, with as many heads as ``wq`` returns here."""
        q, k, v = (w(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        out: Tensor = self.wo(y.transpose(1, 2).flatten(2))
        return out


class Decoder(Model):
    """Embedding, layers, norm, head; a piece of it has the embedding only if it is the first, norm and head only if the last."""

    def __init__(self, shapes: Shapes, piece: Piece) -> None:
        super().__init__()
        self._piece = piece
        hidden, vocab = shapes.dim("hidden"), shapes.dim("vocab")
        self._units = tuple(shapes.units[i].name for i in piece.units)
        if piece.first:
            self.embedding = nn.Embedding(vocab, hidden)
        if piece.last:
            self.norm = nn.LayerNorm(hidden, bias=False)
            self.head = nn.Linear(hidden, vocab, bias=False)
        self.layers = nn.ModuleDict({name.rpartition(".")[2]: Layer(shapes) for name in self._units})

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens) indices to (batch, tokens, vocab) logits; between stages (batch, tokens, hidden)."""
        if self._piece.first:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        if self._piece.last:
            x = self.head(self.norm(x))
        return x


def decoder(shapes: Shapes, piece: Piece | None = None) -> Model:
    """The decoder that the shapes of ``transformer`` describe; its parameters have their names, and are registered in their order."""
    return Decoder(shapes, piece or whole(shapes))
