"""Which tests run which lines, and how long each takes: `python mutation/coverage_map.py FOLDER`; needs `coverage`.

Each file of tests, and each of theorems, is run once in a process of its own, so that no cache hides from one file what another one
read. Of a test of many cases a few are run, and of a file that takes long not all. `FOLDER` gets a file for each; `--only test_rules`
makes some of them again, `--cases` and `--most` with more or fewer cases and seconds. `run.py --map FOLDER` tries the tests that reach a
change. What is skipped here, because PyTorch is missing for example, is not tried.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "placeproof"
#: The first runs the theorems in processes of its own: they are tried one by one instead. The second is about the mutants themselves.
LEFT_OUT = ("test_theorem_suite", "test_mutation")
PYTEST = [
    "-q",
    "--level=3",
    "-o",
    "addopts=",
    "-p",
    "no:xdist",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:cov",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]
# The first is about solvers; the second starts processes of its own, which fails after others in one process.
PYTEST += ["-k", "not second_opinion and not ends_the_process"]


def files(root: Path = ROOT) -> list[Path]:
    """All files of tests and of theorems."""
    tests = [path for path in sorted((root / "tests").rglob("test_*.py")) if path.stem not in LEFT_OUT]
    return tests + [path for path in sorted((root / "theorems").glob("*.py")) if not path.name.startswith("_")]


def environment(root: Path) -> dict[str, str]:
    """For tests of a copy of the product: the same examples each time."""
    return {**os.environ, "PYTHONPATH": str(root), "CI": "1"}


class _Seen:
    """Seconds of every test, and the data that the product opens."""

    def __init__(self, coverage: object, cases: int, most: float) -> None:
        self.coverage, self.cases, self.most = coverage, cases, most
        self.seconds: dict[str, float] = defaultdict(float)
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.opened: set[str] = set()
        self.session: object = None
        sys.addaudithook(self._audit)

    def pytest_collection_modifyitems(self, items: list[object]) -> None:
        """Cases from the first to the last of each test, the same each time; one of each test before the next ones."""
        of: dict[str, list[object]] = defaultdict(list)
        for item in items:
            of[item.nodeid.partition("[")[0]].append(item)  # type: ignore[attr-defined]
        of_each = range(self.cases)
        some = [[cases[at] for at in sorted({len(cases) * n // self.cases for n in of_each})] for cases in of.values()]
        items[:] = [cases[n] for n in of_each for cases in some if n < len(cases)]

    def _audit(self, event: str, args: tuple[object, ...]) -> None:
        if event == "open" and isinstance(args[0], str) and args[0].startswith(f"{PACKAGE}/") and not args[0].endswith((".py", ".pyc")):
            self.opened.add(args[0][len(f"{PACKAGE}/") :])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """What follows is of this test."""
        self.coverage.switch_context(nodeid)  # type: ignore[attr-defined]

    def pytest_runtest_logfinish(self) -> None:
        """What follows is of no test."""
        self.coverage.switch_context("")  # type: ignore[attr-defined]
        if time.process_time() > self.most:
            self.session.shouldstop = "enough"  # type: ignore[attr-defined]

    def pytest_sessionstart(self, session: object) -> None:
        """To be stopped."""
        self.session = session

    def pytest_runtest_logreport(self, report: object) -> None:
        """One phase of one test."""
        name = report.nodeid  # type: ignore[attr-defined]
        self.seconds[name] += report.duration  # type: ignore[attr-defined]
        if report.outcome == "failed":  # type: ignore[attr-defined]
            self.failed.add(name)
        elif report.when == "call" and report.outcome == "passed":  # type: ignore[attr-defined]
            self.passed.add(name)


def _one(file: str, out: Path, cases: int, most: float) -> int:
    """One file of tests, in this process."""
    import coverage
    import pytest

    measured = coverage.Coverage(data_file=None, config_file=False, source=[str(PACKAGE)], messages=False)
    measured.start()
    seen = _Seen(measured, cases, most)
    code = pytest.main([*PYTEST, file], plugins=[seen])
    measured.stop()
    data = measured.get_data()
    passed = sorted(seen.passed - seen.failed)
    number = {name: at for at, name in enumerate(passed)}
    lines: dict[str, dict[str, list[int]]] = {}
    for path in data.measured_files():
        found = {line: sorted(number[c] for c in which if c in number) for line, which in data.contexts_by_lineno(path).items()}
        lines[str(Path(path).relative_to(PACKAGE))] = {str(line): which for line, which in sorted(found.items()) if which}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    made = {
        "file": file,
        "commit": commit,
        "seconds": {name: round(seen.seconds[name], 3) for name in passed},
        "lines": lines,
        "opened": sorted(seen.opened),
    }
    out.write_text(json.dumps(made), encoding="utf-8")
    print(f"{file}: {len(passed)} passed, {len(seen.failed)} failed, {sum(seen.seconds.values()):.0f} s", *sorted(seen.failed), flush=True)
    return 0 if code in (0, 2, 5) else 1


def main() -> int:
    """Run all, or some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", help="names of files, without their endings")
    parser.add_argument("--cases", type=int, default=4, help="of one test")
    parser.add_argument("--most", type=float, default=40, help="seconds of a file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.chdir(ROOT)
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.file:
        return _one(options.file, options.folder / f"{Path(options.file).stem}.json", options.cases, options.most)
    wanted = [path for path in files() if not options.only or path.stem in options.only]

    def ran(path: Path) -> int:
        command = [sys.executable, __file__, str(options.folder.resolve()), "--file", str(path.relative_to(ROOT))]
        command += ["--cases", str(options.cases), "--most", str(options.most)]
        done = subprocess.run(command, env=environment(ROOT), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout.splitlines()[-1] if done.stdout else f"{path.name}: nothing", flush=True)
        return done.returncode

    with ThreadPoolExecutor(options.jobs) as pool:
        return int(any(list(pool.map(ran, wanted))))


if __name__ == "__main__":
    sys.exit(main())
