"""Random compositions, right ones and changed ones: the rule of composition against the direct proof: `python nightly/composition.py`.

Prints each program that the rule proves and a run refutes (exit code 1), those that only one of the two proves, and how many of each there
are, with the milliseconds that the rule takes: of a step whose factors it has seen, and of one whose factors it has not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from random_compositions import random_programs

from placeproof.core.diagnostics import InputError
from placeproof.programs import read, render
from placeproof.semantics.composition import composed
from placeproof.semantics.judge.verdict import judge, provable

_AT_ONCE = 50


@dataclass(frozen=True)
class Outcome:
    """What the rule and the direct proof say of a program, and the rule's seconds, the second time and the first."""

    text: str
    name: str
    word: str
    why: str = ""
    seconds: tuple[float, float] = (0.0, 0.0)


def outcomes(seed: int, most: int, changed: float) -> list[Outcome]:
    """Of some programs."""
    return [_outcome(name, render(program)) for name, program in random_programs(seed, _AT_ONCE, most, changed)]


def _outcome(name: str, text: str) -> Outcome:
    try:
        program = read(text, source="random")
        begun = time.perf_counter()
        composed(program)
        middle = time.perf_counter()
        found = composed(program)
        ended = time.perf_counter()
        direct = provable(program)
    except InputError as refused:
        return Outcome(text, name, "no program", str(refused))
    seconds = (ended - middle, middle - begun)
    if found.proved == direct:
        return Outcome(text, name, "proved by both" if direct else "proved by neither", seconds=seconds)
    if direct:
        return Outcome(text, name, "proved directly alone", found.why, seconds)
    judged = judge(program)
    word = "WRONG: proved by the rule, and refuted" if judged.word == "refuted" else "proved by the rule alone"
    return Outcome(text, name, word, judged.why, seconds)


def main() -> int:
    """Try so many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, metavar="N", help="programs")
    parser.add_argument("--axes", type=int, default=4, metavar="N", help="at most so many axes")
    parser.add_argument("--changed", type=float, default=0.5, metavar="SHARE", help="the share of them that is changed in one place")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which ones")
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help="processes")
    asked = parser.parse_args()
    seeds = range(1000 * asked.seed, 1000 * asked.seed + -(-asked.count // _AT_ONCE))
    every: list[Outcome] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for some in pool.map(outcomes, seeds, repeat(asked.axes), repeat(asked.changed)):
            every += some
            for one in (o for o in some if o.word.startswith(("WRONG", "proved directly alone", "proved by the rule alone"))):
                print(f"{one.word}: {one.name}: {one.why}", *([one.text] if one.word.startswith("WRONG") else []), sep="\n", flush=True)
    return summary(every)


def summary(every: list[Outcome]) -> int:
    """How many of each, and how long the rule took."""
    words = Counter(o.word for o in every)
    for why, n in Counter(o.why for o in every if o.word == "proved directly alone").most_common(12):
        print(f"{n} too weak: {why}")
    for title, number in (("seen", 0), ("not seen", 1)):
        times = sorted(o.seconds[number] for o in every if o.word != "no program")
        middle, most = times[len(times) // 2], times[int(len(times) * 0.99)]
        print(f"the rule, factors {title} before: {1000 * middle:.1f} ms in the middle, {1000 * most:.1f} ms at the 99th percentile")
    print(f"{len(every)} programs: " + ", ".join(f"{n} {word}" for word, n in sorted(words.items())))
    return 1 if any(word.startswith("WRONG") for word in words) else 0


if __name__ == "__main__":
    sys.exit(main())
