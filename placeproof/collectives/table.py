"""Collectives: what each does to a tensor's layout on an axis, and the bytes that one device sends.

Sources: Thakur, Rabenseifner, Gropp 2005 (ring algorithms); Patarasuk and Yuan 2009 (no all-reduce sends less).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, Self, TypeVar


class AxisLayout(Enum):
    """How one tensor inside the step lies on one axis. (How a *state* lies is its placement.)"""

    REPLICATE = "replicate"
    SHARD = "shard"
    PARTIAL = "partial sum"


class Amount(Protocol):
    """What a cost is computed with: SymPy expressions and exact fractions alike."""

    def __add__(self, other: Self | int, /) -> Self: ...
    def __sub__(self, other: Self | int, /) -> Self: ...
    def __mul__(self, other: Self | int, /) -> Self: ...
    def __truediv__(self, other: Self | int, /) -> Self: ...


A = TypeVar("A", bound=Amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective over a group of n devices.

    ``passes``: how often a ring algorithm moves all but one n-th of s past each device; ``whole``: how often s itself is
    sent. ``s`` says which amount s is.
    """

    name: str
    passes: int
    whole: int
    s: str
    rule: str
    meaning: str

    def sent(self, n: A, s: A) -> A:
        """Bytes that one device sends for a tensor of s bytes over n devices."""
        return s * (n - 1) / n * self.passes if self.passes else s * self.whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A way to change a tensor's layout on one axis; ``part`` is local and sends nothing."""

    op: str
    before: AxisLayout
    after: AxisLayout
    passes: int


_ROWS = (
    Collective(name="all_reduce", passes=2, whole=0, s="the tensor", rule="ring all-reduce: 2 (n-1)/n s",
               meaning="partial sums become full copies: a reduce-scatter, then an all-gather"),
    Collective(name="reduce_scatter", passes=1, whole=0, s="the input", rule="ring reduce-scatter: (n-1)/n s",
               meaning="partial sums become shards of the sum"),
    Collective(name="all_gather", passes=1, whole=0, s="the result", rule="ring all-gather: (n-1)/n s",
               meaning="shards become full copies"),
    Collective(name="all_to_all", passes=1, whole=0, s="what a device holds", rule="all-to-all: (n-1)/n s",
               meaning="every device sends part j to device j"),
    Collective(name="broadcast", passes=0, whole=1, s="the tensor", rule="broadcast: s",
               meaning="the root's value goes to all, passed along a chain"),
    Collective(name="reduce", passes=0, whole=1, s="the tensor", rule="reduce: s",
               meaning="partial sums meet at the root, added along a chain"),
    Collective(name="send", passes=0, whole=1, s="the tensor", rule="point to point: s", meaning="one message"),
    Collective(name="recv", passes=0, whole=0, s="the tensor", rule="the sender counts it", meaning="the other end of a send"),
    Collective(name="tied_reduce", passes=0, whole=1, s="the tensor", rule="all-reduce of two: s",
               meaning="the two ends of a pipeline add their gradients of a tied weight"),
)  # fmt: skip

COLLECTIVES: dict[str, Collective] = {row.name: row for row in _ROWS}

#: Ways between layouts on one axis; a search over them finds the cheapest sequence.
CONVERSIONS: tuple[Conversion, ...] = (
    Conversion(op="all_reduce", before=AxisLayout.PARTIAL, after=AxisLayout.REPLICATE, passes=COLLECTIVES["all_reduce"].passes),
    Conversion(op="reduce_scatter", before=AxisLayout.PARTIAL, after=AxisLayout.SHARD, passes=COLLECTIVES["reduce_scatter"].passes),
    Conversion(op="all_gather", before=AxisLayout.SHARD, after=AxisLayout.REPLICATE, passes=COLLECTIVES["all_gather"].passes),
    Conversion(op="part", before=AxisLayout.REPLICATE, after=AxisLayout.SHARD, passes=0),
)
