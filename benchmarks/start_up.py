"""`placeproof derive zero3` as a whole process against `python -c "import sympy"`, run in turn so that drift hits both."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 15
BOUND = 1.3


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    ours = [str(Path(sys.executable).parent / "placeproof"), "derive", "zero3"]
    theirs = [sys.executable, "-c", "import sympy"]
    for command in (ours, theirs):
        seconds(command)  # warm-up
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(RUNS)]
    ratio = statistics.median(a / b for a, b in pairs)
    medians = [statistics.median(p[i] for p in pairs) for i in (0, 1)]
    print(f"placeproof derive zero3   {1e3 * medians[0]:6.0f} ms (median of {RUNS})")
    print(f"python -c 'import sympy'  {1e3 * medians[1]:6.0f} ms")
    print(f"ratio, pair by pair       {ratio:6.2f} (bound {BOUND})")
    return int("--check" in sys.argv and ratio > BOUND)


if __name__ == "__main__":
    sys.exit(main())
