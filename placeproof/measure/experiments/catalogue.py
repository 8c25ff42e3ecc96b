"""Three experiments that check the theory of parameter placement on real PyTorch: memory, traffic and training.

Each is a table of predictions beside measurements. This module does without torch until something is measured.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.measure.experiments.experiment import Experiment


def names() -> tuple[str, ...]:
    """The experiments, in the order in which they are made."""
    return "memory", "traffic", "training"


def experiments(chosen: Iterable[str]) -> tuple[Experiment, ...]:
    """Make these experiments. Raises InputError for a name that is none, or without torch; RuntimeError where processes fail."""
    names = tuple(chosen)
    _check(names)
    from placeproof.measure.experiments.sizes import Bench, memory, traffic
    from placeproof.measure.experiments.training import training

    bench = Bench()
    made: Mapping[str, Callable[[], Experiment]] = {
        "memory": lambda: memory(bench),
        "traffic": lambda: traffic(bench),
        "training": training,
    }
    return tuple(made[name]() for name in names)


def _check(chosen: tuple[str, ...]) -> None:
    problems = Problems()
    for name in chosen:
        if name not in names():
            known = f"choose {', '.join(names())}, or all"
            problems.add("PP104", f"there is no experiment `{name}`", help=suggestion(name, (*names(), "all")) or known)
    if importlib.util.find_spec("torch") is None:
        problems.add("PP601", "an experiment needs torch, which is not installed", help='pip install "placeproof[torch]"')
    problems.raise_if_any()
