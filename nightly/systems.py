"""Measures DeepSpeed and Megatron-core in random cases, and records what they exchange and hold.

``python nightly/systems.py`` writes tests/data/measured_systems.json; ``--check`` compares with it. ``--random N`` measures N other
cases of each system instead and compares them with what is predicted; ``--only SYSTEM`` leaves out the other one. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"
ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from recorded_systems import CASES, PATH, SEEDS, row  # noqa: E402

from placeproof.measure.systems.cases import SystemCase, SystemMeasured, predicted  # noqa: E402

#: Cases that one set of processes runs, one after the other.
CHUNK = 16


def measured(system: str, seeds: Iterable[int]) -> dict[int, tuple[SystemCase, SystemMeasured]]:
    """What each case did, by its seed; cases on the same mesh share processes."""
    warnings.simplefilter("ignore")
    measure: Callable[[list[SystemCase]], list[SystemMeasured]]
    if system == "deepspeed":
        from placeproof.measure.systems.deepspeed import measure
    else:
        from placeproof.measure.systems.megatron import measure
    cases = {seed: CASES[system](seed) for seed in seeds}
    found = {}
    for mesh in {tuple(c.mesh.items()) for c in cases.values()}:
        here = [seed for seed, c in cases.items() if tuple(c.mesh.items()) == mesh]
        for begin in range(0, len(here), CHUNK):
            chunk = here[begin : begin + CHUNK]
            some = measure([cases[seed] for seed in chunk])
            found |= {seed: (cases[seed], one) for seed, one in zip(chunk, some, strict=True)}
    return dict(sorted(found.items()))


def compare(system: str, count: int) -> int:
    """Measure other cases than the recorded ones, show where a prediction differs, and say in how many."""
    wrong = 0
    for seed, (case, seen) in measured(system, range(10_000, 10_000 + count)).items():
        prediction = predicted(case)
        exchanges, memory = prediction.exchanges, prediction.memory
        ours, theirs = Counter(exchanges), Counter(seen.exchanges)
        if ours != theirs or any(seen.memory[k] != v for k, v in memory.items()):
            wrong += 1
            print(f"{system} {seed}, {case.options} on {case.mesh}: predicted alone {ours - theirs}, measured alone {theirs - ours}")
            print(f"  memory: predicted {dict(memory)}, measured {dict(seen.memory)}")
    print(f"{system}: {count - wrong} of {count} as predicted")
    return wrong


def main() -> None:
    """Record, check, or measure other cases."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the record, and write nothing")
    parser.add_argument("--random", type=int, metavar="N", help="measure N other cases of each system, and compare with predictions")
    parser.add_argument("--only", choices=sorted(CASES), help="one system alone; with --random")
    given = parser.parse_args()
    if given.random:
        systems = [given.only] if given.only else sorted(CASES)
        sys.exit(1 if sum(compare(system, given.random) for system in systems) else 0)
    rows: list[Any] = [row(seed, case, seen) for s in sorted(CASES) for seed, (case, seen) in measured(s, SEEDS[s]).items()]
    text = "[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n"
    if not given.check:
        PATH.write_text(text, encoding="utf-8")
    elif text != PATH.read_text(encoding="utf-8"):
        sys.exit("what was measured is not what is recorded")
    print(f"{len(rows)} cases")


if __name__ == "__main__":
    main()
