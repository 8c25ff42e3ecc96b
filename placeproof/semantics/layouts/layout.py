"""How a tensor lies on the mesh: data, and questions about it. What operations make of it says :mod:`.operations`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from placeproof.programs import POSITIONS
from placeproof.programs.ir import Tensor

#: On one axis a tensor is a partial sum. Otherwise it is split by a dimension, whose name stands there, or replicated: None.
PARTIAL = "+"
AxisState = str | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sharding:
    """Which part of a tensor a device has.

    ``split``: the dimensions of which it has its part alone, each with the axes that split it, the outermost first. ``loose``:
    dimensions along which nothing is stored, because any element can be computed on the spot: any part is there. ``picks``: the
    elements are positions along that dimension; None for numbers.
    """

    split: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    picks: str | None = None

    def split_by(self, axis: str) -> tuple[str, ...]:
        """The dimensions that an axis splits."""
        return tuple(d for d, axes in self.split.items() if axis in axes)

    def cut_alike(self, other: Sharding) -> bool:
        """Whether a device has the same part of both, where their dimensions are the same."""
        return (dict(self.split), self.loose, self.picks) == (dict(other.split), other.loose, other.picks)


def in_words(dims: Collection[str]) -> str:
    """Dimensions, for a message."""
    return "the dimensions " + ", ".join(f"`{d}`" for d in sorted(dims)) if dims else "no dimension"


class Source(Enum):
    """What a value can depend on, apart from weights and numbers."""

    ACTIVATION = "an activation"
    GRADIENT = "a gradient that comes in"
    POSITIONS = "which position another one is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Sharding):
    """What a device holds of a tensor. Without dimensions it is a number.

    ``partial``: the axes over which its numbers are only summands. ``dense``: those of the loose dimensions along which there is
    something everywhere, which is stored. ``hot``: it is 1 at the position along that dimension which is picked, and 0 elsewhere.
    ``sources``: what it depends on; nothing, if it belongs to the model or is made of such tensors alone.
    """

    dims: tuple[str, ...] = ()
    partial: frozenset[str] = frozenset()
    dense: frozenset[str] = frozenset()
    hot: str | None = None
    sources: frozenset[Source] = frozenset()

    @property
    def model(self) -> bool:
        """Whether it belongs to the model, or is made of weights and numbers alone."""
        return not self.sources

    @property
    def states(self) -> dict[str, AxisState]:
        """How it lies on the axes on which it is not replicated."""
        states: dict[str, AxisState] = dict.fromkeys(self.partial, PARTIAL)
        states.update((axis, dim) for dim, axes in self.split.items() for axis in axes)
        return states

    def stored(self, dim: str | None) -> bool:
        """Whether it has a dimension, and takes room along it."""
        return dim in self.dims and (dim not in self.loose or dim in self.dense)


def declared(tensor: Tensor, *, adjoint: bool) -> Layout:
    """How a tensor of a header lies. ``adjoint``: it is a gradient that comes in."""
    sources: frozenset[Source] = frozenset()
    if adjoint:
        sources = frozenset({Source.GRADIENT})
    elif not POSITIONS.isdisjoint(tensor.dims):
        # Which position another one is, is no activation: it is a way to call a dimension otherwise.
        sources = frozenset({Source.POSITIONS if tensor.picks in POSITIONS else Source.ACTIVATION})
    return Layout(dims=tensor.dims, split=tensor.split_dims, picks=tensor.picks, sources=sources)
