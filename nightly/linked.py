"""Every model under fifty strategies: derived again from the printed program, and walked by an oracle: `python nightly/linked.py`.

Prints each pair that differs, those that are refused by what is said of them, and how many of each there are. Where layers cannot be
shared out evenly, the model gets eight; `--sizes L=8` changes all.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from linked_pairs import STRATEGIES, Outcome, outcome

from placeproof.models import presets


def main() -> int:
    """Try all, or every n-th."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th")
    parser.add_argument("--only", default="", metavar="TEXT", help="only strategies with this text")
    parser.add_argument("--sizes", nargs="*", default=[], metavar="NAME=N", help="sizes that all models get")
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help="processes")
    asked = parser.parse_args()
    sizes = {name: int(n) for name, _, n in (said.partition("=") for said in asked.sizes)}
    pairs = [(model, strategy) for strategy in STRATEGIES if asked.only in strategy for model in presets()][:: asked.every]
    begun, found = time.monotonic(), []
    with ProcessPoolExecutor(asked.jobs) as pool:
        models, strategies = zip(*pairs, strict=True)
        for pair, own in zip(pairs, pool.map(outcome, models, strategies, repeat(sizes), chunksize=4), strict=True):
            found.append(own)
            if own.word == "different":
                print(" under ".join(pair), *own.why, sep="\n    ", flush=True)
    return summary(found, time.monotonic() - begun)


def summary(found: list[Outcome], seconds: float) -> int:
    """What came of all."""
    words = Counter(own.word for own in found)
    refused = (own.why[0] for own in found if own.word == "refused")
    for why, n in Counter(re.sub(r"`[^`]*`|[a-z0-9.]+-[a-z0-9.]+", "...", why) for why in refused).most_common():
        print(f"{n} refused: {why}")
    loose = [own.loose for own in found if own.loose]
    print(f"{len(loose)} with a peak that no statement holds: less is alive, by at most {max(loose, default=0):.0%}")
    print(f"{len(found)} pairs in {seconds:.0f} s: " + ", ".join(f"{n} {word}" for word, n in sorted(words.items())))
    return 1 if words["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
