"""What one simulated device holds: parts of parameters, streams, and what forward kept."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

from placeproof.semantics.simulate.model import Element, Kept, Shape, Stream, column

Coordinates: TypeAlias = dict[str, int]


@dataclass(frozen=True)
class Part:
    """Elements of parameters, gradients or optimizer state: which blocks, group and inner columns it should have, and the
    elements that are really there. Whoever reads another one reads garbage."""

    blocks: tuple[int, ...]
    group: str | None
    columns: tuple[int, ...]
    data: dict[Element, Any]

    def expected(self, shape: Shape) -> list[Element]:
        """Every element that a reader may count on once the parts are together."""
        return [e for k in self.blocks for e in shape.elements(k, self.group, self.columns)]

    def select(self, blocks: tuple[int, ...] | None, group: str | None) -> Part:
        """The part of some blocks, or of one group."""
        kept_blocks = self.blocks if blocks is None else tuple(k for k in self.blocks if k in blocks)
        kept_group = group or self.group
        data = {e: v for e, v in self.data.items() if e[0] in kept_blocks and _in_group(e, kept_group)}
        return Part(blocks=kept_blocks, group=kept_group, columns=self.columns, data=data)

    def with_data(self, data: dict[Element, Any]) -> Part:
        """The same extent with other values."""
        return replace(self, data=data)

    def merged(self, other: Part) -> Part:
        """This buffer after another part was written into it: the other's extent is overwritten."""
        kept = {e: v for e, v in self.data.items() if not (e[0] in other.blocks and _in_group(e, other.group))}
        group = self.group if self.group == other.group else None
        return Part(blocks=tuple(sorted(set(self.blocks) | set(other.blocks))), group=group, columns=self.columns, data=kept | other.data)


def _in_group(element: Element, group: str | None) -> bool:
    return group in (None, "all") or (element[1] == "n") == (group == "norm")


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


class Reads(dict[Element, Fraction]):
    """Elements as a computation reads them: a missing one is garbage."""

    def __init__(self, part: Part, device: object) -> None:
        super().__init__(part.data)
        self.device = device

    def __missing__(self, element: Element) -> Fraction:
        return garbage(self.device, element)


def owner(element: Element, sizes: dict[str, int], hidden: str | None, width: int) -> Coordinates:
    """Which coordinate owns an element on each axis factor. The hidden axis owns ranges of inner columns; the others
    share the elements out one by one, so that shards are uneven where degrees do not divide."""
    block, matrix, row, col = element
    number = ((block * 3 + ("n", "W1", "W2").index(matrix)) * 4 + row) * 4 + col
    found: Coordinates = {}
    for factor, size in sizes.items():
        if factor == hidden:
            found[factor] = 0 if matrix == "n" else column(element) * size // width
        else:
            found[factor], number = number % size, number // size
    return found
