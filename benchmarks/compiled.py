"""Ten million configurations through one compiled formula."""

from __future__ import annotations

import sys
import time

import numpy as np

import placeproof

COUNT = 10_000_000
BOUND = 2.0


def main() -> int:
    d = placeproof.derive("zero1 * tp * pp")
    names = ("P", "N_dp", "N_tp", "N_pp", "b_theta", "b_g", "b_omega")
    function = d.compile("memory.model_states", names)
    random = np.random.default_rng(1)
    degrees = [random.integers(1, 65, COUNT).astype(np.float64) for _ in range(3)]
    parameters = random.uniform(1e9, 1e12, COUNT)
    start = time.perf_counter()
    result = function(parameters, *degrees, 2.0, 2.0, 12.0)
    taken = time.perf_counter() - start
    assert result.shape == (COUNT,)
    print(f"{COUNT:,} configurations of {d.name}: {taken:.2f} s (bound {BOUND})")
    return int("--check" in sys.argv and taken > BOUND)


if __name__ == "__main__":
    sys.exit(main())
