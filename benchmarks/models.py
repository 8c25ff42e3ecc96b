"""A model under a strategy: deriving it, one configuration of a compiled formula, and many at once."""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
from sympy.core.cache import clear_cache

from placeproof.cost.closed import tidy
from placeproof.cost.model import derive_model
from placeproof.models import load
from placeproof.strategies import parse_strategy

MODEL, STRATEGY, KEY = "llama3-405b", "hsdp * tp * sp * cp * pp", "first stage.peak"
NAMES = ("N_rep", "N_shard", "N_tp", "N_cp", "N_pp", "b", "m", "b_theta", "b_g", "b_omega", "b_a")
RUNS, CALLS, COUNT = 15, 2_000, 1_000_000
DERIVED, CALLED, RATE = 0.300, 20e-6, 1e6


def derived() -> float:
    clear_cache()
    tidy.cache_clear()
    start = time.perf_counter()
    assert derive_model(load(MODEL), parse_strategy(STRATEGY)).forms
    return time.perf_counter() - start


def called() -> tuple[float, float]:
    """Seconds of one call with numbers, and configurations a second of one call with arrays."""
    function = derive_model(load(MODEL), parse_strategy(STRATEGY)).compile(KEY, NAMES)
    widths = (2.0, 2.0, 12.0, 2.0)
    start = time.perf_counter()
    for i in range(CALLS):
        function(2.0, 8.0, 8.0, 2.0, 4.0, 1.0, 16.0 + i % 8, *widths)
    once = (time.perf_counter() - start) / CALLS
    random = np.random.default_rng(1)
    degrees = [random.integers(1, 65, COUNT).astype(np.float64) for _ in range(7)]
    start = time.perf_counter()
    result = function(*degrees, *widths)
    taken = time.perf_counter() - start
    assert result.shape == (COUNT,)
    return once, COUNT / taken


def main() -> int:
    derived()
    taken = statistics.median(derived() for _ in range(RUNS))
    once, rate = called()
    print(f"derive {MODEL!r} under {STRATEGY!r}, caches emptied: {1e3 * taken:.0f} ms (median of {RUNS}, bound {1e3 * DERIVED:.0f})")
    print(f"{KEY!r} compiled, one configuration: {1e6 * once:.1f} us (bound {1e6 * CALLED:.0f})")
    print(f"{COUNT:,} at once: {rate / 1e6:.1f} million a second (bound {RATE / 1e6:.0f})")
    return int("--check" in sys.argv and (taken > DERIVED or once > CALLED or rate < RATE))


if __name__ == "__main__":
    sys.exit(main())
