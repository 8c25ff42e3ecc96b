"""Runs on real devices that others measured: what predictions are held against."""

from placeproof.runs.runs import GIB, MeasuredRun, RunSet, like, named, reserved, run_sets

__all__ = ["GIB", "MeasuredRun", "RunSet", "like", "named", "reserved", "run_sets"]
