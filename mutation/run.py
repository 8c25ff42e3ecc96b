"""Breaks the product on purpose, and asks whether a test notices: `python mutation/run.py --map FOLDER`.

Each mutant is a small change of one file, in a copy of the repository. It is caught if a test or a theorem fails that passes on the
unchanged copy; what makes a module fail to import, or takes too long, is told apart and is not counted as caught. A mutant that survives
has to be listed in `survivors.toml`, with the reason why nothing should notice. The run fails if one is not listed, if what is listed does
not exist, or if fewer than nine in ten are caught. `log.jsonl` holds the last run; what it holds is not run again. `--log` names another
one: `trust.jsonl` is of what verdicts rest on. Its first line says the seed, the number and the files, where the options do not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from mutants import ROOT, Mutant, chosen, every
from reach import Reach
from trial import Trial

ENOUGH = 0.9
CAUGHT = ("tests", "theorems")
LOG, TRUST, SURVIVORS = (Path(__file__).parent / name for name in ("log.jsonl", "trust.jsonl", "survivors.toml"))


def main() -> int:
    """Try what the log does not hold, and say what it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options, what = asked(parser, most=90)
    reach = Reach(options.map)
    mutants = {m.name: m for m in chosen(what["count"], what["seed"], reach.of, what.get("only", ("*",)))}
    done = {name: entry for name, entry in read(options.log).items() if name in mutants}
    known = {name: entry for name, entry in done.items() if not options.again or entry["result"] in CAUGHT}
    waiting = [m for name, m in mutants.items() if name not in known]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    for entry in _results(waiting, reach, options):
        done[entry["mutant"]] = {**entry, "commit": commit}
        print(f"{entry['result']:<9} {entry['seconds']:>5} s  {entry['mutant']}  {entry['by']}", flush=True)
        write(options.log, what, [done[name] for name in mutants if name in done])
    return _summary(done)


def asked(parser: argparse.ArgumentParser, most: float) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Options, and the first line of the log that they ask for."""
    parser.add_argument("--map", type=Path, required=True, help="the folder of `coverage_map.py`")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=lambda text: int(text) if text.isdecimal() else text)
    parser.add_argument("--only", nargs="+", help="files, such as 'semantics/encode/*'")
    parser.add_argument("--log", type=Path, default=LOG, help="what it holds is not run again")
    parser.add_argument("--most", type=float, default=most, help="seconds of tests for a mutant")
    parser.add_argument("--again", action="store_true", help="what survived by the log is tried again")
    options = parser.parse_args()
    said = {key: value for key in ("seed", "count", "only") if (value := getattr(options, key)) is not None}
    return options, {"seed": 2026, "count": 200, **head(options.log), **said}


def head(log: Path) -> dict[str, Any]:
    """The first line of a log."""
    return json.loads(log.read_text(encoding="utf-8").partition("\n")[0]) if log.exists() else {}


def read(log: Path = LOG) -> dict[str, dict[str, Any]]:
    """What a log holds, by mutant; without its first line, which says the seed and the number."""
    if not log.exists():
        return {}
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()[1:]]
    return {entry["mutant"]: entry for entry in entries}


def write(log: Path, first: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    """A line for each."""
    log.write_text("".join(json.dumps(one) + "\n" for one in (first, *entries)), encoding="utf-8")


def complaints(done: dict[str, dict[str, Any]]) -> list[str]:
    """What is wrong with a log, and with the list of survivors."""
    listed = {row["mutant"]: row["reason"] for row in tomllib.loads(SURVIVORS.read_text(encoding="utf-8")).get("survivor", ())}
    alive = {name for name, entry in done.items() if entry["result"] not in CAUGHT}
    found = [f"not listed in survivors.toml: {name}" for name in sorted(alive - set(listed)) if name in every()]
    found += [f"listed, and can no longer be made: {name}" for name in listed if name not in every()]
    found += [f"listed, and not among the survivors of the log: {name}" for name in listed if name in every() and name not in alive]
    share = 1 - len(alive) / max(len(done), 1)
    return found if share >= ENOUGH else [*found, f"{share:.1%} are caught by tests and theorems: fewer than {ENOUGH:.0%}"]


def _summary(done: dict[str, dict[str, Any]]) -> int:
    counts = Counter(entry["result"] for entry in done.values())
    caught = sum(counts[how] for how in CAUGHT)
    shown = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    print(f"{len(done)} mutants: {shown}; {caught / max(len(done), 1):.1%} caught by tests and theorems")
    found = complaints({**read(LOG), **read(TRUST), **done})
    print(*found, sep="\n")
    return int(bool(found))


def _results(mutants: list[Mutant], reach: Reach, options: argparse.Namespace) -> Any:
    """Of each mutant what happened, as it happens; each process has a copy of its own."""
    for module in ("sympy", "z3", "pytest", "hypothesis", "jsonschema", "typer", "numpy"):  # once, before processes are forked
        importlib.import_module(module)
    with TemporaryDirectory() as folder:
        context = multiprocessing.get_context("fork")
        copies = context.Queue()
        for number in range(options.jobs):
            copies.put(Path(folder, str(number)))
        with context.Pool(options.jobs, _begin, (copies, reach, options.most)) as pool:
            yield from pool.imap_unordered(_tried, mutants)


_TRIAL: list[Trial] = []


def _begin(copies: Any, reach: Reach, most: float) -> None:
    _TRIAL.append(Trial(ROOT, copies.get(), reach, most))


def _tried(mutant: Mutant) -> dict[str, Any]:
    began = time.monotonic()
    result, by = _TRIAL[0].of(mutant)
    return {"mutant": mutant.name, "result": result, "by": by, "seconds": round(time.monotonic() - began)}


if __name__ == "__main__":
    sys.exit(main())
