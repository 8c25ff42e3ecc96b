"""Symbolic values: what a buffer holds on any device, as terms over its coordinates and an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from placeproof.core.program import For, Ref
from placeproof.prove.terms import Index, Poly, Var, substitute, substitute_index

Map = Callable[[Poly], Poly]
Key = tuple[str | None, int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The part of the model that a value is about: a loop's part, or the device's whole stage (domain ``stage``)."""

    domain: str
    index: Index

    def replaced(self, meant: Mapping[str, Index]) -> Region:
        """With index variables replaced."""
        return replace(self, index=substitute_index(self.index, meant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One group's elements. ``held``: axis factors along which the buffer holds only the elements that its device owns (with
    the order of the parts); a device that reads another element reads garbage."""

    body: Poly
    held: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Parameters, gradients or optimizer state: the pieces of its groups, over the elements of a region.
    ``group``: the one that it was restricted to."""

    pieces: Mapping[str, Piece]
    region: Region
    group: str | None = None

    def map(self, change: Map) -> Tensor:
        """Every piece's body changed."""
        return replace(self, pieces={g: replace(p, body=change(p.body)) for g, p in self.pieces.items()})

    def replaced(self, meant: Mapping[str, Index]) -> Tensor:
        """With index variables replaced."""
        return replace(self.map(lambda body: substitute(body, meant)), region=self.region.replaced(meant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Activations or their gradients, over tokens and channels. ``held``: the axis factor over which the tokens are split."""

    body: Poly
    held: str | None = None

    def map(self, change: Map) -> Stream:
        """The body changed."""
        return replace(self, body=change(self.body))

    def replaced(self, meant: Mapping[str, Index]) -> Stream:
        """With index variables replaced."""
        return self.map(lambda body: substitute(body, meant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A number: the same for all elements, perhaps another on each device. ``of_tensors``: one for each tensor."""

    body: Poly
    of_tensors: bool = False

    def map(self, change: Map) -> Scalar:
        """The body changed."""
        return replace(self, body=change(self.body))

    def replaced(self, meant: Mapping[str, Index]) -> Scalar:
        """With index variables replaced."""
        return self.map(lambda body: substitute(body, meant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The number of a micro-batch: a loop variable."""

    index: Index

    def replaced(self, meant: Mapping[str, Index]) -> Batch:
        """With index variables replaced."""
        return Batch(index=substitute_index(self.index, meant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a forward kept: which group's computation over which region, of which samples (None where it read something else
    than the reference reads), and how its tokens lie. ``output``: the stream that came out."""

    group: str | None
    region: Region
    sample: tuple[Index, ...] | None
    held: str | None
    output: Stream

    def replaced(self, meant: Mapping[str, Index]) -> Saved:
        """With index variables replaced."""
        sample = None if self.sample is None else tuple(substitute_index(s, meant) for s in self.sample)
        return replace(self, region=self.region.replaced(meant), sample=sample, output=self.output.replaced(meant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A buffer of streams or of what forwards kept, written part by part: for each group, and each part named by a number or
    walked over (in all units, the first, or the rest), the loop that wrote it and the value for that loop's variable."""

    by_key: Mapping[Key, tuple[For | None, Whole]]

    def replaced(self, meant: Mapping[str, Index]) -> Parts:
        """With index variables replaced."""
        return Parts(by_key={k: (loop, v.replaced(meant)) for k, (loop, v) in self.by_key.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Batched:
    """A buffer that is kept for each micro-batch by itself: what it holds for the micro-batch ``variable``. ``loop``: the variable of the
    loop that is filling it; None where every micro-batch has its own."""

    value: Whole
    variable: Var
    loop: str | None

    def at(self, batch: Index) -> Whole:
        """What it holds for a micro-batch."""
        return self.value.replaced({self.variable.name: batch})

    def replaced(self, meant: Mapping[str, Index]) -> Batched:
        """With index variables replaced."""
        return replace(self, value=self.value.replaced({k: v for k, v in meant.items() if k != self.variable.name}))


def key_of(ref: Ref, over: str = "") -> Key:
    """Under what a reference's part is kept in :class:`Parts`. ``over``: what its loops walk over, where it has any."""
    return ref.group, ref.index.offset if ref.index is not None and ref.index.var is None else over


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """A started collective: its result, the buffers that it reads, and whether one of them was written before the wait."""

    result: Whole
    reads: frozenset[str]
    raced: bool = False

    def replaced(self, meant: Mapping[str, Index]) -> Handle:
        """With index variables replaced."""
        return replace(self, result=self.result.replaced(meant))


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """What only the devices have that took a branch: their parts, a handle, or what a forward kept. ``where``: two index terms, and whether
    they are equal there."""

    where: tuple[Index, Index, bool]
    value: Value

    def replaced(self, meant: Mapping[str, Index]) -> Apart:
        """With index variables replaced."""
        return replace(self, value=self.value.replaced(meant))


Whole: TypeAlias = Tensor | Stream | Scalar | Saved | Batch
Value: TypeAlias = Whole | Parts | Handle | Apart | Batched


@dataclass(frozen=True, slots=True)
class Pair:
    """The two results of an operation."""

    first: Value
    second: Value
