"""Verdicts that tests against brute force count; the run's summary prints them, from all of its processes."""

from __future__ import annotations

from collections import Counter

COUNTS: dict[str, Counter[str]] = {}


def count(subject: str, verdict: str) -> None:
    COUNTS.setdefault(subject, Counter())[verdict] += 1
