"""Engines for sweeps that are installed here: their size, how long they take to start, what becomes of calls whose process dies, and
whether the answers are the same to the bit.

    python -m venv trial && trial/bin/pip install . distributed ray && trial/bin/python benchmarks/engines.py [ENGINE]...
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from placeproof.answers.engines import TRIES, Answered, Dask, Engine, Processes
from placeproof.cli.plan import planned
from placeproof.cli.sweep import answer
from placeproof.theory.suite.cache import sources

JOBS = 2
QUESTION = {"model": "gpt3-125m", "cluster": "dgx-h100", "only": ["tp=1", "cp=1", "pp=1", "recompute=none"], "global_batch": 2, "top": 1}


class LocalDask:
    """Dask with workers of this machine."""

    def run(self, call: Callable[[Any], Any], arguments: Sequence[Any]) -> Generator[Answered, None, None]:
        from distributed import LocalCluster

        with LocalCluster(n_workers=JOBS, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
            yield from Dask(cluster.scheduler_address).run(call, arguments)


class Ray:
    """Ray on this machine."""

    def run(self, call: Callable[[Any], Any], arguments: Sequence[Any]) -> Generator[Answered, None, None]:
        import ray

        ray.init(num_cpus=JOBS, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            remote = ray.remote(max_retries=TRIES - 1)(lambda one: call(one))  # noqa: PLW0108
            waiting = {remote.remote(one): number for number, one in enumerate(arguments)}
            while waiting:
                for done in ray.wait([*waiting])[0]:
                    number = waiting.pop(done)
                    try:
                        yield number, ray.get(done)
                    except ray.exceptions.WorkerCrashedError:
                        yield number, None
        finally:
            ray.shutdown()


ENGINES: dict[str, tuple[Engine, str]] = {"processes": (Processes(JOBS), ""), "dask": (LocalDask(), "distributed"), "ray": (Ray(), "ray")}


def size(name: str, known: set[str]) -> tuple[int, int]:
    """Bytes and number of the packages that one needs, but for those that are known. Found ones are added to these."""
    own = re.sub(r"[-_.]+", "-", name).lower()
    if own in known:
        return 0, 0
    known.add(own)
    found = metadata.distribution(name)
    total, count = sum(path.stat().st_size for file in found.files or () if (path := Path(str(file.locate()))).is_file()), 1
    for text in found.requires or ():
        needed, marker = re.match(r"[\w.-]+", text), text.partition(";")[2]
        if needed and not marker.strip():
            more, others = size(needed[0], known)
            total, count = total + more, count + others
    return total, count


def dies_once(path: str) -> str:
    """A call whose process dies the first time."""
    if not os.path.exists(path):
        Path(path).touch()
        os._exit(1)
    return path


def dies(log: str, number: int) -> int:
    """The first call always dies; the others take a moment."""
    if number == 0:
        with open(log, "a") as file:
            file.write("x")
        os._exit(1)
    time.sleep(0.2)
    return number


def tried(name: str, engine: Engine, folder: Path) -> str:
    began = time.perf_counter()
    assert list(engine.run(abs, [-1])) == [(0, 1)]
    print(f"  first answer after   {time.perf_counter() - began:8.2f} s")
    once = str(folder / name)
    began = time.perf_counter()
    answered = list(engine.run(dies_once, [once])) == [(0, once)]
    print(f"  dies once            {'answered' if answered else 'lost'} after {time.perf_counter() - began:.2f} s")
    log = folder / f"{name}.log"
    found = dict(engine.run(partial(dies, str(log)), range(9)))
    lost = [number for number in found if number and found[number] is None]
    print(f"  always dies          asked {len(log.read_text())} times; of 8 other calls {len(lost)} lost")
    asked = [{"number": n, "question": {**QUESTION, "devices": n}, "files": {}, "sources": sources()} for n in (1, 2)]
    rows = sorted(engine.run(partial(answer, planned), asked))
    assert all(row["failure"] is None for _, row in rows), rows
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    print(f"  answers              {digest[:16]}")
    return digest


def main() -> int:
    known = {"placeproof"}
    for text in metadata.requires("placeproof") or ():
        if "extra ==" not in text:
            size(re.match(r"[\w.-]+", text)[0], known)  # type: ignore[index]
    digests = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, (engine, package) in ((name, ENGINES[name]) for name in sys.argv[1:] or ENGINES):
            try:
                total, count = size(package, {*known}) if package else (0, 0)
            except metadata.PackageNotFoundError:
                print(f"{name}: not installed")
                continue
            print(f"{name}{f' {metadata.version(package)}' if package else ''}, {JOBS} at once")
            print(f"  size beyond ours     {total / 1e6:8.1f} MB in {count} packages")
            digests.add(tried(name, engine, Path(folder)))
    print(f"answers are {'the same' if len(digests) == 1 else 'not the same'}")
    return int(len(digests) != 1)


if __name__ == "__main__":
    sys.exit(main())
