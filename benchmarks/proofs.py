"""Proving every composition of up to three catalogue strategies, in one process; and that the degrees do not matter."""

from __future__ import annotations

import statistics
import sys
import time

import placeproof
from placeproof.programs import Program
from placeproof.semantics.catalogue import BLOCKS, compositions, read_block
from placeproof.semantics.judge.verdict import judge

MEDIAN, WORST = 0.050, 2.0


def seconds(program: Program) -> float:
    start = time.perf_counter()
    assert judge(program).word == "proved"
    return time.perf_counter() - start


def main() -> int:
    placeproof.judge("ddp")  # imports the solver
    times = [(seconds(program), text) for text, program in compositions() if isinstance(program, Program)]
    blocks = [(seconds(read_block(name)), name) for name in BLOCKS]
    taken = [t for t, _ in times]
    worst = max(times + blocks)
    median = statistics.median(taken)
    print(f"{len(times)} compositions: median {1e3 * median:.0f} ms (bound {1e3 * MEDIAN:.0f}), worst {1e3 * max(taken):.0f} ms")
    print(f"{len(blocks)} blocks: " + ", ".join(f"{name} {1e3 * t:.0f} ms" for t, name in sorted(blocks)) + f" (bound {1e3 * WORST:.0f})")
    for degree in (8, 8192):
        each = [_whole(f"zero3({degree}) * tp({degree}) * pp({degree})") for _ in range(5)]
        print(f"zero3 * tp * pp with degrees of {degree}: {1e3 * statistics.median(each):.0f} ms")
    return int("--check" in sys.argv and (median > MEDIAN or worst[0] > WORST))


def _whole(text: str) -> float:
    start = time.perf_counter()
    assert placeproof.judge(text).word == "proved"
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
