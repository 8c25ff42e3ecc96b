"""Who asks many questions at once: processes of this machine, or workers of Dask on any.

An *engine* calls a function with each of some arguments, in processes that may die, and tells what it returned as the calls end, in any
order. A call whose process dies is made again, :data:`TRIES` times in all.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from placeproof.core.diagnostics import Diagnostic, InputError, refuse
from placeproof.core.processes import deaf, end_with_parent

#: Processes that may die of one call.
TRIES = 3
#: Seconds in which a scheduler has to answer.
SECONDS = 10

#: A call by its number, and what it returned; None where its processes have died.
Answered: TypeAlias = "tuple[int, Any | None]"


class Engine(Protocol):
    """What calls a function many times."""

    def run(self, call: Callable[[Any], Any], arguments: Sequence[Any]) -> Generator[Answered, None, None]:
        """What each call returns. The function and its arguments can be sent to other processes. An exception of a call is raised. Closed,
        it ends what still runs."""


@dataclass(frozen=True, slots=True)
class Processes:
    """So many processes at once; 0 for as many as there are cores.

    Each is a pool of its own: if it dies, it is known of which call.
    """

    jobs: int = 0

    def run(self, call: Callable[[Any], Any], arguments: Sequence[Any]) -> Generator[Answered, None, None]:
        """As every engine."""
        others = set(multiprocessing.active_children())
        waiting, died = deque(range(len(arguments))), Counter[int]()
        pools, free = list[ProcessPoolExecutor](), list[ProcessPoolExecutor]()
        running: dict[Future[Any], tuple[int, ProcessPoolExecutor]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < (self.jobs or os.cpu_count() or 1):
                    if not free:
                        pools.append(_pool())
                        free.append(pools[-1])
                    number, pool = waiting.popleft(), free.pop()
                    with deaf():
                        running[pool.submit(call, arguments[number])] = number, pool
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number, pool = running.pop(future)
                    try:
                        answer = future.result()
                        free.append(pool)
                    except BrokenProcessPool:
                        died[number] += 1
                        if died[number] < TRIES:
                            waiting.appendleft(number)
                            continue
                        answer = None
                    yield number, answer
        finally:
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            for pool in pools:
                pool.shutdown(cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent)


@dataclass(frozen=True, slots=True)
class Dask:
    """The workers of a scheduler of Dask, by its address."""

    address: str

    def run(self, call: Callable[[Any], Any], arguments: Sequence[Any]) -> Generator[Answered, None, None]:
        """As every engine. Raises InputError where Dask is not installed, and where no scheduler answers."""
        try:
            from distributed import Client, as_completed
            from distributed.scheduler import KilledWorker
        except ImportError as error:
            problem = Diagnostic(code="PP601", message="Dask is not installed", help='`pip install "placeproof[sweep]"`')
            raise InputError([problem]) from error
        try:
            client = Client(self.address, timeout=SECONDS)
        except (OSError, ValueError) as error:
            refuse("PP104", f"no scheduler of Dask answers at `{self.address}`: {error}", help="`dask scheduler` prints its address")
        with client:
            numbers = {client.submit(call, one, pure=False): number for number, one in enumerate(arguments)}
            for future in as_completed(numbers):
                died = future.status == "error" and isinstance(future.exception(), KilledWorker)
                yield numbers[future], None if died else future.result()
