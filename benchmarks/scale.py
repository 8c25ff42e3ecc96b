"""Steps on many devices and of many micro-batches, as whole processes: how long, and how much memory, beside a step of few."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODEL = ("--model", "llama3-8b", "--set", "b=1", "--cluster", "dgx-h100")
#: Each step beside a small one of its kind.
STEPS = (
    (("fsdp(8)",), ("fsdp(12288)",)),
    (("fsdp(8)",), ("fsdp(100000)",)),
    (("fsdp(8)",), ("fsdp(99991)",)),
    (("fsdp(8)",), ("hsdp(100000, shard=8)",)),
    (("pp(4)", "--set", "m=8"), ("pp(4)", "--set", "m=1000000")),
    (("pp(8, schedule=interleaved, chunks=2)", "--set", "m=8"), ("pp(8, schedule=interleaved, chunks=2)", "--set", "m=1000000")),
)
#: Seconds of a processor that a large step may take more than a small one, and megabytes that it may hold.
MORE, HELD = 1.5, 500


def measured(arguments: tuple[str, ...]) -> tuple[float, float]:
    """Seconds of a processor, and megabytes at most, of one process."""
    program = Path(sys.executable).parent / "placeproof"
    with subprocess.Popen((program, "derive", *arguments, *MODEL), stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> int:
    missed = False
    for few, many in STEPS:
        (short, _), (taken, held) = measured(few), measured(many)
        print(f"{' '.join(many)}: {taken:.2f} s, {held:.0f} MB; {' '.join(few)}: {short:.2f} s (bounds {MORE} s more, {HELD} MB)")
        missed |= taken > short + MORE or held > HELD
    return int("--check" in sys.argv and missed)


if __name__ == "__main__":
    sys.exit(main())
