"""What of a strategy fits on devices, as data: how large its sizes may be, and what would make room."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from placeproof.cost.model.comparison import Member
from placeproof.cost.values import Numbers

#: Whether something fits; None where the model of memory cannot tell.
Fits = bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How far a size can go. ``best``: the largest value that fits, of devices the smallest; ``beside``: the next one, which was tried and
    does not surely fit; ``possible``: the last that may fit. Each is None where there is none. ``multiple``: values are multiples of it.
    ``why``: why there is no such question."""

    symbol: str
    best: int | None = None
    beside: int | None = None
    possible: int | None = None
    multiple: int = 1
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change, as it is said, and the step with it. ``saves``: bytes of the fullest device's tensors."""

    text: str
    member: Member
    saves: Fraction
    fits: Fits


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """What fits of a model under a strategy on a cluster.

    ``member``: the step as it was asked about, on as many devices as are needed where nobody says how many; ``fits``: whether it does.
    ``axis``: that along which devices are counted, None where the strategy has none that splits samples; ``others``: devices along all
    others. ``changes``: those that save memory, the first to make before the others. ``pairs``: how many pairs of changes were tried, as no
    single one makes it fit; ``untried``: and how many were left out for lack of time.
    """

    member: Member
    numbers: Numbers
    fits: Fits
    microbatch: Limit
    sequence: Limit
    devices: Limit
    axis: str | None
    others: int
    changes: tuple[Change, ...]
    pairs: int = 0
    untried: int = 0
