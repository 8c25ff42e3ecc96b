"""Programs over tensors in masses against the manual: `python nightly/manual_blocks.py --count 2000 --seed 1`.

`tests/helpers/block_mutants.py` edits blocks and rings, rightly and wrongly; `tests/helpers/block_draws.py` draws whole programs.
Each is judged, and run by `tests/helpers/manual_block_interpreter.py`, which was written from the manual alone. A proof of a program that a
run denies, a refutation of one that ends as one device does on the mesh of the counterexample, and a crash are printed with their
programs, and counted with all others; ends with 1 if there was one. What had no answer in time is printed, too.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from itertools import islice
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tests" / "helpers")]

import block_draws  # noqa: E402
from block_mutants import mutants  # noqa: E402
from block_seeds import drawn, every  # noqa: E402
from manual_block_truth import compared  # noqa: E402
from tally import tally  # noqa: E402

#: Seconds that one may take, and how many random programs are edited beside those that there are.
SECONDS, RANDOM = 60, 30
LATE = "no answer in time"


class SlowError(BaseException):
    """No answer in time."""


def _late(*_: object) -> None:
    raise SlowError


def one(text: str) -> tuple[str, str, str]:
    """Of a program: its truth, its verdict, and what is wrong with the verdict."""
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    try:
        return compared(text)
    except SlowError:
        return "", LATE, ""
    finally:
        signal.alarm(0)


def main() -> int:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=2000, metavar="N", help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="what they are drawn with")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="how many random programs beside them")
    parser.add_argument("--only", default="", metavar="NAME", help="of programs whose name has this in it")
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help="processes")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    programs = [program for name, program in every().items() if chosen.only in name]
    programs += [] if chosen.only else [drawn(rng) for _ in range(RANDOM)]
    texts = [text for _, text in islice(mutants(rng, programs), chosen.count)]
    texts += [block_draws.drawn(100_000 * chosen.seed + n) for n in range(chosen.drawn)]
    return tally(texts, one, jobs=chosen.jobs, chunk=10, shown=frozenset({LATE}))


if __name__ == "__main__":
    sys.exit(main())
