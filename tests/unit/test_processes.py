"""Processes that end in every way, and what is left of them: nothing."""

import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.measure import processes
from placeproof.measure.processes import message, run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")


def children() -> set[int]:
    """The processes, zombies too, that come from this one, read from /proc."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            found[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while more := {pid for pid, parent in found.items() if parent in ours and pid not in ours}:
        ours |= more
    return ours - {os.getpid()}


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """No process, no file, no open descriptor, no signal handler."""
    monkeypatch.setattr(processes.tempfile, "tempdir", str(tmp_path))
    before = children(), len(os.listdir("/proc/self/fd")), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    after = children(), len(os.listdir("/proc/self/fd")), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert after == before
    assert list(tmp_path.iterdir()) == []


def kinds(outcomes):
    return [one.kind for one in outcomes]


def test_values_come_back_by_rank_with_the_output():
    def job(rank, world, directory):
        print(f"rank {rank} of {world}")
        print("a warning", file=sys.stderr)
        (directory / str(rank)).write_text("x")
        return rank * rank

    outcomes = run(4, job, init=False)
    assert [one.value for one in outcomes] == [0, 1, 4, 9]
    assert [one.rank for one in outcomes] == [0, 1, 2, 3]
    assert all(one.output == f"rank {one.rank} of 4\na warning\n" for one in outcomes)
    assert message(outcomes) == "all 4 ranks ended well"


def test_the_process_group_is_there_and_starting_is_quick():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

    def job(rank, world, directory):
        tensor = torch.full((3,), 2**rank, dtype=torch.int64)
        torch.distributed.all_reduce(tensor)
        return tensor.tolist(), torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]

    run(1, job)
    began = time.monotonic()
    for _ in range(3):
        assert [one.value for one in run(2, job)] == [([3, 3, 3], 1, "1")] * 2
    assert time.monotonic() - began < 3
    assert "torch.distributed" in sys.modules
    assert not torch.distributed.is_initialized()


def test_a_large_value_and_one_that_cannot_be_pickled():
    def job(rank, world, directory):
        return bytes(20_000_000) if rank == 0 else (lambda: 0)

    large, not_pickled = run(2, job, init=False)
    assert large.value == bytes(20_000_000)
    assert not_pickled.kind == "error"
    assert "pickle" in not_pickled.error.lower()


def test_an_exception_has_its_traceback_and_says_who_came_first():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

    def job(rank, world, directory):
        if rank == 1:
            raise ValueError("no such shard")
        torch.distributed.all_reduce(torch.ones(2))

    began = time.monotonic()
    outcomes = run(3, job, collective_timeout=5)
    assert time.monotonic() - began < 4  # the others learn of it from their connections
    assert kinds(outcomes) == ["error"] * 3
    assert "Traceback" in outcomes[1].error
    assert message(outcomes).splitlines()[0] == "rank 1 failed: ValueError: no such shard"
    assert message(outcomes).splitlines()[1] == "ranks 0, 2 then lost the connection to another rank"


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_death_by_a_signal(number):
    def job(rank, world, directory):
        if rank == 1:
            os.kill(os.getpid(), number)
        return rank

    outcomes = run(2, job, init=False)
    assert kinds(outcomes) == ["ok", "signal"]
    assert outcomes[1].error == number.name
    assert message(outcomes).splitlines() == [f"rank 1 died by {number.name}", "rank 0 ended well"]


def test_the_others_are_stopped_when_one_died():
    def job(rank, world, directory):
        if rank == 1:
            os.abort()
        time.sleep(60)

    began = time.monotonic()
    outcomes = run(3, job, init=False, collective_timeout=0.3)
    assert time.monotonic() - began < 5
    assert kinds(outcomes) == ["timeout", "signal", "timeout"]
    assert "after rank 1 had failed" in outcomes[0].error
    assert "in job" in outcomes[0].output  # where it stood


def test_the_whole_run_has_a_time_limit():
    def job(rank, world, directory):
        if rank == 0:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
            time.sleep(60)
        return "here"

    began = time.monotonic()
    outcomes = run(2, job, init=False, timeout=0.5)
    assert time.monotonic() - began < 3
    assert kinds(outcomes) == ["timeout", "ok"]
    assert "the whole run was stopped after 0.5 s" in message(outcomes)


@pytest.mark.parametrize("computes", [True, False])
def test_ranks_that_wait_while_none_computes(computes):
    """One waits, and looks for a file now and then, as processes that meet do; the other one computes for as long, or waits, too."""

    def job(rank, world, directory):
        until = time.monotonic() + (2.5 if computes else 60)
        while time.monotonic() < until:
            if rank and computes:
                sum(range(10_000))
            else:
                time.sleep(0.02)
                (directory / "never").exists()
        return "here"

    began = time.monotonic()
    outcomes = run(2, job, init=False, idle=1)
    assert time.monotonic() - began < 10
    assert kinds(outcomes) == (["ok", "ok"] if computes else ["timeout", "timeout"])
    assert computes or "none had computed anything for 1 s" in message(outcomes)


def test_a_rank_that_leaves_others_in_a_collective():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

    def job(rank, world, directory):
        if rank == 0:
            torch.distributed.all_reduce(torch.ones(2))
        return rank

    outcomes = run(2, job, collective_timeout=1)
    assert kinds(outcomes) == ["timeout", "ok"]
    assert message(outcomes).splitlines() == ["rank 0 waited 1 s for another rank, in vain", "rank 1 ended well"]


def test_exits_are_no_values():
    def job(rank, world, directory):
        (sys.exit if rank < 2 else os._exit)(0 if rank == 1 else 3)

    outcomes = run(3, job, init=False)
    assert kinds(outcomes) == ["error"] * 3
    assert "SystemExit: 3" in outcomes[0].error
    assert "SystemExit: 0" in outcomes[1].error
    assert outcomes[2].error == "the process ended with exit status 3 and no result"


def test_what_a_process_started_goes_with_it():
    def job(rank, world, directory):
        if os.fork() == 0:
            time.sleep(60)
        os._exit(1)

    assert kinds(run(2, job, init=False)) == ["error", "error"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_the_caller_ends_everything_first(number):
    def job(rank, world, directory):
        time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    others = children()  # of other tests of this process: a resource tracker, for one
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started without them
    came = []
    signal.signal(signal.SIGTERM, lambda n, frame: came.append((n, children() - others)))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), number))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(3, job, init=False)
        assert came == ([(signal.SIGTERM, set())] if number == signal.SIGTERM else [])
    finally:
        timer.join()
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupts)


def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    """Where the system can tell a child of its parent's death."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells a child that its parent is gone")

    def job(rank, world, directory):
        (noted / str(rank)).write_text(str(os.getpid()))
        time.sleep(60)

    noted = tmp_path / "noted"
    noted.mkdir()
    parent = os.fork()
    if parent == 0:
        try:
            run(2, job, init=False)
        finally:
            os._exit(0)
    deadline = time.monotonic() + 10
    while len([p for p in noted.iterdir() if p.read_text()]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pids = [int(p.read_text()) for p in noted.iterdir()]
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    while any(running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for left in sorted(tmp_path.rglob("*"), reverse=True):  # a process that is killed cannot clean up
        left.rmdir() if left.is_dir() else left.unlink()


def running(pid):
    """Whether a process is there and not a zombie that its new parent has not yet collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("world", "remedy"), [(1000, "at most 64"), (65, "at most 64"), (0, "at least one")])
def test_a_number_of_processes_that_cannot_be_run(world, remedy):
    with pytest.raises(InputError) as raised:
        run(world, lambda rank, size, directory: None)
    (one,) = raised.value.diagnostics
    assert str(world) in one.message
    assert remedy in one.help


def test_a_message_is_short():
    def job(rank, world, directory):
        raise ValueError("x" * 10_000)

    (one,) = run(1, job, init=False)
    assert len(message([one])) < 300
    assert pickle.loads(pickle.dumps(one)) == one
