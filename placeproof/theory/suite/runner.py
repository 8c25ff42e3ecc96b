"""Checking many theorems: from the cache where nothing has changed, in several processes, one result after the other."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from placeproof.core.diagnostics import Diagnostic
from placeproof.core.processes import deaf, end_with_parent
from placeproof.theory.suite.cache import Cache
from placeproof.theory.suite.faults import misstated, raised
from placeproof.theory.suite.load import Loaded, load_file
from placeproof.theory.suite.outcome import Outcome, Settings
from placeproof.theory.suite.reads import aside, found, listen
from placeproof.theory.theorem import Theorem


@dataclass(frozen=True, slots=True)
class Malformed:
    """A theorem whose statement cannot be understood."""

    id: str
    problems: tuple[Diagnostic, ...]


Result = Outcome | Malformed
#: Digests of what was read for it, where that is known.
Reads = dict[str, str] | None
_Checked = tuple[int, Result, Reads]


def check_one(theorem: Theorem, settings: Settings) -> Result:
    """Check a theorem; what is wrong with its statement is a result too. A bug in placeproof is raised."""
    from placeproof.theory.suite.check import check

    try:
        return check(theorem, settings)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too
        return Malformed(theorem.id, tuple(raised(theorem, error)))


def run(
    theorems: list[Theorem],
    settings: Settings,
    *,
    jobs: int | None = None,
    cache: Cache | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """Check theorems, in the order given. ``tell`` is called with how many are done, and of how many."""
    results: dict[int, Result] = {}
    for number, theorem in enumerate(theorems):
        with aside():
            earlier = cache.get(theorem, settings) if cache is not None else None
        if earlier is not None:
            results[number] = earlier
    open_ = [n for n in range(len(theorems)) if n not in results]
    workers = max(1, min(jobs or os.cpu_count() or 1, len(open_)))
    checked = _in_turn(theorems, open_, settings) if workers == 1 else _in_parallel(theorems, open_, settings, workers)
    for number, result, reads in checked:
        results[number] = result
        if cache is not None and reads is not None and isinstance(result, Outcome):
            with aside():
                cache.put(theorems[number], settings, result, reads)
        if tell is not None:
            tell(len(results), len(theorems))
    return [results[n] for n in range(len(theorems))]


def _in_turn(theorems: list[Theorem], numbers: list[int], settings: Settings) -> Iterator[_Checked]:
    for number in numbers:
        yield number, check_one(theorems[number], settings), found()


def _in_parallel(theorems: list[Theorem], numbers: list[int], settings: Settings, workers: int) -> Iterator[_Checked]:
    """Each process reads the files for itself: what a theorem is made of cannot be sent. The dearest levels go first."""
    order = sorted(numbers, key=lambda n: -theorems[n].level)
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_settle_in)
    try:
        with deaf():
            waiting: dict[Future[tuple[Result, Reads]], int] = {
                pool.submit(_remote, theorems[n].path, theorems[n].name, theorems[n].id, settings): n for n in order
            }
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                number = waiting.pop(future)
                try:
                    yield number, *future.result()
                except BrokenProcessPool:
                    died = "the process that checked it has died; it may need too much memory"
                    yield number, Malformed(theorems[number].id, (misstated(theorems[number], died),)), None
    except BaseException:  # an interrupt above all: nobody wants what is still being computed
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _settle_in() -> None:
    """A process notes what it reads. Terms are many, and hardly any are in circles: it looks for these seldom."""
    gc.set_threshold(100_000, 50, 100)
    listen()
    end_with_parent()


def _remote(path: str, name: str, id_: str, settings: Settings) -> tuple[Result, Reads]:
    loaded = Loaded()
    own = [t for t in load_file(Path(path), loaded) if t.name == name]
    return check_one(own[0], settings) if own else Malformed(id_, tuple(loaded.problems.found)), found()
