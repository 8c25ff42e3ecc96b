"""What each value of a step program is: its kind, groups, layout and part. One pass over the program, no amounts.

Costs and proofs both stand on this pass. It follows layouts the way a type checker follows types: what a forward over
split matrices makes is a partial sum, what ``all_gather`` makes is a full copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from placeproof.collectives import AxisLayout
from placeproof.programs import Binary, Call, For, If, Index, Program, Resolved, Stmt


class Kind(Enum):
    """What a value is."""

    PARAMETERS = "parameters"
    OPTIMIZER = "optimizer"
    GRADIENTS = "gradients"
    MOMENTUM = "momentum"
    SUMS = "sums"
    NORMS = "norms"
    SAVED = "activations"
    STREAM = "stream"
    SCALAR = "scalar"


#: The width of a kind's elements, unless cast or quantised.
WIDTHS = {
    Kind.PARAMETERS: "b_theta",
    Kind.OPTIMIZER: "b_omega",
    Kind.GRADIENTS: "b_g",
    Kind.MOMENTUM: "b_theta",
    Kind.SUMS: "b_nu",
    Kind.NORMS: "b_s",
    Kind.SAVED: "b_a",
    Kind.STREAM: "b_a",
    Kind.SCALAR: "b_s",
}
#: The width of parameters that are frozen.
FROZEN_WIDTH = "b_frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One group of a value, and the axis factors on which it is not a full copy. ``group`` is empty where there are none.

    ``width``: the symbol of its bytes an element where that is not the one of the value's kind. ``whole``: the axis factors along which
    its parts are whole matrices, which were exchanged to be so.
    """

    group: str = ""
    layout: tuple[tuple[str, AxisLayout], ...] = ()
    width: str = ""
    whole: tuple[str, ...] = ()

    def on(self, axis: str) -> AxisLayout:
        """The layout on an axis factor."""
        return dict(self.layout).get(axis, AxisLayout.REPLICATE)

    def laid(self, axes: tuple[str, ...], layout: AxisLayout) -> Piece:
        """The same piece with another layout on some axis factors."""
        kept = {a: v for a, v in self.layout if a not in axes}
        if layout is not AxisLayout.REPLICATE:
            kept |= dict.fromkeys(axes, layout)
        return replace(self, layout=tuple(sorted(kept.items(), key=lambda item: item[0])))

    def axes(self, layout: AxisLayout) -> tuple[str, ...]:
        """The axis factors on which it lies so."""
        return tuple(a for a, v in self.layout if v is layout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value.

    ``pieces``: its groups, each with its layout. ``part``: the domain of which it is one iteration's part, or None for
    the whole. ``index``: how that part was named. ``host``: it lies in host memory.
    """

    kind: Kind
    pieces: tuple[Piece, ...] = (Piece(),)
    part: str | None = None
    index: Index | None = None
    host: bool = False

    def on(self, axis: str) -> tuple[AxisLayout, ...]:
        """The layouts of its pieces on an axis factor."""
        return tuple(p.on(axis) for p in self.pieces)

    def laid(self, axes: tuple[str, ...], layout: AxisLayout) -> Value:
        """The same value with another layout on some axis factors."""
        return replace(self, pieces=tuple(p.laid(axes, layout) for p in self.pieces))

    def group(self, name: str) -> Value:
        """The piece of one group alone."""
        pieces = tuple(p for p in self.pieces if p.group == name)
        return replace(self, pieces=pieces or tuple(replace(p, group=name) for p in self.pieces[:1]))

    def with_group(self, name: str, other: Value) -> Value:
        """The value with one group's piece taken from another value."""
        own = "" if other.kind is self.kind else WIDTHS[other.kind]
        taken = tuple(replace(p, group=name, width=p.width or own) for p in other.pieces[:1])
        kept = tuple(p for p in self.pieces if p.group not in (name, ""))
        return replace(self, pieces=tuple(sorted((*kept, *taken), key=lambda p: p.group)))

    def wide(self, width: str) -> Value:
        """The same value with so many bytes an element; without a symbol, with those of its kind."""
        return replace(self, pieces=tuple(replace(p, width=width) for p in self.pieces))

    def width(self, piece: Piece) -> str:
        """The symbol of a piece's bytes an element."""
        return piece.width or WIDTHS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One operation as a device comes to it: its operands' values and its result's, and where it stands."""

    stmt: Stmt
    call: Call
    operands: tuple[Value, ...]
    result: Value | None
    loops: tuple[For, ...]
    branches: tuple[tuple[If, bool], ...]
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A buffer read or written: at which step of the walk, by which statement, inside which loops."""

    name: str
    write: bool
    at: int
    stmt: Stmt
    loops: tuple[For, ...]
    value: Value
    indexed: str | None
    group: str | None
    offset: int
    accumulate: bool
    freed: bool


@dataclass(slots=True)
class Trace:
    """What the pass found: operations and buffer accesses in order, and where statements stand in the walk; and sums, products and so on,
    with their two sides."""

    program: Resolved
    events: list[Event] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    arithmetic: list[tuple[Binary, Value, Value]] = field(default_factory=list)


def placed_value(program: Program, state: str) -> Value:
    """A state as it lies between steps, every group of it."""
    groups = [""] if Kind(state) is Kind.SAVED else [g.name for g in program.groups] if state == "parameters" else program.trained
    modes = [m for p in program.placed if p.state == state for _, m in p.modes]
    pieces = tuple(_placed_piece(program, state, group) for group in groups)
    return in_own_width(Value(kind=Kind(state), pieces=pieces, host=any(m.fetches for m in modes)), program)


def in_own_width(value: Value, program: Program) -> Value:
    """A value with so many bytes an element as its kind has, and parameters that are frozen have."""
    frozen = {g.name for g in program.groups if g.frozen} if value.kind is Kind.PARAMETERS else set()
    return replace(value, pieces=tuple(replace(p, width=FROZEN_WIDTH if p.group in frozen else "") for p in value.pieces))


def _placed_piece(program: Program, state: str, group: str) -> Piece:
    piece = Piece(group=group)
    for placed in program.placed:
        if placed.state == state and placed.group in (None, group):
            for name, mode in placed.modes:
                layout = AxisLayout.SHARD if mode.split else AxisLayout.REPLICATE
                piece = piece.laid(program.factors(name), layout)
    return piece
