"""What one simulated device holds: parts of parameters, streams, and what forward kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

from placeproof.semantics.simulate.layout import Element
from placeproof.semantics.simulate.model import Kept, Stream


@dataclass(frozen=True)
class Part:
    """Elements of parameters, gradients or optimizer state: those that a reader may count on once the parts are together, and
    those that are really there. Whoever reads another one reads garbage."""

    extent: tuple[Element, ...]
    data: dict[Element, Any]
    group: str | None = None

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks whose elements it has."""
        return tuple(sorted({e[0] for e in self.extent if e[0] >= 0}))

    @property
    def columns(self) -> tuple[int, ...]:
        """The inner columns of the network's matrices."""
        return tuple(sorted({e[3] for e in self.extent if e[1] == "W1"}))

    def only(self, wanted: Callable[[Element], bool], group: str | None) -> Part:
        """The part of some elements."""
        extent = tuple(e for e in self.extent if wanted(e))
        kept = set(extent)
        return Part(extent=extent, data={e: v for e, v in self.data.items() if e in kept}, group=group or self.group)

    def with_data(self, data: dict[Element, Any]) -> Part:
        """The same extent with other values."""
        return replace(self, data=data)

    def merged(self, other: Part) -> Part:
        """This buffer after another part was written into it: the other's extent is overwritten."""
        over = set(other.extent)
        kept = {e: v for e, v in self.data.items() if e not in over}
        extent = tuple(dict.fromkeys((*self.extent, *other.extent)))
        return Part(extent=extent, data=kept | other.data, group=self.group if self.group == other.group else None)


@dataclass
class Parts:
    """A buffer written part by part that is not made of elements: by (group, blocks)."""

    by_key: dict[tuple[str | None, tuple[int, ...]], Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """What a forward kept for backward."""

    kept: Kept
    group: str | None


@dataclass(frozen=True)
class Handle:
    """A collective that was started: what it will read, it reads when waited for."""

    call: Any
    bindings: Any


Value: TypeAlias = Part | Stream | Saved | Parts | Handle | Fraction


def garbage(*key: object) -> Fraction:
    """What a device reads where it holds nothing: a number that no computation meets by chance."""
    return Fraction(random.Random(f"garbage {key}").getrandbits(61) + 3, 2**31 - 1)


class Reads(dict[Element, Any]):
    """Elements as a computation reads them: a missing one is garbage."""

    def __init__(self, part: Part, device: object) -> None:
        super().__init__(part.data)
        self.device = device

    def __missing__(self, element: Element) -> Fraction:
        return garbage(self.device, element)
