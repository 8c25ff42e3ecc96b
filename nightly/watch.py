"""Long trainings that are right, watched at every update: a finding is a false alarm, is printed, and the exit code is 1."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from watched_training import PRELOAD, RIGHT, RIGHT_OF_FOUR, train  # noqa: E402

from placeproof.measure.processes import run  # noqa: E402

PATIENCE = 24 * 3600


def main() -> int:
    """Run all strategies on two and on four processes; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="of each strategy")
    steps = parser.parse_args().steps
    wrong = 0
    for world, bases in ((2, RIGHT), (4, RIGHT_OF_FOUR)):
        for base in bases:

            def each(rank: int, world: int, directory: Any, base: str = base) -> list[str]:
                return [str(one) for one in train(base, None, steps, 1)[0]]

            outcomes = run(world, each, timeout=PATIENCE, preload=PRELOAD)
            found = [one.error or "\n".join(one.value or ()) for one in outcomes]
            wrong += any(found)
            print(f"{base} on {world} processes: {steps} steps, {next(filter(None, found), 'nothing found')}", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
