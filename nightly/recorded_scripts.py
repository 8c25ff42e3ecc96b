"""All training scripts of ``nightly/scripts``: each is run as processes and recorded, and what is said of it is held against what it did.

Writes ``recorded_scripts.json`` where all of them ran. The exit code is 1 with a verdict that is false, with a script that is not what its
docstring says, with one that ends in no verdict, and where fewer than 85% of all are recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from training_scripts import PRELOADED, RESULTS, Script, scripts, truth, verdict  # noqa: E402

WORDS = ("proved", "proved except", "refuted", "refused", "unknown", "broken")
RECORDED = 0.85


@dataclass(frozen=True)
class Row:
    """``truth``: "right" or "wrong", by running; ``verdict``: one of WORDS; ``reason``: the line that says why."""

    script: Script
    truth: str
    verdict: str
    reason: str

    @property
    def fault(self) -> str:
        """What has to be mended, or nothing."""
        if (self.verdict, self.truth) in {
            ("proved", "wrong"),
            ("proved except", "wrong"),
            ("refuted", "right"),
        } or self.verdict == "broken":
            return f"WRONG {self.verdict.upper()}"
        return "" if self.truth == self.script.claim else f"is {self.truth}, and says that it is {self.script.claim}"


def row(script: Script) -> Row:
    """Run and judge one script."""
    ran = truth(script)
    return Row(script, ran.partition(":")[0], *verdict(script))


def table(rows: list[Row]) -> str:
    """How many there are of each truth and verdict."""
    counts = Counter((r.truth, r.verdict) for r in rows)
    lines = [" " * 8 + "".join(f"{word:>14}" for word in WORDS)]
    return "\n".join(lines + [f"{truth:8}" + "".join(f"{counts[truth, word]:14}" for word in WORDS) for truth in ("right", "wrong")])


def written(rows: list[Row]) -> str:
    """The record: when, with which versions, and a line for each script."""
    head = {"date": date.today().isoformat(), **{package: version(package) for package in PRELOADED}}
    lines = [f"  {json.dumps(r.script.name)}: {json.dumps([r.truth, r.verdict, r.reason], ensure_ascii=False)}" for r in rows]
    return json.dumps(head)[:-1] + ', "scripts": {\n' + ",\n".join(lines) + "\n}}\n"


def main() -> int:
    """Run them; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="scripts whose name has this in it")
    only = parser.parse_args().only
    chosen = [s for s in scripts() if only in s.name]
    missing = [s.name for s in chosen if s.missing]
    rows = []
    for script in chosen:
        if not script.missing:
            rows.append(row(script))
            print(f"{script.name:42} {rows[-1].truth:6} {rows[-1].verdict:8} {rows[-1].reason[:120]} {rows[-1].fault}".rstrip(), flush=True)
    recorded = sum(r.verdict not in {"refused", "broken"} for r in rows) / max(len(rows), 1)
    faults = [f"{r.script.name}: {r.fault}" for r in rows if r.fault]
    print(f"\n{table(rows)}\n{recorded:.0%} recorded", *faults, sep="\n")
    if missing:
        print(f"not run, since their packages are missing: {', '.join(missing)}")
    elif not only:
        RESULTS.write_text(written(rows), encoding="utf-8")
    return int(bool(faults) or (not only and recorded < RECORDED))


if __name__ == "__main__":
    sys.exit(main())
