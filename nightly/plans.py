"""The search for placements against trying every point, on random small grids: `python nightly/plans.py`.

Prints each grid in which they differ, how near bounds are to what they bound, by schedule, and how many points there were.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from plan_answers import told, why_nothing_fits
from plan_instances import MORE, SOME, instance, pinned
from plan_lines import differences, listed
from plan_oracle import Compared, held_against, tried

#: One in so many grids has pins that are left out one by one, which is many grids.
REASONS = 20


def main() -> int:
    """Try all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, metavar="N", help="grids")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first of them")
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help="processes")
    asked = parser.parse_args()
    begun, every = time.monotonic(), []
    seeds = range(asked.seed, asked.seed + asked.count)
    with ProcessPoolExecutor(asked.jobs) as pool:
        for seed, own in zip(seeds, pool.map(one, seeds), strict=True):
            every.append(own)
            if own.why:
                print(f"grid {seed}", *own.why, sep="\n    ", flush=True)
    return summary(every, time.monotonic() - begun)


def one(seed: int) -> Compared:
    """One grid, every second one of what is less usual, of which mostly a few plans are asked for; and, seldom, why nothing fits."""
    asked = instance(seed, MORE if seed % 2 else SOME)
    truth, cut = tried(asked)
    own = held_against(asked, Random(-seed).choice((1, 2, 3, 5, 1000)), truth, cut)
    own.why += told(asked, truth)
    if seed % REASONS == 0:
        own.why += why_nothing_fits(*pinned(seed))[0]
        alike, plans, wrong = listed(seed)
        own.why += wrong + differences(alike, plans)
    return own


def summary(every: list[Compared], seconds: float) -> int:
    """What came of all."""
    ratios: dict[str, list[float]] = {}
    for own in every:
        for schedule, ratio, _ in own.ratios:
            ratios.setdefault(schedule, []).append(ratio)
    for schedule, known in sorted(ratios.items()):
        mean, exact = sum(known) / len(known), sum(ratio > 1 - 1e-9 for ratio in known)
        print(f"{schedule}: {len(known)} bounds, {exact} exact, {mean:.3f} of the time on average, {min(known):.3f} at least")
    numbers = Counter({"points": 0})
    for own in every:
        numbers += Counter(points=own.points, derived=own.derived, fit=own.fit, empty=own.fit == 0, different=bool(own.why))
    said = ", ".join(f"{numbers[word]} {word}" for word in ("points", "derived", "fit"))
    print(f"{len(every)} grids in {seconds:.0f} s: {said}; in {numbers['empty']} nothing fits, {numbers['different']} differ")
    return 1 if numbers["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
