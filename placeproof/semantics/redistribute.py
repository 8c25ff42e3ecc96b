"""The cheapest sequence of collectives from one layout to another, found by search over the table of conversions."""

from __future__ import annotations

import heapq
from functools import lru_cache

from placeproof.collectives import CONVERSIONS, Conversion, Layout


@lru_cache(maxsize=16)
def cheapest(before: Layout, after: Layout) -> tuple[Conversion, ...]:
    """The conversions on one axis that send least in all; Dijkstra over three layouts.

    Each ring pass moves the same (n-1)/n s, so that the order of costs is the same for every degree n >= 2. Raises
    ValueError where no sequence exists (nothing makes a partial sum of a full copy).
    """
    queue: list[tuple[int, int, int, Layout, tuple[Conversion, ...]]] = [(0, 0, 0, before, ())]
    settled: set[Layout] = set()
    order = 0
    while queue:
        cost, _, _, at, path = heapq.heappop(queue)
        if at is after:
            return path
        if at in settled:
            continue
        settled.add(at)
        for step in CONVERSIONS:
            if step.before is at:
                order += 1
                heapq.heappush(queue, (cost + step.passes, len(path) + 1, order, step.after, (*path, step)))
    raise ValueError(f"no collectives lead from {before.value} to {after.value}")
