"""Shared by all tests: their levels, the order of files, in how many processes they run, the Hypothesis profiles.

``PLACEPROOF_PROFILE=nightly`` searches long, with new examples each time; a run that decides whether a change lands takes the
same examples each time, so that it judges the change and not the draw.

``PLACEPROOF_ONLY=torch`` leaves out what runs without PyTorch alike, so that nothing runs twice where the whole suite runs without it, too.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import levels
import pytest
from hypothesis import HealthCheck, settings
from verdict_counts import COUNTS

settings.register_profile(
    "default", deadline=None, max_examples=20, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("PLACEPROOF_PROFILE", "default"))

#: Lines are as long as they are, but where a test says how wide they may be.
os.environ.pop("COLUMNS", None)

#: Thousands of tests are read, and stay: a collector that walks over them again and again takes a sixth of the time; and one that comes
#: as often as it usually does a tenth of what tests take after that.
gc.disable()
gc.set_threshold(100_000, 20, 20)
_SEEN: dict[str, Counter[str]] = {}
_TORCH = re.compile(r"""(importorskip|find_spec)\("torch"|\bneeds?_torch\b""")
#: Seconds of tests from which on it is worth while to start processes, each of which reads the files of tests for itself.
_WORTH_WHILE = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    night = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
    said = "leave out tests that take longer (tests/README.md)"
    parser.addoption("--level", type=int, choices=(0, 1, 2, 3), default=3 if night else 2, help=said)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_case: each case is of something else, and none is left out where all together take long")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """What takes few seconds by the record runs in this process; where it says more, xdist asks how many cores there are."""
    named = [str(Path(config.invocation_params.dir, arg.partition("::")[0]).resolve()) for arg in config.args]
    seconds = levels.seconds([name.removeprefix(f"{config.rootpath}/") for name in named], config.option.level)
    return 0 if seconds < _WORTH_WHILE else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("PLACEPROOF_ONLY") == "torch":
        _keep(config, items, {item.nodeid for item in items if _needs_torch(item)})
    if config.option.level < 2 or (not config.option.keyword and not any("[" in arg for arg in config.args)):
        whole = {levels.function(item.nodeid) for item in items if item.get_closest_marker("every_case")}
        _keep(config, items, levels.kept([item.nodeid for item in items], config.option.level, whole))
    slowest = levels.slowest_of_files()
    items.sort(key=lambda item: -slowest.get(item.nodeid.partition("::")[0], 0.0))  # no core is idle at the end


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def _keep(config: pytest.Config, items: list[pytest.Item], names: Collection[str]) -> None:
    if left := [item for item in items if item.nodeid not in names]:
        config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item.nodeid in names]


def _needs_torch(item: pytest.Item) -> bool:
    """Whether the test, a fixture, or a function of its module that it calls asks for torch; or its whole module does."""
    module = inspect.getmodule(item.function)  # type: ignore[attr-defined]
    if module is None or re.search(r"^(torch = )?pytest(mark)?\b.*torch", inspect.getsource(module), re.MULTILINE):
        return True
    page = getattr(item, "callspec", None) and item.callspec.params.get("page")  # type: ignore[attr-defined]
    if page is not None and hasattr(page, "read_text"):
        return "<!-- needs: torch -->" in page.read_text(encoding="utf-8")
    fixtures = [d.func for found in item._fixtureinfo.name2fixturedefs.values() for d in found]  # type: ignore[attr-defined]
    seen: set[object] = set()
    return any(_mentions(f, module, seen) for f in (item.function, *fixtures))  # type: ignore[attr-defined]


def _mentions(function: Any, module: Any, seen: set[object]) -> bool:
    function = inspect.unwrap(getattr(getattr(function, "hypothesis", None), "inner_test", function))
    if function in seen or getattr(function, "__module__", None) != module.__name__:
        return False
    seen.add(function)
    if _TORCH.search(inspect.getsource(function)):
        return True
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    return any(_mentions(found, module, seen) for n in names if inspect.isfunction(inspect.unwrap(found := getattr(module, n, None))))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker process hands its counts to the one that prints."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["verdicts"] = {subject: dict(counts) for subject, counts in COUNTS.items()}
    else:
        _add(COUNTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _add(getattr(node, "workeroutput", {}).get("verdicts", {}))


def _add(found: Mapping[str, Mapping[str, int]]) -> None:
    for subject, counts in found.items():
        _SEEN.setdefault(subject, Counter()).update(counts)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for subject, counts in sorted(_SEEN.items()):
        total = sum(counts.values())
        shown = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
        terminalreporter.write_line(f"{subject}: {shown}; unknown {100 * counts['unknown'] / total:.1f}% of {total}")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch computes with one thread, and with as many as before after the test."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
