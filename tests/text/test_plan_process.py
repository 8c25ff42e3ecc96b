"""The process of ``placeproof plan``: other processes that work for it, the line on a terminal, and interrupts."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked there")

ASKED = ["plan", "--model", "gpt3-125m", "--cluster", "dgx-a100-80", "--devices", "2", "--global-batch", "4", "--top", "2", "--json"]
ASKED += ["--only", "recompute=full", "--forbid", "cp", "--only", "data=zero1", "--only", "schedule=1f1b,zb-h1"]
PLACEPROOF = [sys.executable, "-c", "from placeproof.cli.main import main; main()"]


def answered(*more: str) -> Any:
    ran = subprocess.run([*PLACEPROOF, *ASKED, *more], check=True, capture_output=True, text=True)
    assert ran.stderr == ""
    return json.loads(ran.stdout)


def interrupted(word: str, folder: Path) -> tuple[int, str, str]:
    """What a search ends with that is interrupted as soon as its line has a word: the code, what it printed, and its messages."""
    asked = [*ASKED]
    for option, value in (("--top", "100"), ("--devices", "8"), ("--global-batch", "64")):  # so that much is left to do
        asked[asked.index(option) + 1] = value
    ours, its = pty.openpty()
    with (folder / "out").open("w") as out:
        process = subprocess.Popen([*PLACEPROOF, *asked, "--jobs", "2"], stdout=out, stderr=its)
    os.close(its)
    told = ""
    while word not in told:
        told += os.read(ours, 4096).decode()
    process.send_signal(signal.SIGINT)
    code = process.wait(timeout=60)
    told += os.read(ours, 4096).decode()
    os.close(ours)
    return code, (folder / "out").read_text(), told


def test_the_answer_is_the_same_in_several_processes() -> None:
    alone, shared = answered("--jobs", "1"), answered("--jobs", "3")
    assert alone == shared
    assert alone["complete"]
    assert len(alone["plans"]) == 2
    assert list(alone["cut"]) == list(shared["cut"])


def test_an_interrupt_gives_the_best_so_far(tmp_path: Path) -> None:
    code, out, told = interrupted("2 placements derived", tmp_path)
    assert code == 130
    assert told.endswith("interrupted\r\n")
    assert "\x1b[K" in told
    data = json.loads(out)
    assert not data["complete"]
    assert data["plans"]
    assert all(plan["verdict"] in ("proved", None) for plan in data["plans"])
    assert data["reasons"] == []
