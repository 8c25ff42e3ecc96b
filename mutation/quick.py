"""Catches what is easily caught: `python mutation/quick.py --map FOLDER --log LOG`, before `run.py` with the same options tries the rest.

One process reads all tests of the map once. For each mutant it forks, puts the changed code into the functions that were read, and runs the
tests that reach the change, quick ones first. Only a mutant for which a test fails that passes without the change gets an entry in the log:
what survives here may be code that ran when its module was read, or a longer test may notice it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from coverage_map import PYTEST
from mutants import PACKAGE, ROOT, Mutant, chosen
from reach import Reach
from run import CAUGHT, asked, read, write

#: Seconds of one test, and how many times its usual time.
_SECONDS, _TIMES = 5, 5


def changed(mutant: Mutant) -> Iterator[tuple[CodeType, CodeType]]:
    """Code of functions before and after the change, those inside of others too; nothing of a change outside of functions."""
    name = str(PACKAGE / mutant.path)
    before, after = (compile(text, name, "exec") for text in ((PACKAGE / mutant.path).read_text(encoding="utf-8"), mutant.source))
    waiting = [(before, after)]
    while waiting:
        old, new = waiting.pop()
        inner = [[one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)]
        waiting += zip(*inner, strict=False)
        if old.co_flags & 0x2 and (old.co_code, old.co_names, shown(old)) != (new.co_code, new.co_names, shown(new)):
            yield old, new


def shown(code: CodeType) -> str:
    """Constants, told apart by their types, with those of functions inside."""
    return repr([shown(c) + c.co_code.hex() + repr(c.co_names) if isinstance(c, CodeType) else c for c in code.co_consts])


class Server:
    """Forks for each mutant, once all tests are read."""

    def __init__(self, reach: Reach, waiting: list[Mutant], told: Path, most: float) -> None:
        self.reach, self.waiting, self.told, self.most = reach, waiting, told, most
        self.found: dict[str, dict[str, Any]] = {}
        self.sound: dict[str, bool] = {}
        self.failed = ""
        self.items: dict[str, pytest.Item] = {}
        self.remembering: list[functools._lru_cache_wrapper[Any]] = []
        self.functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running what was collected."""
        self.items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # what is frozen is not listed
        for one in gc.get_objects():
            if isinstance(one, functools._lru_cache_wrapper):
                self.remembering.append(one)
            elif isinstance(one, FunctionType) and one.__code__.co_filename.startswith(str(PACKAGE)):
                self.functions[one.__code__.co_filename, one.__code__.co_qualname, one.__code__.co_firstlineno].append(one)
        gc.freeze()
        for mutant in self.waiting:
            began = time.monotonic()
            by = self._caught(mutant)
            self.tell(mutant, by, round(time.monotonic() - began))
        return True

    def tell(self, mutant: Mutant, by: str, seconds: int) -> None:
        """What happened to one."""
        result = "" if not by else "theorems" if by.startswith("theorems/") else "tests"
        if result:
            self.found[mutant.name] = {"mutant": mutant.name, "result": result, "by": by, "seconds": seconds}
        print(f"{result or 'left':<9} {seconds:>5} s  {mutant.name}  {by}", file=sys.__stderr__, flush=True)

    def _caught(self, mutant: Mutant) -> str:
        """The test that notices it."""
        codes = list(changed(mutant)) if mutant.path.endswith(".py") else []
        mapped = [name for name in self.reach.quick(mutant) if name in self.items] if codes else []
        kin = {name.partition("[")[0] for name in mapped}  # of a test of many cases the map has a few
        more = [name for name in self.items if name.partition("[")[0] in kin and name not in self.reach.seconds]
        names = [name for name in mapped + more if self.sound.get(name, True)]
        while names:
            by = self._forked(names, codes)
            if not by:
                return ""
            if by not in self.sound:
                self.sound[by] = not self._forked([by], [])
            if self.sound[by]:
                return by
            names.remove(by)
        return ""

    def _forked(self, names: list[str], codes: list[tuple[CodeType, CodeType]]) -> str:
        """The first of the tests that fails with other code."""
        self.told.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setsid()
                resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
                if self._put(codes):
                    self._run([self.items[name] for name in names])
            os._exit(0)
        os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return json.loads(self.told.read_text(encoding="utf-8")) if self.told.exists() else ""

    def _put(self, codes: list[tuple[CodeType, CodeType]]) -> bool:
        """Other code into the functions that have it; what they remember is forgotten."""
        for one in self.remembering:
            one.cache_clear()
        done = []
        for old, new in codes:
            for function in self.functions.get((old.co_filename, old.co_qualname, old.co_firstlineno), ()):
                function.__code__ = new
                done.append(function)
        return bool(done) or not codes

    def _run(self, items: list[pytest.Item]) -> None:
        """Until one fails, or enough time was spent."""
        ends = time.process_time() + self.most
        signal.signal(signal.SIGVTALRM, lambda *_: pytest.skip("slow"))
        for item, following in zip(items, [*items[1:], None], strict=True):
            limit = _SECONDS + _TIMES * self.reach.seconds.get(item.nodeid, 1.0)
            signal.setitimer(signal.ITIMER_VIRTUAL, limit, limit)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if self.failed:
                self.told.write_text(json.dumps(self.failed), encoding="utf-8")
            if self.failed or time.process_time() > ends:
                return

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One phase of one test."""
        if report.failed:
            self.failed = report.nodeid


def main() -> int:
    """Try what the log does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    options, what = asked(parser, most=12)
    reach = Reach(options.map)
    mutants = {m.name: m for m in chosen(what["count"], what["seed"], reach.of, what.get("only", ("*",)))}
    done = {name: entry for name, entry in read(options.log).items() if name in mutants}
    waiting = [m for name, m in mutants.items() if name not in done or (options.again and done[name]["result"] not in CAUGHT)]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    os.chdir(ROOT)
    os.environ["CI"] = "1"
    sys.path.insert(0, str(ROOT))
    for path in sorted({m.path for m in waiting if m.path.endswith(".py")}):  # also what is imported late
        importlib.import_module(".".join(("placeproof", *Path(path).with_suffix("").parts)).removesuffix(".__init__"))
    with TemporaryDirectory() as folder:
        server = Server(reach, waiting, Path(folder, "told.json"), options.most)
        tell = server.tell

        def told(mutant: Mutant, by: str, seconds: int) -> None:
            tell(mutant, by, seconds)
            done.update({name: {**entry, "commit": commit} for name, entry in server.found.items()})
            write(options.log, what, [done[name] for name in mutants if name in done])

        server.tell = told  # type: ignore[method-assign]
        files = sorted({name.partition("::")[0] for name in reach.seconds})
        pytest.main([*PYTEST, "--continue-on-collection-errors", f"--basetemp={folder}/pytest", *files], plugins=[server])
    return 0


if __name__ == "__main__":
    sys.exit(main())
