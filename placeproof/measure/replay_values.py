"""What a process of a replay is and holds: parts of the parameters, streams of activations, what a forward kept, numbers of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

from torch import Tensor

from placeproof.core.program import Call
from placeproof.measure.replay_file import Coordinates
from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_model import Model, nothing
from placeproof.measure.replay_numbers import Arithmetic, Numbers


class NothingThereError(Exception):
    """A computation reads a token, or a buffer, that the device does not have: shapes do not fit."""


class NotHomeError(Exception):
    """A device would return what is another device's part: it has not come home from its way round the ring."""


class NotReplayedError(Exception):
    """The program does something that this replay gives no meaning."""


@dataclass(slots=True, eq=False)
class Here:
    """One process: the model, the mesh, the arithmetic, and where in time it is. ``number``: of the step; ``batch``: of the micro-batch
    that a loop walked over last; ``past``: the parameters before each step; ``read``: the gradients that the last update read."""

    model: Model
    mesh: Mesh
    of: Arithmetic
    number: int = 0
    batch: int = 0
    past: list[Part] = field(default_factory=list)
    read: Part | None = None

    lost: dict[tuple[int, ...], Numbers] = field(default_factory=dict)

    @property
    def at(self) -> Coordinates:
        """The device's coordinates."""
        return self.mesh.at

    def nothing_at(self, at: Coordinates) -> Numbers:
        """What a device reads where it has nothing, for each element."""
        place = tuple(at.values())
        if place not in self.lost:
            self.lost[place] = Numbers.make(self.of, [nothing(dict(at), key) for key in self.model.keys])
        return self.lost[place]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Elements of parameters, gradients or optimizer state.

    ``extent``: those that a reader may count on once the parts are together; ``held``: those that are really there. ``numbers``: one
    for each element of the model (of the optimizer two, the master copy and the momentum), without meaning where ``held`` is not set.
    """

    extent: Tensor
    held: Tensor
    numbers: Numbers
    group: str | None = None

    def only(self, wanted: Tensor, group: str | None) -> Part:
        """The part of some elements."""
        return replace(self, extent=self.extent & wanted, held=self.held & wanted, group=group or self.group)

    def with_numbers(self, numbers: Numbers, held: Tensor | None = None) -> Part:
        """Other numbers for the same extent."""
        return replace(self, numbers=numbers, held=self.held if held is None else held)

    def merged(self, other: Part) -> Part:
        """This buffer after another part was written into it: the other's extent is overwritten."""
        return Part(
            extent=self.extent | other.extent,
            held=(self.held & ~other.extent) | other.held,
            numbers=other.numbers.where(other.held, self.numbers),
            group=self.group if self.group == other.group else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """Activations: numbers by token and channel, and the tokens that are there."""

    there: Tensor
    numbers: Numbers

    def needs(self, tokens: Tensor, what: str) -> None:
        """Raise NothingThereError unless these tokens are there."""
        missing = tokens & ~self.there
        if bool(missing.any()):
            raise NothingThereError(f"{what} needs token {int(missing.nonzero()[0, 0])}, which is not on this device")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Norms:
    """One number for each tensor of the model, and the tensors for which there is one."""

    there: Tensor
    numbers: Numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Saved:
    """What a forward kept for backward: the input and the output of each block."""

    inputs: dict[int, Stream] = field(default_factory=dict)
    outputs: dict[int, Stream] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frame:
    """Loop variables: the domain, position and blocks of each, and the micro-batches."""

    parts: dict[str, tuple[str, int, tuple[int, ...]]] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Handle:
    """A collective that was started. A buffer that it sends it reads when it is waited for, the latest that a real one may; ``value``: what
    was computed for it."""

    call: Call
    frame: Frame
    value: Value | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """A buffer written part by part that is not made of elements: by group and blocks."""

    by_key: dict[tuple[str | None, tuple[int, ...]], Value]


#: A scalar is a fraction where every process knows it from the text, and a number without dimensions where it was computed.
Scalar: TypeAlias = Fraction | Numbers
Value: TypeAlias = Part | Stream | Norms | Saved | Handle | Parts | Fraction | Numbers


def mapped(value: Value, change: Callable[[Numbers], Numbers]) -> Part | Stream | Norms:
    """Every number of a value changed alike."""
    match value:
        case Part() | Stream() | Norms():
            return replace(value, numbers=change(value.numbers))
    raise NotReplayedError(f"arithmetic on a {type(value).__name__.lower()}")
