"""Records how long tests take: `python tests/helpers/times.py`, with what pytest is to run: whole files or folders, `-n 2`.

Writes `tests/times.json`, from which the levels of tests follow. Seconds are those of the processor, of a test and of the processes that it
starts, with what it shares with other tests of its file: what else the machine does at the same time makes little difference. What is not
run keeps its rows.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from levels import RECORD, SLOW, Row, function, rows

#: The name by which a report brings the seconds from the process that ran the test.
_PROPERTY = "processor seconds"
_SECONDS: dict[str, list[float]] = defaultdict(list)
#: Seconds of each fixture that several tests share; those that were there before the test that runs; when it began.
_SHARED: dict[Any, float] = {}
_EARLIER: set[Any] = set()
_BEGAN = [0.0]


def _processor() -> float:
    """Seconds that this process and those that it started and waited for have computed."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    """What several tests share costs each of them its time: any of them may be the only one that is run."""
    began = _processor()
    made = yield
    if fixturedef.scope != "function":
        _SHARED[fixturedef] = _processor() - began
    return made


def pytest_runtest_logstart() -> None:
    """A test begins."""
    _BEGAN[0] = _processor()
    _EARLIER.update(_SHARED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any) -> Iterator[None]:
    """The report of the last phase says the seconds of all."""
    report: Any = yield
    if report.when == "teardown":
        used = {d for definitions in item._fixtureinfo.name2fixturedefs.values() for d in definitions} & _EARLIER
        seconds = _processor() - _BEGAN[0] + max((_SHARED[d] for d in used), default=0.0)
        report.user_properties.append((_PROPERTY, seconds))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """One phase of one test."""
    _SECONDS[function(report.nodeid)] += [seconds for name, seconds in report.user_properties if name == _PROPERTY]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The process that the others report to writes the record."""
    if not hasattr(session.config, "workerinput"):
        asked = session.config.option
        whole = asked.level == 3 and not asked.keyword and not any("::" in name for name in session.config.args)
        new = {name: (len(seconds), round(max(seconds), 2), round(sum(seconds), 2)) for name, seconds in _SECONDS.items() if seconds}
        write(new, whole=whole)


def write(new: dict[str, Row], *, whole: bool = False) -> None:
    """Rows of functions that ran in place of theirs, but for quick ones. Fewer cases than recorded can only show that one is slower, unless
    they are all that the ``whole`` file has."""
    files: dict[str, list[str]] = defaultdict(list)
    for name, (cases, slowest, together) in sorted((rows() | new).items()):
        of, most, all_ = rows().get(name, (0, 0.0, 0.0))
        row = (of, max(most, slowest), all_) if cases < of and not whole else (cases, slowest, together)
        if row[1] >= SLOW[0] or row[2] >= SLOW[0]:
            file, _, test = name.partition("::")
            files[file].append(f"{json.dumps(test)}: {json.dumps(row)}")
    text = ",\n".join(f"{json.dumps(file)}: {{\n " + ",\n ".join(lines) + "\n}" for file, lines in files.items())
    RECORD.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(pytest.main(["-p", "times", "--level", "3", *sys.argv[1:]]))
