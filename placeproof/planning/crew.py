"""Processes that do some of a search's work: forks, which have all that was read and derived before.

They give what the process itself would compute. Where one ends before it has answered, the process does its work.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from placeproof.core.processes import deaf, end_with_parent

#: What tasks are about -> what does them.
Work = Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True, kw_only=True)
class Running:
    """How a search runs. ``jobs``: processes; ``tell`` is called with what was done so far, in words, and ``ahead`` of points whose verdict
    will be asked for; ``partial``: whether an interrupt ends it with the best so far, and not with an exception."""

    jobs: int = 1
    tell: Callable[[str], None] = lambda _: None
    ahead: Callable[[Any], None] = lambda _: None
    partial: bool = False


#: By itself.
ALONE = Running()


def can_fork() -> bool:
    """Whether a fork of this process has all that it needs: no thread that holds a lock, and no library of macOS."""
    return sys.platform == "linux" and threading.active_count() == 1


class Worker:
    """A process, and the numbers of tasks that it was given and has not answered."""

    def __init__(self, work: Work) -> None:
        self.connection, its = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=_serve, args=(work, its, self.connection), daemon=True)
        self.waiting: set[int] = set()
        with deaf():
            self.process.start()
        its.close()


def _serve(work: Work, connection: Connection, other: Connection) -> None:
    """Answer tasks, until the one that asks is gone. What a task raises is raised where it is asked for, and done again."""
    other.close()
    end_with_parent()
    while True:
        number, what, task = connection.recv()
        try:
            answered = True, work[what](task)
        except Exception:
            answered = False, None
        connection.send((number, *answered))


class Crew:
    """So many processes that do the ``work``; none where one is enough, or :func:`can_fork` says no: then this one does it."""

    def __init__(self, number: int, work: Work) -> None:
        self.work = work
        self.workers = [Worker(work) for _ in range(number)] if number > 1 and can_fork() else []
        self._tasks: list[tuple[str, Any]] = []
        self._had: dict[tuple[str, int], Worker] = {}
        self._answers: dict[int, Any] = {}

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self.workers:  # whatever they do: nobody wants it any more
            self._end(worker)

    def begin(self, what: str, task: Any, by: int | None = None) -> int:
        """A task, and its number. It is done by the process of that number, or by one that has least to do."""
        self._tasks.append((what, task))
        number = len(self._tasks) - 1
        if self.workers:
            worker = min(self.workers, key=lambda w: len(w.waiting)) if by is None else self.workers[by % len(self.workers)]
            worker.waiting.add(number)
            with suppress(OSError):  # it has ended, as is seen when it is waited for
                worker.connection.send((number, what, task))
        return number

    def answer(self, number: int) -> Any:
        """What a task comes to."""
        while self._open(number):
            self._receive()
        if number in self._answers:
            return self._answers.pop(number)
        what, task = self._tasks[number]
        return self.work[what](task)

    def _open(self, number: int) -> bool:
        return any(number in worker.waiting for worker in self.workers)

    def each(self, what: str, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Tasks by their places in a sequence, and what they come to; each process is given one after the other. One that had the task at a
        place before has it again."""
        left, numbers = list(range(len(tasks))), dict[int, int]()
        while left or numbers:
            for worker in (worker for worker in self.workers if not worker.waiting):
                place = next((place for place in left if self._had.setdefault((what, place), worker) in (worker, None)), None)
                if place is not None:
                    left.remove(place)
                    numbers[self.begin(what, tasks[place], self.workers.index(worker))] = place
            if not numbers:  # there is no other process, or none any more
                place = left.pop(0)
                yield place, self.work[what](tasks[place])
                continue
            self._receive()
            for number in [n for n in numbers if not self._open(n)]:
                yield numbers.pop(number), self.answer(number)

    def _receive(self) -> None:
        """Wait for an answer, or for the end of a process."""
        heard = wait([worker.connection for worker in self.workers if worker.waiting])
        for worker in [worker for worker in self.workers if worker.connection in heard]:
            try:
                number, done, answer = worker.connection.recv()
            except (EOFError, OSError):
                self._end(worker)
                self.workers.remove(worker)
                continue
            worker.waiting.remove(number)
            if done:
                self._answers[number] = answer

    def _end(self, worker: Worker) -> None:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
