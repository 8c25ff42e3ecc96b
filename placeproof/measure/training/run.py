"""Measuring: one training step of a concrete model under an implementation, as one rank lives it.

This module does without torch until something is measured.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from math import prod
from pathlib import Path

from placeproof.core.diagnostics import Problems
from placeproof.core.shapes import Shapes
from placeproof.cost.exact.options import Value
from placeproof.measure.measured import Measured
from placeproof.measure.training.subjects import Subject, check, check_mesh, find, settle

#: Seconds that gloo processes have for one measurement; a collective waits for half of it.
PATIENCE = 120.0
#: The most parameters where they have to be allocated: on gloo, and for implementations that do not take tensors without data.
MOST_PARAMETERS = 50_000_000


def measure(
    subject: Subject | str,
    shapes: Shapes,
    mesh: Mapping[str, int],
    *,
    backend: str = "fake",
    rank: int = 0,
    seed: int = 0,
    options: Mapping[str, Value] | None = None,
) -> Measured:
    """Run training steps, and say what one rank exchanged in the last of them, and what it held.

    ``shapes``: those of :func:`placeproof.core.shapes.transformer` run as a decoder, all others as a stack of mean squares. Their
    ``batch`` and ``tokens`` are those of one device, and of one micro-batch. ``backend``: "fake" runs this rank alone, in this process,
    without its neighbours' data, and models that are large without any data; "gloo" runs all ranks as processes of this machine.
    ``options``: see :data:`placeproof.measure.training.subjects.OPTIONS`. ``seed``: of parameters and samples.

    Raises InputError for what cannot be measured, and RuntimeError with what the processes said where one of them failed.
    """
    job = _prepare(subject, shapes, mesh, backend, (rank,), options or {})
    if backend == "fake":
        from placeproof.measure.training.session import alone

        return alone(job, shapes, mesh, rank=rank, seed=seed, options=settle(job, mesh, options or {}))
    return measure_all(job, shapes, mesh, seed=seed, options=options)[rank]


def measure_all(
    subject: Subject | str, shapes: Shapes, mesh: Mapping[str, int], *, seed: int = 0, options: Mapping[str, Value] | None = None
) -> list[Measured]:
    """Run training steps on gloo processes, one for each device of the mesh, and say what each exchanged and held, by rank."""
    job = _prepare(subject, shapes, mesh, "gloo", (), options or {})
    settled = settle(job, mesh, options or {})
    from placeproof.measure.processes import message, run
    from placeproof.measure.training import session

    def measured(rank: int, world: int, directory: Path) -> Measured:
        return session.among_others(job, shapes, mesh, seed=seed, options=settled)

    outcomes = run(prod(mesh.values()), measured, timeout=PATIENCE, collective_timeout=PATIENCE / 2)
    values = [outcome.value for outcome in outcomes if outcome.value is not None]
    if len(values) < len(outcomes):
        errors = "\n".join(outcome.error for outcome in outcomes if outcome.error)
        raise RuntimeError(f"`{job.name}` could not be measured on gloo: {message(outcomes)}\n{errors}")
    return values


def _prepare(
    subject: Subject | str,
    shapes: Shapes,
    mesh: Mapping[str, int],
    backend: str,
    ranks: tuple[int, ...],
    options: Mapping[str, Value],
) -> Subject:
    """The subject, if all of this can be measured. Raises InputError."""
    job = subject if isinstance(subject, Subject) else find(subject)
    problems = Problems()
    if backend not in ("fake", "gloo"):
        problems.add("PP104", f"no backend `{backend}`", help="give `fake` or `gloo`")
    if importlib.util.find_spec("torch") is None:
        problems.add("PP601", "torch is not installed: nothing can be measured", help="install torch, or read recorded measurements")
    problems.raise_if_any()
    check_mesh(job, mesh)
    settled = settle(job, mesh, options)
    check(job, shapes, mesh, settled)
    if shapes.elements > MOST_PARAMETERS and (backend == "gloo" or job.allocates):
        message = f"`{job.name}` on {backend} allocates its parameters: {shapes.elements:,} are too many"
        problems.add("PP202", message, help=f"measure at most {MOST_PARAMETERS:,}, or another implementation on `fake`")
    for rank in ranks:
        if not 0 <= rank < prod(mesh.values()):
            problems.add("PP103", f"there is no rank {rank} among {prod(mesh.values())} devices", help="ranks count from 0")
    problems.raise_if_any()
    return job
