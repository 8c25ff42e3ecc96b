"""The last of many values at which something holds, where it holds up to one of them: searched for, and tried beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from placeproof.core.diagnostics import refuse

#: So many values one after the other that cannot be are taken to be the end of those that can.
PATIENCE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """``last``: the largest value at which it holds, None where it holds at none; ``next``: the smallest above it that can be, at which it
    does not hold; None where no value above it can be, or none was asked about."""

    last: int | None
    next: int | None


def boundary(holds: Callable[[int], bool | None], values: Sequence[int]) -> Boundary:
    """Where a condition that holds up to some value ends. ``holds``: None of a value that cannot be; ``values``: those to look at, rising.

    Values at both sides of the end are tried, so that it is one, whatever holds elsewhere. Raises InputError where between two values so
    many cannot be that those were not all tried. ``values`` are not empty.
    """
    if holds(values[-1]):
        return Boundary(last=values[-1], next=None)
    low, high = _galloped(holds, values)
    if low is None or high is None:
        return Boundary(last=None if low is None else values[low], next=None if high is None else values[high])
    end = high  # between low and end there may be values that were not tried
    while end - low > 1:
        middle = (low + end) // 2
        found = _first(holds, values, middle, end)
        if found is None and end - middle > PATIENCE:
            message = f"too few values from {values[middle]:,} to {values[end]:,} can be"
            refuse("PP202", message, help="ask about some of them by themselves")
        if found is None:
            end = middle
        elif holds(values[found]):
            low = found
        else:
            high, end = found, middle  # no value from the middle to what was found can be
    return Boundary(last=values[low], next=values[high])


def _galloped(holds: Callable[[int], bool | None], values: Sequence[int]) -> tuple[int | None, int | None]:
    """An index at which it holds and one above at which it does not, as far as there are such; steps between them double."""
    low, high = None, _first(holds, values, 0, len(values))
    step = 1
    while high is not None and holds(values[high]):
        low, ahead = high, min(high + step, len(values) - 1)
        high, step = (None if ahead == low else _first(holds, values, ahead, len(values))), 2 * step
        if high is None and ahead > low + 1:  # nothing near there can be: what is nearer may
            high, step = _first(holds, values, low + 1, len(values)), 1
    return low, high


def _first(holds: Callable[[int], bool | None], values: Sequence[int], start: int, stop: int) -> int | None:
    """The first index of a value that can be, if it is near."""
    return next((i for i in range(start, min(stop, start + PATIENCE)) if holds(values[i]) is not None), None)
