"""One rank's measurement, from its process group to what was measured."""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod

import torch
import torch.distributed as dist
from torch.distributed.tensor._redistribute import clear_redistribute_planner_cache
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from placeproof.core.diagnostics import refuse
from placeproof.core.shapes import Shapes
from placeproof.cost.exact.options import Value
from placeproof.measure.measured import Measured
from placeproof.measure.training.steps import Setting, train
from placeproof.measure.training.subjects import Subject


def alone(subject: Subject, shapes: Shapes, mesh: Mapping[str, int], *, rank: int, seed: int, options: Mapping[str, Value]) -> Measured:
    """Measure one rank without the others: collectives return at once, with whatever data. Leaves torch as it was.

    ``options`` are settled. Raises InputError where a process group exists already: this one needs to be the default.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    if dist.is_initialized():
        refuse("PP601", "this process already has a default process group", help="measure before it is made, or destroy it")
    began = time.perf_counter()
    with undisturbed():
        dist.init_process_group("fake", rank=rank, world_size=prod(mesh.values()), store=FakeStore())
        try:
            return _measured(Setting(subject, shapes, mesh, "fake", options), seed, began)
        finally:
            dist.destroy_process_group()


def among_others(subject: Subject, shapes: Shapes, mesh: Mapping[str, int], *, seed: int, options: Mapping[str, Value]) -> Measured:
    """Measure this rank of the process group that exists, while all others do the same. ``options`` are settled."""
    began = time.perf_counter()
    with undisturbed():
        return _measured(Setting(subject, shapes, mesh, "gloo", options), seed, began)


@contextmanager
def undisturbed() -> Iterator[None]:
    """What a measurement sets is as before after the block: random numbers, threads, warnings and what is logged (neither is
    shown), and how exceptions are shown. What torch remembers of layouts is forgotten: it would be kept for ever.
    """
    threads, excepthook, silenced = torch.get_num_threads(), sys.excepthook, logging.root.manager.disable
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        torch.set_num_threads(1)  # more would not outlive a fork, and gain nothing on small tensors
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            sys.excepthook = excepthook
            logging.disable(silenced)
            _clear_sharding_prop_cache()
            clear_redistribute_planner_cache()


def _measured(setting: Setting, seed: int, began: float) -> Measured:
    torch.manual_seed(seed)
    step = train(setting)
    return Measured(
        subject=setting.subject.name,
        shapes=setting.shapes,
        mesh=dict(setting.mesh),
        rank=dist.get_rank(),
        backend=setting.backend,
        options=dict(setting.options),
        exchanges=step.exchanges,
        dtypes=step.dtypes,
        setup=step.setup,
        memory=step.memory,
        seconds=time.perf_counter() - began,
        torch=str(torch.__version__),
    )
