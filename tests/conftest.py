"""Shared by all tests: the Hypothesis profiles.

``PLACEPROOF_PROFILE=nightly`` searches long, with new examples each time; a run that decides whether a change lands takes the
same examples each time, so that it judges the change and not the draw.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from verdict_counts import COUNTS

settings.register_profile("default", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("PLACEPROOF_PROFILE", "default"))

_SEEN: dict[str, Counter[str]] = {}


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
