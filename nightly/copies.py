"""All steps of the scripts in ``tests/helpers`` that are refuted by what real processes come to, and of those that only look like them.

The exit code is 1 where a step is taken for something else than it is.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from copies_scripts import KEPT, PARTED, script  # noqa: E402
from crossed_scripts import CLEARED, CROSSED, HANDED, OVERWRITTEN, STRAIGHT, UNSENT  # noqa: E402
from dropped_scripts import COUNTED, DROPPED  # noqa: E402
from lost_scripts import LEFT, LOST  # noqa: E402
from misplaced_scripts import MISPLACED, PLACED, STRAIGHT_ON, STRAYED  # noqa: E402
from summed_scripts import SUMMED  # noqa: E402
from summed_scripts import WHOLE as ADDED  # noqa: E402
from summed_scripts import script as split  # noqa: E402
from untrained_scripts import TRAINED, UNTRAINED  # noqa: E402

from placeproof.measure.record.crossed import crossed  # noqa: E402
from placeproof.measure.record.dropped import dropped  # noqa: E402
from placeproof.measure.record.handed import handed  # noqa: E402
from placeproof.measure.record.launch import Launch, beyond_step, forked, received_once  # noqa: E402
from placeproof.measure.record.lost import lost  # noqa: E402
from placeproof.measure.record.misplaced import misplaced  # noqa: E402
from placeproof.measure.record.overwritten import overwritten  # noqa: E402
from placeproof.measure.record.parted import parted  # noqa: E402
from placeproof.measure.record.strayed import strayed  # noqa: E402
from placeproof.measure.record.summed import summed  # noqa: E402
from placeproof.measure.record.untrained import untrained  # noqa: E402

KINDS = {
    parted: PARTED,
    summed: SUMMED,
    lost: LOST,
    dropped: DROPPED | CLEARED,
    untrained: UNTRAINED,
    misplaced: MISPLACED,
    strayed: STRAYED,
    crossed: CROSSED | UNSENT,
    handed: HANDED,
    overwritten: OVERWRITTEN,
}
#: Scripts with a head of their own.
SPLIT = {name: split(body) for name, body in (SUMMED | ADDED).items()}
WRONG = {name: (body, kind) for kind, bodies in KINDS.items() for name, body in bodies.items()}
RIGHT = {name: (body, None) for name, body in (KEPT | LEFT | COUNTED | TRAINED | PLACED | STRAIGHT | ADDED | STRAIGHT_ON).items()}
#: Scripts that are whole.
WHOLE = CROSSED | HANDED | STRAIGHT | CLEARED | UNSENT | OVERWRITTEN | SPLIT


def main() -> int:
    """Run them; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="steps whose name has this in it")
    only, wrong = parser.parse_args().only, 0
    with TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        for name, (body, kind) in (WRONG | RIGHT).items():
            if only in name:
                path.write_text(WHOLE.get(name) or script(body), encoding="utf-8")
                step = 2 if "second step" in name else 1
                launch = Launch(script=path, world=2, step=step, timeout=60)
                ran = forked(launch, beyond_step)
                seen = [one for one in KINDS if one is not overwritten and one(ran, step) is not None]
                seen += [overwritten] if overwritten(ran, step, partial(forked, launch, received_once)) is not None else []
                right = kind in seen if kind is not None else not seen
                wrong += not right
                said = ", ".join(one.__name__ for one in seen) or "nothing"
                print(f"{name:75} {said:10}{'' if right else 'WRONG'}".rstrip(), flush=True)
    print(f"{wrong} of {len(WRONG) + len(RIGHT)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
