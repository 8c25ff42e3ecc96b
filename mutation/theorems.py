"""Breaks what formulas come from, and asks whether the suite of theorems alone notices: `python mutation/theorems.py --count 150`.

Each mutant is a small change of a schedule, a collective, a cost, a placement, a model or the lowering, in a copy of the package. The
topics that speak of such a file are checked, without the second solver, until one has a theorem that does not stand. A change is caught by
its verdicts, or it only leaves theorems that cannot be read; what makes the package fail to import, or runs out of time, is told apart and
not counted. Prints each, and how many each topic caught; `--log FILE` keeps what was found, and is not asked again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent))
from mutants import ROOT, Mutant, chosen

#: Topics that speak of files, by how their paths begin; the first that fits counts. Those that are most likely to notice stand first.
TOPICS: dict[str, tuple[str, ...]] = {
    "schedules/": (
        *("schedule_forms", "schedule_variants", "schedules", "zero_bubble", "pipeline", "schedule_messages", "schedule_bounds"),
        *("schedule_timetables", "schedule_orders", "degrees"),
    ),
    "collectives/time": ("model_times", "collectives_time"),
    "collectives/": ("collective_forms", "collectives_bytes", "collectives", "collectives_time", "traffic", "information_flow", "paper"),
    "cost/exact/": ("device_bytes", "system_bytes"),
    "cost/model/time": ("model_times", "model_costs", "models"),
    "cost/model/prices": ("model_times", "models"),
    "cost/model/": ("model_costs", "model_times", "models", "operations", "schedule_forms"),
    "cost/flops": ("operations", "folklore_costs"),
    "cost/blocks/": ("model_costs", "model_blocks", "operations", "device_bytes", "models", "blocks"),
    "cost/": (
        "memory",
        "traffic",
        "paper",
        "placement",
        "admitted",
        "degrees",
        "memory_composed",
        "traffic_composed",
        "operations",
        "models",
    ),
    "core/": ("memory", "traffic", "paper", "placement", "admitted"),
    "models/": ("model_counts", "model_blocks", "model_costs", "models", "operations", "blocks"),
    "clusters/": ("model_times", "collectives_time", "models"),
    "profiles/": ("model_blocks", "device_bytes", "system_bytes", "operations", "memory", "traffic"),
    "strategies/": ("paper", "placement", "memory", "traffic", "assumptions", "composition", "experts", "degrees"),
    "semantics/lower/": ("assumptions", "composition", "paper", "placement", "traffic", "memory", "experts", "correctness", "degrees"),
}
FILES = tuple(
    f"{start}*" if start != "core/" else name
    for start in TOPICS
    for name in (("core/modes.py", "core/strategy.py") if start == "core/" else (start,))
)
_CAUGHT = "verdicts"


def main() -> int:
    """Try them, and say what each topic caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150, metavar="N", help="mutants")
    parser.add_argument("--seed", default="1", help="which ones")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="only of these files of the package")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="at once")
    parser.add_argument("--seconds", type=int, default=240, metavar="S", help="that the topics of one mutant may take")
    parser.add_argument("--log", type=Path, default=None, metavar="FILE", help="what was found before, one mutant a line")
    asked = parser.parse_args()
    only = [p for p in FILES if asked.only == "*"] or [asked.only]
    mutants = chosen(asked.count, asked.seed, lambda _: True, only)
    known = {row["mutant"]: row for row in _read(asked.log)}
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(partial(_tried, asked.seconds), [m for m in mutants if m.name not in known]):
            known[row["mutant"]] = row
            print(f"{row['result']:<10} {row['seconds']:>4} s  {row['mutant']}  {row['by']}", flush=True)
            if asked.log is not None:
                asked.log.write_text("".join(json.dumps(one) + "\n" for one in known.values()), encoding="utf-8")
    return _summary([known[m.name] for m in mutants])


def _read(log: Path | None) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log is not None and log.exists() else []


def topics_of(path: str) -> tuple[str, ...]:
    """The topics that speak of a file of the package."""
    return next(topics for start, topics in TOPICS.items() if path.startswith(start))


def _tried(most: int, mutant: Mutant) -> dict[str, str]:
    """What the topics say of the package with one change."""
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("placeproof", "theorems", "docs/references.bib"):
            source, target = ROOT / name, copy / name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__")) if source.is_dir() else shutil.copy(
                source, target
            )
        (copy / "placeproof" / mutant.path).write_text(mutant.source, encoding="utf-8")
        result, by = _asked(copy, topics_of(mutant.path), began + most)
    return {"mutant": mutant.name, "result": result, "by": by, "seconds": str(round(time.monotonic() - began))}


def _asked(copy: Path, topics: tuple[str, ...], until: float) -> tuple[str, str]:
    """The first topic with a theorem that does not stand; else one with a theorem that cannot be read."""
    unread = ""
    for topic in topics:
        command = [sys.executable, "-m", "placeproof", "check", topic, "--no-cache", "--no-second-opinion", "--jobs", "1", "--json"]
        try:
            done = subprocess.run(
                command,
                cwd=copy,
                env={"PYTHONPATH": str(copy), "PATH": ""},
                capture_output=True,
                check=False,
                text=True,
                timeout=max(1, until - time.monotonic()),
            )
        except subprocess.TimeoutExpired:
            return "time", topic
        try:
            found = json.loads(done.stdout)
        except ValueError:
            if "Error" in done.stderr and "placeproof has a bug" not in done.stderr:
                return "import", (done.stderr.strip().splitlines() or [""])[-1][:120]
            unread = unread or topic
            continue
        fallen = [t["id"] for t in found["results"] if t["standing"] in ("unexpected", "undecided")]
        if fallen:
            return _CAUGHT, fallen[0]
        if found["malformed"] or not found["results"]:
            unread = unread or topic
    return ("unread", unread) if unread else ("survived", "")


def _summary(rows: list[dict[str, str]]) -> int:
    """How many of each, and what each topic caught."""
    words = Counter(row["result"] for row in rows)
    for topic, n in Counter(row["by"].partition(".")[0] for row in rows if row["result"] == _CAUGHT).most_common():
        print(f"{n:>4} caught by {topic}")
    counted = sum(words[word] for word in (_CAUGHT, "unread", "survived"))
    share = words[_CAUGHT] / max(counted, 1)
    print(f"{len(rows)} mutants: " + ", ".join(f"{n} {word}" for word, n in sorted(words.items())) + f"; {share:.0%} caught by verdicts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
