"""Runs on real devices that others measured: what predictions are held against."""

from placeproof.runs.runs import UNITS, MeasuredRun, RunSet, like, named, reserved, run_sets

__all__ = ["UNITS", "MeasuredRun", "RunSet", "like", "named", "reserved", "run_sets"]
