"""Measured runs, as data: what was run, what was measured, and where that was published; and tables of one's own."""

from placeproof.runs.measured import MeasuredRun, RunAs
from placeproof.runs.plans import PlanRow, read_plans
from placeproof.runs.runs import UNITS, KnownTimes, RunSet, like, named, reserved, run_sets, timed_on

__all__ = [
    "UNITS",
    "KnownTimes",
    "MeasuredRun",
    "PlanRow",
    "RunAs",
    "RunSet",
    "like",
    "named",
    "read_plans",
    "reserved",
    "run_sets",
    "timed_on",
]
