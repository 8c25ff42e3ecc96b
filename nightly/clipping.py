"""All steps of ``tests/helpers/clipping_scripts.py``, run as processes: clipping that no one device does has to be seen, and no other.

The exit code is 1 where a step is taken for something else than it is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from clipping_scripts import LIKE_NONE, LIKE_ONE, found  # noqa: E402


def main() -> int:
    """Run them; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="steps whose name has this in it")
    only, wrong = parser.parse_args().only, 0
    with TemporaryDirectory() as folder:
        for name in (name for name in LIKE_NONE | LIKE_ONE if only in name):
            witness = found(name, Path(folder))
            right = (witness is not None) == (name in LIKE_NONE)
            wrong += not right
            said = f"no one device, line {witness.line}" if witness is not None else "one device"
            print(f"{name:55} {said:25}{'' if right else 'WRONG'}".rstrip(), flush=True)
    print(f"{wrong} of {len(LIKE_NONE) + len(LIKE_ONE)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
