"""The plans that nothing beats in both the seconds of a step and the bytes of tensors on the fullest device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from placeproof.planning.bounding import ROUNDING
from placeproof.planning.crew import ALONE, Running
from placeproof.planning.exact import Plan
from placeproof.planning.objective import OBJECTIVES
from placeproof.planning.pool import Pool
from placeproof.planning.search import Search
from placeproof.planning.space import Point


@dataclass(kw_only=True)
class Frontier:
    """``plans``: by their seconds; one of those that have as many seconds and as many bytes. ``beaten``: other points, none of them better
    than some plan in either; ``asked``: points that were worked out exactly; ``cut``: those among them that are no plans, by rule."""

    plans: list[Plan] = field(default_factory=list)
    beaten: int = 0
    asked: int = 0
    cut: Counter[str] = field(default_factory=Counter)


def frontier(search: Search, verdict: Callable[[Point], str] = lambda _: "proved", running: Running = ALONE) -> Frontier:
    """The plans of a search that has its bounds. ``verdict``: as of :meth:`Search.run`."""
    unproved: dict[str, str] = {}
    while True:
        found = _unbeaten(search, unproved, running)
        for plan in found.plans:
            running.ahead(plan.point)
        running.tell(f"proving {len(found.plans)} plans")
        words = {plan.point.structure: verdict(plan.point) for plan in found.plans}
        if all(word == "proved" for word in words.values()):
            return found
        unproved |= {text: word for text, word in words.items() if word != "proved"}


def _unbeaten(search: Search, unproved: Mapping[str, str], running: Running) -> Frontier:
    """The same, whatever is proved but for structures of which it is known that they are ``unproved``."""
    pool, found = Pool(search.pool), Frontier()
    seconds, peak = pool.column(lambda one: one.seconds), pool.column(lambda one: one.peak)
    # What is as fast is worked out by its bytes: the first one then beats the others. Any order gives the same plans.
    left = np.lexsort((peak, seconds.astype(np.float32)))
    while len(left):
        point, left = pool[left[0]], left[1:]
        if point.structure in unproved:
            found.cut[f"{unproved[point.structure]}, not proved"] += 1
            continue
        found.asked += 1
        running.tell(f"{found.asked:,} placements derived, {len(left):,} left that may be faster or smaller than others")
        plan = search.asked(point)
        if isinstance(plan, str):
            found.cut[plan] += 1
            continue
        if any(beats(other, plan) for other in found.plans):
            found.beaten += 1
            continue
        kept = [other for other in found.plans if not beats(plan, other)]
        found.beaten += len(found.plans) - len(kept)
        found.plans = [*kept, plan]
        open_ = (seconds[left] * (1 - ROUNDING) < float(plan.seconds)) | (peak[left] * (1 - ROUNDING) < float(plan.most))
        found.beaten += int(np.count_nonzero(~open_))
        left = left[open_]
    found.plans.sort(key=OBJECTIVES["time"].key)
    return found


def beats(plan: Plan, other: Plan) -> bool:
    """Whether a plan has no more seconds and no more bytes than another one, and less of one; or comes first, where both are the same."""
    if (plan.seconds, plan.most) == (other.seconds, other.most):
        return OBJECTIVES["time"].key(plan) < OBJECTIVES["time"].key(other)
    return plan.seconds <= other.seconds and plan.most <= other.most
