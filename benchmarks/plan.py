"""`placeproof plan` as a whole process: GPT-3 175B on 64 devices, over more than 3.23 million points; with `--large`, over more than 100
million. Seconds, those of all processors together, memory of the largest process, and where Ctrl-C is heard, how soon it ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

CHUNKS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 32)
SCHEDULES = ",".join(["1f1b", "gpipe", "zb-h1", "zb-h2", *(f"interleaved:{n}" for n in CHUNKS)])
#: What is asked -> points that it has at least, and seconds and gigabytes that it may take.
ASKED = {
    "--devices 64 --global-batch 1536": (3_230_000, 10, 1),
    "--devices 4608 --global-batch 73728": (100_000_000, 120, 8),
}


def command(asked: str) -> list[str]:
    of = f"plan --model gpt3-175b --cluster dgx-a100-80 {asked} --only schedule={SCHEDULES} --json"
    return [str(Path(sys.executable).parent / "placeproof"), *of.split()]


def measured(asked: str) -> bool:
    """Whether the answer came within its bounds."""
    least, seconds, gigabytes = ASKED[asked]
    print("placeproof", *command(asked)[1:])
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    found = json.loads(subprocess.run(command(asked), check=True, stdout=subprocess.PIPE).stdout)
    took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    points, memory = found["grid"]["points"], after.ru_maxrss / 1e6
    print(f"  {points:,} points in {took:.1f} s (bound {seconds}) on {os.cpu_count()} cores, {after.ru_utime - before:.1f} s of computing")
    print(
        f"  {memory:.2f} GB in the largest process (bound {gigabytes}); {found['derived']} placements derived, {len(found['plans'])} listed"
    )
    return points >= least and took <= seconds and memory <= gigabytes


def interrupted(after: float) -> bool:
    """Whether a search ends soon that is interrupted after so many seconds."""
    process = subprocess.Popen(command(next(iter(ASKED))), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    start = time.perf_counter()
    out, _ = process.communicate()
    took = time.perf_counter() - start
    plans = len(json.loads(out)["plans"]) if out else 0
    print(f"interrupted after {after:.0f} s: ended {took:.2f} s later (bound 1), exit code {process.returncode}, {plans} plans so far")
    return took <= 1 and process.returncode == 130


def main() -> int:
    every = list(ASKED) if "--large" in sys.argv else list(ASKED)[:1]
    within = [*(measured(asked) for asked in every), interrupted(6)]
    return int("--check" in sys.argv and not all(within))


if __name__ == "__main__":
    sys.exit(main())
