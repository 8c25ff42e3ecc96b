"""A function run by several real processes of this machine, joined by gloo, of which nothing is left behind.

The processes are forked, so that what the caller imported is there at once, and meet through a file: no port is opened. The parent
watches all of them. Whatever happens to one (an exception, a signal, an endless wait), the others are stopped in bounded time.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from pathlib import Path
from types import FrameType
from typing import Generic, Literal, NoReturn, TypeVar

from placeproof.core.diagnostics import Problems

T = TypeVar("T")
Kind = Literal["ok", "error", "signal", "timeout"]
Function = Callable[[int, int, Path], T]

#: The most processes of one run: each takes some 50 MB, and gloo joins every two of them.
MOST = 64
#: How much longer than a collective's own time-out a process may go on after another one has failed, in seconds.
_GRACE = 1.0
#: How long a process has to write down where it stands before it is killed, in seconds.
_LAST_WORDS = 0.2
#: How often it is seen whether processes compute, in seconds, and how many ticks of the processor's time waiting takes in a second.
_LOOKS, _WAITING_TICKS = 0.2, 5
#: What torch and gloo say when a collective, or the store at which processes meet, gave up waiting.
_WAITED = re.compile(r"timed out|wait timeout|timeout after", re.IGNORECASE)
#: How gloo says how long it waited, and where in its own sources it says a thing.
_GAVE_UP = re.compile(r"Timed out waiting (\d+)ms")
_SOURCE = re.compile(r"\[[^\]]*\.cc:\d+\] ?")
#: What gloo says when the process at the other end is gone: never the first failure.
_PEER_GONE = re.compile(r"Connection closed by peer|Connection reset by peer|Broken pipe", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[T]):
    """How one process ended.

    ``kind``: "ok" with the function's ``value``; "error", an exception or an exit of its own; "signal", killed by one; "timeout", it
    waited for too long, in a collective or altogether. ``error``: the exception with its traceback, the signal's name, or what timed
    out; None if all went well. ``output``: what the process wrote to stdout and stderr. ``seconds``: from the start until it ended.
    """

    rank: int
    kind: Kind
    value: T | None = None
    error: str | None = None
    output: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class _Child:
    """A process as the parent sees it. ``status``: of its exit, None while it runs. ``done``: seconds until nothing more was to come."""

    rank: int
    pid: int
    folder: Path
    status: int | None = None
    done: float | None = None
    failed: bool = False
    stopped: str = ""

    @property
    def result(self) -> Path:
        return self.folder / f"{self.rank}.result"

    @property
    def output(self) -> Path:
        return self.folder / f"{self.rank}.output"


def run(
    world: int,
    function: Function[T],
    *,
    timeout: float = 60,
    collective_timeout: float = 20,
    idle: float = inf,
    init: bool = True,
    preload: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[Outcome[T]]:
    """Call ``function(rank, world, directory)`` in ``world`` forked processes, and say how each ended, by rank.

    ``directory`` is empty, the same for all, and removed at the end. With ``init`` the default process group of gloo is there, and a
    collective of it gives up after ``collective_timeout`` seconds. ``timeout``: seconds for the whole run; ``idle``: seconds in which
    no process computes anything, after which all are stopped, where the system tells. ``preload``: modules to
    import before the fork; what only a child imports is imported by each child anew. ``environment``: variables to set in the processes
    beside those of a launcher; None to set none.

    A process that failed leaves the others ``collective_timeout`` seconds. A value has to be one that can be pickled. An interrupt of
    the caller ends all processes first. Raises InputError for a number of processes that cannot be run.
    """
    _check(world)
    for name in (*(("torch", "torch.distributed") if init else ()), *preload):
        importlib.import_module(name)
    folder = Path(tempfile.mkdtemp(prefix="placeproof-"))
    shared = folder / "shared"
    children: list[_Child] = []
    with _held_back() as interrupted:
        try:
            shared.mkdir()
            with _gate() as (hold, release):
                for rank in range(world):
                    variables = {} if environment is None else {**launched(rank, world), **environment}
                    job = _Job(rank, world, folder, collective_timeout if init else None, hold, release, variables)
                    children.append(_Child(rank=rank, pid=_fork(job, function), folder=folder))
                _watch(children, timeout, collective_timeout + _GRACE, _Idle(idle), interrupted)
            return [_outcome(child) for child in children]
        finally:
            _end(children)
            shutil.rmtree(folder, ignore_errors=True)


def launched(rank: int, world: int) -> dict[str, str]:
    """The variables that a launcher sets for a process of one machine."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}


def message(outcomes: Sequence[Outcome[T]]) -> str:
    """What happened in words, one line for each thing that happened, the first failure first."""
    if all(o.kind == "ok" for o in outcomes):
        return f"all {len(outcomes)} ranks ended well" if len(outcomes) > 1 else "the only rank ended well"
    ranks_by_words: dict[str, list[int]] = {}
    for outcome in sorted(outcomes, key=lambda o: (_weight(o), o.seconds, o.rank)):
        ranks_by_words.setdefault(_in_words(outcome), []).append(outcome.rank)
    return "\n".join(f"{_ranks(ranks)} {words}" for words, ranks in ranks_by_words.items())


def cause(outcomes: Sequence[Outcome[T]]) -> Outcome[T]:
    """The one that did not end well by itself, if any: not what follows from another one. Of those that wait, one that came to no end."""
    return min(outcomes, key=lambda o: (_weight(o), o.kind == "timeout" and "Traceback" in (o.error or ""), o.seconds, o.rank))


def _weight(outcome: Outcome[T]) -> int:
    """Causes before consequences: a peer that is gone, or waiting for one, follows from something else."""
    if outcome.kind == "ok":
        return 3
    if outcome.kind == "error" and _PEER_GONE.search(outcome.error or ""):
        return 2
    return 1 if outcome.kind == "timeout" else 0


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(str(r) for r in sorted(ranks))


def _in_words(outcome: Outcome[T]) -> str:
    last = _SOURCE.sub("", (outcome.error or "").strip().rpartition("\n")[2])
    match outcome.kind:
        case "ok":
            return "ended well"
        case "signal":
            return f"died by {last}"
        case "timeout":
            gave_up = _GAVE_UP.search(last)
            return f"waited {int(gave_up[1]) / 1000:g} s for another rank, in vain" if gave_up else f"waited too long: {_short(last)}"
    if _PEER_GONE.search(last):
        return "then lost the connection to another rank"
    return f"failed: {_short(last)}"


def _short(text: str) -> str:
    return text if len(text) <= 240 else text[:237] + "..."


def _check(world: int) -> None:
    problems = Problems()
    if not 1 <= world <= MOST:
        few = f"run at most {MOST} processes" if world > MOST else "run at least one process"
        problems.add("PP601", f"{world} processes cannot be run on one machine", help=few)
    if not hasattr(os, "fork"):
        problems.add("PP601", "this system cannot fork processes", help="run this on Linux")
    problems.raise_if_any()


# In the child.


@dataclass(frozen=True, slots=True)
class _Job:
    """What a child needs to know. ``waiting``: seconds until a collective gives up, None for no process group. ``hold``: readable
    once the parent lets go of ``release``."""

    rank: int
    world: int
    folder: Path
    waiting: float | None
    hold: int
    release: int
    environment: Mapping[str, str]


def _fork(job: _Job, function: Function[T]) -> int:
    """Start a process that does the job, and return its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn where threads run; the child uses none of theirs
        pid = os.fork()
    if not pid:
        _child(job, function)
    with suppress(OSError):  # whoever of the two comes first
        os.setpgid(pid, pid)
    return pid


def _child(job: _Job, function: Function[T]) -> NoReturn:
    """The life of a child: it never returns into the caller's code, and never runs what the caller would at exit."""
    try:
        _settle_in(job)
        kind, result = _attempt(job, function)
        partial = job.folder / f"{job.rank}.partial"
        partial.write_bytes(kind.encode() + b"\n" + result)
        partial.rename(job.folder / f"{job.rank}.result")
        if kind == "ok":
            os.read(job.hold, 1)  # if it ended while others still read from it, they would take it for one that died
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1)


def _settle_in(job: _Job) -> None:
    """Its own process group, output and signals; and death with the parent where the system knows that."""
    with suppress(OSError):
        os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(job.release)
    output = os.open(job.folder / f"{job.rank}.output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
    faulthandler.enable(2, all_threads=False)
    faulthandler.register(signal.SIGUSR1, 2, all_threads=False)
    os.environ["OMP_NUM_THREADS"] = "1"


def _attempt(job: _Job, function: Function[T]) -> tuple[Kind, bytes]:
    """How it went, and the value or the error, pickled."""
    os.environ.update(job.environment)
    try:
        if "torch" in sys.modules:
            import torch

            torch.set_num_threads(1)  # the threads of the parent do not exist here, and cores are shared
        if job.waiting is not None:
            _join(job, job.waiting)
        return "ok", pickle.dumps(function(job.rank, job.world, job.folder / "shared"))
    except SystemExit as ended:
        return "error", pickle.dumps(f"the function ended the process: SystemExit: {ended.code}")
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        waited = isinstance(error, RuntimeError) and _WAITED.search(str(error))
        return "timeout" if waited else "error", pickle.dumps(text)


def _join(job: _Job, waiting: float) -> None:
    import torch.distributed as dist

    dist.set_debug_level_from_env()  # torch has read the variable when it was imported
    dist.init_process_group(
        "gloo",
        init_method=f"file://{job.folder / 'store'}",
        rank=job.rank,
        world_size=job.world,
        timeout=timedelta(seconds=waiting),
    )


# In the parent.


@dataclass(slots=True)
class _Interrupted:
    """The signal that came while it was held back; 0 for none."""

    number: int = 0


@contextmanager
def _held_back() -> Iterator[_Interrupted]:
    """Interrupts of the caller are noted, and delivered after the block: no moment in which they would leave a process behind."""
    noted = _Interrupted()
    handlers = {}

    def note(number: int, frame: FrameType | None) -> None:
        noted.number = number

    if threading.current_thread() is threading.main_thread():
        handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
        handlers = {s: before for s, before in handlers.items() if before not in (signal.SIG_IGN, None)}
    for signal_number in handlers:
        signal.signal(signal_number, note)
    try:
        yield noted
    finally:
        for signal_number, before in handlers.items():
            signal.signal(signal_number, before)
        if noted.number:
            signal.raise_signal(noted.number)


@contextmanager
def _gate() -> Iterator[tuple[int, int]]:
    """A pipe that children read from until the parent closes its end, or is no more."""
    hold, release = os.pipe()
    try:
        yield hold, release
    finally:
        os.close(release)
        os.close(hold)


@dataclass(slots=True)
class _Idle:
    """How long no process has computed anything. ``most``: seconds that they may; ``since``: when it began, ``used``: ticks up to then."""

    most: float
    since: float = 0.0
    used: float = 0.0
    looked: float = 0.0

    def over(self, children: list[_Child], now: float) -> bool:
        """Whether all have waited for too long. Waiting may look for a file now and then."""
        if self.most == inf or now < self.looked + _LOOKS:
            return False
        self.looked = now
        used = _ticks(children)
        if used is None or used > self.used + 2 + _WAITING_TICKS * (now - self.since):
            self.since, self.used = now, 0.0 if used is None else used
        return now > self.since + self.most


def _ticks(children: list[_Child]) -> int | None:
    """The processor time of all that still run, in the system's ticks; None where nobody can say."""
    used = 0
    for child in (c for c in children if c.done is None):
        try:
            stats = [(task / "stat").read_text().rpartition(")")[2].split() for task in Path(f"/proc/{child.pid}/task").iterdir()]
        except OSError:
            return None
        used += sum(int(stat[11]) + int(stat[12]) for stat in stats)
    return used


def _watch(children: list[_Child], timeout: float, patience: float, idle: _Idle, interrupted: _Interrupted) -> None:
    """Wait until every process has a result or has ended; stop those that take too long."""
    began = time.monotonic()
    first: tuple[float, int] | None = None
    pause = 0.001
    while any(child.done is None for child in children):
        if interrupted.number:
            raise KeyboardInterrupt
        now = time.monotonic() - began
        for child in (c for c in children if c.done is None):
            _look(child, now)
            if first is None and child.failed:
                first = now, child.rank
        if now > timeout:
            _stop(children, f"still running when the whole run was stopped after {timeout:g} s", now)
        elif first is not None and now > first[0] + patience:
            _stop(children, f"still running {patience:g} s after rank {first[1]} had failed, and was stopped", now)
        elif idle.over(children, now):
            _stop(children, f"still waiting when none had computed anything for {idle.most:g} s, and was stopped", now)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.01)


def _look(child: _Child, now: float) -> None:
    """Whether the process has ended, or has its result and only waits for the others."""
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    if pid:
        child.status, child.done, child.failed = status, now, True
        _kill(child.pid)  # what it may have started itself
    elif child.result.exists():
        with child.result.open("rb") as result:
            child.done, child.failed = now, result.readline() != b"ok\n"


def _stop(children: list[_Child], why: str, now: float) -> None:
    """End those that still run, after each wrote down where it stands."""
    late = [child for child in children if child.done is None]
    for child in late:
        child.stopped, child.done = why, now
        with suppress(OSError):
            os.kill(child.pid, signal.SIGUSR1)
    time.sleep(_LAST_WORDS)
    _end(late)


def _end(children: list[_Child]) -> None:
    """Kill what runs, and reap it."""
    running = [child for child in children if child.status is None]
    for child in running:
        _kill(child.pid)
    for child in running:
        with suppress(ChildProcessError):
            _, child.status = os.waitpid(child.pid, 0)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(pid, signal.SIGKILL)


def _outcome(child: _Child) -> Outcome[T]:
    output = child.output.read_text(encoding="utf-8", errors="replace") if child.output.exists() else ""

    def ended(kind: Kind, error: str | None, value: T | None = None) -> Outcome[T]:
        return Outcome(rank=child.rank, kind=kind, error=error, value=value, output=output, seconds=round(child.done or 0.0, 3))

    if child.result.exists():
        kind, _, pickled = child.result.read_bytes().partition(b"\n")
        value = pickle.loads(pickled)
        if kind == b"ok":
            return ended("ok", None, value)
        return ended("timeout" if kind == b"timeout" else "error", value)
    if child.stopped:
        return ended("timeout", child.stopped)
    code = os.waitstatus_to_exitcode(child.status or 0)
    if code < 0:
        return ended("signal", signal.Signals(-code).name)
    return ended("error", f"the process ended with exit status {code} and no result")
