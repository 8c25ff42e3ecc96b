"""Symbolic values: what a buffer holds on any device, as terms over its coordinates and an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self, TypeAlias

from placeproof.programs import For, Ref
from placeproof.prove.terms import Fn, Index, Poly, Var, substitute, substitute_index

Map = Callable[[Poly], Poly]
Key = tuple[str | None, int | str]


class Terms:
    """Data that speaks of index variables."""

    __slots__ = ()

    def replaced(self, meant: Mapping[str, Index]) -> Self:
        """With index variables replaced."""
        return replace(self, **{f.name: _replaced(getattr(self, f.name), meant) for f in fields(self)})  # type: ignore[type-var, arg-type]


def _replaced(part: Any, meant: Mapping[str, Index]) -> Any:
    match part:
        case Terms():
            return part.replaced(meant)
        case Poly():
            return substitute(part, meant)
        case Var() | Fn():
            return substitute_index(part, meant)
        case tuple():
            return tuple(_replaced(p, meant) for p in part)
        case Mapping():
            return {k: _replaced(p, meant) for k, p in part.items()}
    return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Region(Terms):
    """The part of the model that a value is about: a loop's part, or the device's whole stage (domain ``stage``)."""

    domain: str
    index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(Terms):
    """One group's elements. ``held``: axis factors along which the buffer holds only the elements that its device owns (with
    the order of the parts); a device that reads another element reads garbage."""

    body: Poly
    held: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor(Terms):
    """Parameters, gradients or optimizer state: the pieces of its groups, over the elements of a region.
    ``group``: the one that it was restricted to."""

    pieces: Mapping[str, Piece]
    region: Region
    group: str | None = None

    def map(self, change: Map) -> Tensor:
        """Every piece's body changed."""
        return self.by_group(lambda _, piece: change(piece.body))

    def by_group(self, change: Callable[[str, Piece], Poly]) -> Tensor:
        """Every piece's body changed, by the name of its group."""
        return replace(self, pieces={g: replace(p, body=change(g, p)) for g, p in self.pieces.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class _One(Terms):
    """One term."""

    body: Poly

    def map(self, change: Map) -> Self:
        """The body changed."""
        return replace(self, body=change(self.body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(_One):
    """Activations or their gradients, over tokens and channels. ``held``: the axis factor over which the tokens are split."""

    held: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar(_One):
    """A number: the same for all elements, perhaps another on each device. ``of_tensors``: one for each tensor of this group; ``of_lines``:
    or one for each row and each column of a matrix."""

    of_tensors: str | None = None
    of_lines: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Terms):
    """The number of a micro-batch: a loop variable."""

    index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved(Terms):
    """What a forward kept: which group's computation over which region, of which samples (None where it read something else
    than the reference reads), and how its tokens lie. ``output``: the stream that came out."""

    group: str | None
    region: Region
    sample: tuple[Index, ...] | None
    held: str | None
    output: Stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(Terms):
    """A buffer of streams or of what forwards kept, written part by part: for each group, and each part named by a number or
    walked over (in all units, the first, or the rest), the loop that wrote it and the value for that loop's variable."""

    by_key: Mapping[Key, tuple[For | None, Whole]]

    @staticmethod
    def key(ref: Ref, over: str = "") -> Key:
        """Under what a reference's part is kept. ``over``: what its loops walk over, where it has any."""
        return ref.group, ref.index.offset if ref.index is not None and ref.index.var is None else over


@dataclass(frozen=True, slots=True, kw_only=True)
class Batched(Terms):
    """A buffer that is kept for each micro-batch by itself: what it holds for the micro-batch ``variable``. ``loop``: the variable of the
    loop that is filling it; None where every micro-batch has its own."""

    value: Whole
    variable: Var
    loop: str | None

    def at(self, batch: Index) -> Whole:
        """What it holds for a micro-batch."""
        return self.value.replaced({self.variable.name: batch})

    def replaced(self, meant: Mapping[str, Index]) -> Batched:
        """With index variables replaced, save its own."""
        return replace(self, value=self.value.replaced({k: v for k, v in meant.items() if k != self.variable.name}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle(Terms):
    """A started collective: its result, the buffers that it reads, and whether one of them was written before the wait. ``own``: where this
    is of the next part, the handle of the iteration's own."""

    result: Whole
    reads: frozenset[str]
    raced: bool = False
    own: Handle | None = None

    def racing(self, name: str) -> Handle:
        """The same after a buffer was written or freed: a collective that reads it may read either value."""
        return replace(self, raced=self.raced or name in self.reads, own=None if self.own is None else self.own.racing(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart(Terms):
    """What only the devices have that took a branch: their parts, a handle, or what a forward kept. ``where``: two index terms, and whether
    they are equal there."""

    where: tuple[Index, Index, bool]
    value: Value

    def replaced(self, meant: Mapping[str, Index]) -> Apart:
        """With index variables replaced, save in the condition."""
        return replace(self, value=self.value.replaced(meant))


Whole: TypeAlias = Tensor | Stream | Scalar | Saved | Batch
Value: TypeAlias = Whole | Parts | Handle | Apart | Batched
#: The two results of an operation.
Pair: TypeAlias = tuple[Value, Value]


def bodies(value: Value | None) -> list[Poly]:
    """The terms of a tensor, a stream or a number; none of anything else."""
    if isinstance(value, Tensor):
        return [p.body for p in value.pieces.values()]
    return [value.body] if isinstance(value, Stream | Scalar) else []


def both(left: Value, right: Value, make: Callable[[Poly, Poly], Poly]) -> Tensor | Stream | Scalar | None:
    """Two values put together term by term; None where they are not of one shape."""
    match left, right:
        case Tensor(), Tensor() if left.region == right.region and set(left.pieces) == set(right.pieces):
            others = right.pieces
            pieces = {g: Piece(body=make(p.body, others[g].body), held=p.held | others[g].held) for g, p in left.pieces.items()}
            return replace(left, pieces=pieces)
        case Stream(), Stream() if left.held == right.held:
            return Stream(body=make(left.body, right.body), held=left.held)
        case Scalar(), Scalar():
            return Scalar(body=make(left.body, right.body))
    return None
