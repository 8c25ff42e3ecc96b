"""Layouts of concrete numbers: whether a dimension, a set of devices or a model can be laid out as a rule wants it.

Everything here is decided by dealing out positions one by one and looking at what each device got, not by arithmetic: a rule that
says `heads % tp == 0` is compared with this, and would agree with itself otherwise.

The mode S holds s/n of a state of s bytes on each of n devices. A dimension that a block computes with in parts lies so: equal parts,
because all devices run one program and their collectives exchange tensors of one shape. (Proofs do not need that: there an owner is an
arbitrary function, and parts may be uneven. A state that is gathered before it is used may be padded, for the same reason.)

Source: the modes, :mod:`placeproof.core.modes`; the collectives, :mod:`placeproof.collectives.table`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice, product

from placeproof.core.states import MODEL_STATES


def dealt(rows: int, devices: int) -> tuple[int, ...]:
    """How many of ``rows`` each device gets where they are dealt out in turn."""
    got = [0] * devices
    for row in range(rows):
        got[row % devices] += 1
    return tuple(got)


def even(rows: int, devices: int) -> bool:
    """Whether every device can get equally many of the rows."""
    return len(set(dealt(rows, devices))) == 1


def each(rows: int, devices: int) -> int:
    """How many rows every device has where all have equally many; -1 where they have not."""
    counts = set(dealt(rows, devices))
    return counts.pop() if len(counts) == 1 else -1


def enough(rows: int, devices: int) -> bool:
    """Whether every device gets at least one row; some may get more than others."""
    return min(dealt(rows, devices)) >= 1


def shared(rows: int, devices: int) -> bool:
    """Whether all devices hold equally many rows, and all rows lie on equally many devices: whole rows, with copies if there are few."""
    holders = [(n * rows) // devices for n in range(devices)] if rows < devices else [row * devices // rows for row in range(rows)]
    copies = Counter(holders)
    return len(copies) == min(rows, devices) and len(set(copies.values())) == 1


def pieces(rows: int, size: int) -> bool:
    """Whether the rows can be cut into pieces of exactly ``size``, at least one of them."""
    left, cut = rows, 0
    while left >= size:
        left, cut = left - size, cut + 1
    return left == 0 and cut >= 1


def exactly(devices: int, *degrees: int) -> bool:
    """Whether a mesh of these degrees has a place for each device, and a device in each place."""
    places = product(*(range(d) for d in degrees))
    return sum(1 for _ in islice(places, devices + 1)) == devices


@lru_cache(maxsize=4096)
def fills(devices: int, *degrees: int) -> bool:
    """Whether one more axis, of some degree, makes a mesh of all devices."""
    return any(exactly(devices, *degrees, other) for other in range(1, devices + 1))


def levels(devices: int, degrees: Sequence[int]) -> bool:
    """Whether an axis is made of sub-groups of sub-groups, of these degrees."""
    return exactly(devices, *degrees)


def inhabited(*degrees: int) -> bool:
    """Whether each axis has a device at its beginning."""
    return all(0 in range(d) for d in degrees)


def states() -> int:
    """How many model states there are to shard."""
    return len(MODEL_STATES)


@lru_cache(maxsize=64)
def composes(*parts: str) -> bool:
    """Whether strategies can be composed: no state is placed twice on one axis. Empty texts are left out."""
    from placeproof.core.diagnostics import InputError
    from placeproof.strategies import parse_strategy

    try:
        parse_strategy(" * ".join(p for p in parts if p))
    except InputError:
        return False
    return True


def when(chosen: bool, part: str) -> str:
    """A strategy that a switch adds."""
    return part if chosen else ""
