"""How long each command lives after Ctrl-C, at several moments of its work: ``python benchmarks/interrupts.py``.

Each command is started as a terminal starts it, in a process group of its own, and the whole group is interrupted. The exit code is 1 if a
command lives longer than a second, ends otherwise than with 130, or leaves a process, or a file of its cache that is not whole.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Seconds after the start; sooner Python itself has not begun.
MOMENTS = (0.1, 0.3, 1, 2, 4)
LIMIT = 1.0
SCRIPT = """
import time
import torch
import torch.distributed as dist
from torch import nn

def train():
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10_000):
        net(torch.randn(2, 4)).sum().backward()
        time.sleep(0.01)
    opt.step()
"""
STEP = """mesh(dp)
g = backward(parameters)
parameters, optimizer = update(parameters, optimizer, g)
"""
#: With torch alone.
WITH_TORCH = ("measure", "experiment", "trace", "shapes", "calibrate", "replay")
_LARGE = ("--model", "llama3-70b", "--cluster", "dgx-h100")
COMMANDS = {
    "derive": ["derive", "fsdp(64) * tp(8) * sp * pp(8)", *_LARGE, "--full"],
    "compare": ["compare", *(f"fsdp({n}) * tp({t})" for n in (8, 16, 32, 64) for t in (2, 4, 8)), *_LARGE],
    "diff": ["diff", "fsdp(64) * tp(8)", "zero1(64) * tp(8) * pp(8)", *_LARGE],
    "fit": ["fit", "fsdp(64) * tp(8) * pp(8)", *_LARGE],
    "explore": ["explore"],
    "plan": ["plan", *_LARGE, "--devices", "1024", "--global-batch", "512"],
    "plan --sweep": ["plan", "--sweep", "sweep.toml", "--jobs", "2"],
    "prove": ["prove", "--catalogue"],
    "check": ["check", str(ROOT / "theorems")],
    "verify": ["verify", "-"],
    "accuracy": ["accuracy", "nvidia", "--each"],
    "list": ["list", "theorems"],
    "explain": ["explain", "zb-h1"],
    "completion": ["completion", "bash"],
    "measure": ["measure", "fsdp(4)"],
    "shapes": ["shapes", "script.py"],
    "replay": ["replay", "c.json"],
    "experiment": ["experiment", "all"],
    "trace": ["trace", "record", "script.py", "-o", "out.step"],
    "calibrate": ["calibrate", "dgx-h100", "--from", "nvidia"],
}
SWEEP = """cluster = "dgx-h100"
global_batch = 64
[grid]
model = ["llama3-8b", "llama3-70b"]
devices = [8, 16, 32]
"""


def interrupted(argv: list[str], folder: Path, moment: float) -> tuple[int, float, str]:
    """The exit code, how long it lived after the interrupt, and what it left; nothing left is an empty text."""
    cache = folder / "cache"
    env = os.environ | {"PLACEPROOF_CACHE": str(cache), "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-m", "placeproof", *argv], cwd=folder, env=env, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(moment)
    began, done = time.monotonic(), process.poll() is not None
    if not done:
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    took = time.monotonic() - began
    left = "" if process.returncode == 130 or (done and process.returncode in (0, 1)) else err.decode(errors="replace").strip()[-200:]
    while time.monotonic() - began < LIMIT and _lives(process.pid):
        time.sleep(0.01)
    if _lives(process.pid):
        left = left or "a process"
        os.killpg(process.pid, signal.SIGKILL)
    for file in cache.rglob("*.json"):
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            left = f"{file.name} is not whole"
    return (-1 if done else process.returncode), took, left


def _lives(group: int) -> bool:
    """Whether a process of a group is left that has not ended, as Linux tells."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
        except OSError:  # it has ended meanwhile
            continue
        if int(of) == group and state != "Z":
            return True
    return False


def main() -> int:
    """A line for each command and moment; 1 if something is not as it should be."""
    wanted, wrong = sys.argv[1:], 0
    try:
        import torch  # noqa: F401
    except ImportError:
        for name in WITH_TORCH:
            COMMANDS.pop(name)
    for name, argv in COMMANDS.items():
        if wanted and name not in wanted:
            continue
        for moment in MOMENTS:
            with tempfile.TemporaryDirectory() as path:
                folder = Path(path)
                (folder / "script.py").write_text(SCRIPT)
                (folder / "wrong.step").write_text(STEP)
                (folder / "sweep.toml").write_text(SWEEP)
                if name == "replay":
                    asked = [sys.executable, "-m", "placeproof", "prove", "wrong.step", "--json"]
                    made = subprocess.run(asked, cwd=folder, capture_output=True, check=False)
                    (folder / "c.json").write_bytes(made.stdout)
                code, took, left = interrupted(argv, folder, moment)
            bad = code not in (-1, 130) or (code != -1 and took > LIMIT) or bool(left)
            wrong += bad
            ended = "had ended" if code == -1 else f"exit {code} after {took:.2f} s"
            print(f"{name:14} {moment:5} s  {ended}{'  WRONG' if bad else ''} {left}".rstrip(), flush=True)
            if code == -1:
                break
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
