"""One mutant, in a copy of the repository: which test fails that passes without the change."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coverage_map import PYTEST, environment
from mutants import Mutant
from reach import FIRST_FILES, Reach, names

#: Left out of a copy; what was compiled stays valid, since times of changes are copied, too.
_NOT_COPIED = shutil.ignore_patterns(".git", ".*_cache", "_build", ".hypothesis")
#: Bytes that a mutant may take, and what one test may take of its usual time.
_MEMORY, _TIMES, _SECONDS = 8 * 2**30, 15, 10


class Trial:
    """A copy of the repository in which mutants are tried, one after another."""

    def __init__(self, root: Path, copy: Path, reach: Reach, most: float) -> None:
        self.copy, self.reach, self.most = copy, reach, most
        shutil.copytree(root, copy, ignore=_NOT_COPIED)
        self.sound: dict[str, bool] = {}

    def of(self, mutant: Mutant) -> tuple[str, str]:
        """What happened, and the test or the error that shows it."""
        names = self.reach.of(mutant)
        path = self.copy / "placeproof" / mutant.path
        original, stat = path.read_bytes(), path.stat()
        while True:
            path.write_text(mutant.source, encoding="utf-8")
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                compiled.unlink()
            result, by = self._forked(names, mutant.path)
            path.write_bytes(original)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
            if not by or by not in self.reach.seconds or self._stands(by):
                return result, by
            names = [name for name in names if name != by]

    def _stands(self, name: str) -> bool:
        """Whether a test passes on the unchanged copy."""
        if name not in self.sound:
            self.sound[name] = self._forked([name], "core/mesh.py")[0] == "survived"
        return self.sound[name]

    def _forked(self, names: list[str], path: str) -> tuple[str, str]:
        """Run tests in a process of its own."""
        told = self.copy / "told.json"
        told.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            os.setsid()
            try:
                _run(_Watch(self.copy, names, self.reach.seconds, path, self.most), path)
            except BaseException as error:
                _tell(self.copy, "import", f"{type(error).__name__}: {error}"[:200])
            os._exit(0)
        os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it may have left behind
        return tuple(json.loads(told.read_text(encoding="utf-8"))) if told.exists() else ("crash", "")


def _tell(copy: Path, result: str, by: str) -> None:
    (copy / "told.json").write_text(json.dumps([result, by]), encoding="utf-8")


def _run(watch: _Watch, path: str) -> None:
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silent, number)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.chdir(watch.copy)
    os.environ.update(environment(watch.copy))
    sys.path.insert(0, str(watch.copy))
    importlib.import_module("placeproof.cli.main")
    if path.endswith(".py"):  # before pytest: it reads the modules of its plugins in its own way
        importlib.import_module(".".join(("placeproof", *Path(path).with_suffix("").parts)).removesuffix(".__init__"))
    for files, others in _rounds(list(watch.order)):
        watch.ask(files, others=others and len(watch.order) > 1)
        if watch.failed:
            return _tell(watch.copy, "theorems" if watch.failed.startswith("theorems/") else "tests", watch.failed)
    _tell(watch.copy, *(("import", watch.unread[0]) if watch.unread else ("time", watch.slow) if watch.slow else ("survived", "")))
    return None


def _rounds(names: list[str]) -> list[tuple[list[str], bool]]:
    """Files: those of the first tests, the others, and all of them once more for what the map does not hold."""
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    return [(files[:FIRST_FILES], False), (files[FIRST_FILES:], False), (files, True)]


class _Watch:
    """Runs the tests that are wanted, in their order, and stops at the first that fails, or when enough time was spent."""

    def __init__(self, copy: Path, names: list[str], seconds: dict[str, float], path: str, most: float) -> None:
        self.copy, self.seconds, self.path, self.most = copy, seconds, path, most
        self.order = {name: at for at, name in enumerate(names)}
        self.ends = 0.0
        self.done: set[str] = set()
        self.failed = self.slow = ""
        self.unread: list[str] = []
        self.session: object = None
        self.others = False

    def ask(self, files: list[str], *, others: bool) -> None:
        """The tests of these files that are wanted and were not run yet; or ``others``: those that are not known to reach the change."""
        import pytest

        self.others, self.ends = others, self.ends or time.process_time() + self.most
        if files and time.process_time() < self.ends:
            with TemporaryDirectory() as folder:  # pytest's own folder is shared by all that run at once
                pytest.main([*PYTEST, "--continue-on-collection-errors", f"--basetemp={folder}/pytest", *files], plugins=[self])

    def pytest_collection_modifyitems(self, items: list[object]) -> None:
        """What was not run, in the order that is wanted; cases that are named after changed data first: the map may lack them."""
        most = len(self.order)
        data = most > 1 and not self.path.endswith(".py")
        kin = {name.partition("[")[0]: at + most for name, at in self.order.items()}
        place = {i: self._place(i, data, kin) for i in items}
        left = [i for i in items if i.nodeid not in self.done and (self.others or place[i] < most)]  # type: ignore[attr-defined]
        items[:] = sorted(left, key=place.__getitem__)

    def _place(self, item: Any, data: bool, kin: dict[str, int]) -> int:
        """Where a test stands; other cases of those that are wanted come before all others."""
        if data and names(self.path, item.name):
            return -1
        return self.order.get(item.nodeid, kin.get(item.nodeid.partition("[")[0], 2 * len(self.order)))

    def pytest_sessionstart(self, session: object) -> None:
        """To be stopped."""
        self.session = session

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test that takes much longer than usual is left, since another one may fail; one that cannot be left ends it all."""
        import pytest

        def late(*_: object) -> None:
            if self.slow == nodeid:
                _tell(self.copy, "time", nodeid)
                os._exit(0)
            self.slow = nodeid
            pytest.skip("slow")

        signal.signal(signal.SIGVTALRM, late)
        limit = _SECONDS + _TIMES * self.seconds.get(nodeid, 1.0)
        signal.setitimer(signal.ITIMER_VIRTUAL, limit, limit)

    def pytest_runtest_logfinish(self) -> None:
        """Between tests there is no hurry."""
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def pytest_runtest_logreport(self, report: object) -> None:
        """Stops at a failure, or when the time is over."""
        self.done.add(report.nodeid)  # type: ignore[attr-defined]
        if report.outcome == "failed":  # type: ignore[attr-defined]
            self.failed = report.nodeid  # type: ignore[attr-defined]
        if self.failed or time.process_time() > self.ends:
            self.session.shouldstop = "enough"  # type: ignore[attr-defined]

    def pytest_collectreport(self, report: object) -> None:
        """A module of tests that cannot be imported."""
        if report.outcome == "failed":  # type: ignore[attr-defined]
            self.unread.append(report.nodeid)  # type: ignore[attr-defined]
