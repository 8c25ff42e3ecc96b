"""All steps of ``tests/helpers/copies_scripts.py``, run as processes: copies that part have to be seen, and no others.

The exit code is 1 where a step is taken for something else than it is.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from copies_scripts import KEPT, PARTED, script  # noqa: E402

from placeproof.measure.record.launch import Launch, beyond_step, forked  # noqa: E402
from placeproof.measure.record.parted import parted  # noqa: E402


def main() -> int:
    """Run them; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="steps whose name has this in it")
    only, wrong = parser.parse_args().only, 0
    with TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        for name, body in (PARTED | KEPT).items():
            if only in name:
                path.write_text(script(body), encoding="utf-8")
                step = 2 if "second step" in name else 1
                found = parted(forked(Launch(script=path, world=2, step=step, timeout=60), beyond_step), step)
                right = (found is not None) == (name in PARTED)
                wrong += not right
                said = "part" if found is not None else "agree"
                print(f"{name:75} {said:6}{'' if right else 'WRONG'}".rstrip(), flush=True)
    print(f"{wrong} of {len(PARTED) + len(KEPT)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
