"""Processes that do a search's work: what they give, also where one of them ends or a task fails. Each case runs without threads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked there")

BEGIN = """
import json, os, signal, time
from placeproof.planning.crew import Crew
HERE = os.getpid()
def square(n):
    return n * n, os.getpid() != HERE
def gone(n):
    if os.getpid() != HERE:
        os.kill(os.getpid(), signal.SIGKILL)
    return n
def fails(n):
    raise ValueError(n)
WORK = {"square": square, "gone": gone, "fails": fails, "sleep": time.sleep}
"""


def printed(script: str) -> Any:
    ran = subprocess.run([sys.executable, "-c", BEGIN + script], check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return json.loads(ran.stdout)


def test_others_do_what_the_process_itself_would() -> None:
    script = """
found = []
for jobs in (1, 2, 3):
    with Crew(jobs, WORK) as crew:
        found.append([len(crew.workers), sorted(crew.each("square", range(5))), crew.answer(crew.begin("square", 7, 1))])
print(json.dumps(found))
"""
    alone, *others = printed(script)
    assert alone == [0, [[n, [n * n, False]] for n in range(5)], [49, False]]
    assert others == [[jobs, [[n, [n * n, True]] for n in range(5)], [49, True]] for jobs in (2, 3)]


def test_the_work_of_a_process_that_ended_is_done() -> None:
    script = """
with Crew(2, WORK) as crew:
    first = crew.begin("square", 3)
    each = sorted(crew.each("gone", range(4)))
    ended = len(crew.workers) < 2  # one that is slow with its square is given nothing else
    print(json.dumps([each, ended, crew.answer(crew.begin("square", 2))[0], crew.answer(first)[0]]))
"""
    assert printed(script) == [[[n, n] for n in range(4)], True, 4, 9]


def test_what_a_task_raises_is_raised_where_it_is_asked_for() -> None:
    script = """
with Crew(2, WORK) as crew:
    number = crew.begin("fails", 5)
    try:
        crew.answer(number)
    except ValueError as error:
        print(json.dumps([str(error), len(crew.workers), crew.answer(crew.begin("square", 2))[0]]))
"""
    assert printed(script) == ["5", 2, 4]


def test_nobody_is_left_behind() -> None:
    script = """
with Crew(2, WORK) as crew:
    crew.begin("sleep", 600)
    pids = [worker.process.pid for worker in crew.workers]
print(json.dumps([os.path.exists(f"/proc/{pid}") for pid in pids]))
"""
    assert printed(script) == [False, False]
    orphaned = """
crew = Crew(2, WORK)
crew.begin("sleep", 600)
print(json.dumps([worker.process.pid for worker in crew.workers]), flush=True)
os._exit(0)
"""
    pids = printed(orphaned)  # which ends as soon as nobody holds the output: all have ended
    assert len(pids) == 2


def test_a_process_with_threads_is_not_forked() -> None:
    script = """
import threading
done = threading.Event()
threading.Thread(target=done.wait).start()
with Crew(2, WORK) as crew:
    print(json.dumps([len(crew.workers), list(crew.each("square", [3]))]))
done.set()
"""
    assert printed(script) == [0, [[0, [9, False]]]]
