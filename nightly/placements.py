"""Holds what is derived for every pair of placements on two batch axes against the table of modes.

``python nightly/placements.py``. See README.md.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from accepted_placements import ACCEPTED, beside_the_table  # noqa: E402


def main() -> int:
    """Print each pair that disagrees; the exit code is 1 if one does."""
    wrong = 0
    pairs = list(itertools.product(ACCEPTED, repeat=2))
    for pair in pairs:
        for key, (found, said) in beside_the_table(*pair).items():
            wrong += 1
            print(f"{pair}: {key} is {found}, by the table of modes {said}", flush=True)
    print(f"{len(pairs)} pairs, {wrong} disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
