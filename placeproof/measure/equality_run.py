"""Training scripts run by real processes: how they are read, run, and judged by their parameters."""

from __future__ import annotations

import importlib
import math
import runpy
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from placeproof.core.diagnostics import Problems
from placeproof.measure.compared import Compared, Rank, Word
from placeproof.measure.processes import Outcome, message, run

#: By name; empty where a rank has none.
Parameters: TypeAlias = dict[str, Tensor]
#: What scripts import: in the parent once, instead of in each process anew.
_PRELOAD = (
    "torch.distributed.tensor.parallel",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.optim",
    "torch.nn.parallel",
)
_WORDS: Mapping[str, Word] = {"error": "exception", "signal": "crash", "timeout": "time-out"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a script says of itself: its number of processes, and the parameters that one process ends with."""

    world: int
    reference: Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How the ranks of a script ended, with the parameters of each that ended well, and the seconds until the last one did."""

    outcomes: Sequence[Outcome[Any]]
    values: Sequence[Parameters | None]
    seconds: float


def read_all(paths: Iterable[Path], timeout: float) -> dict[Path, Read]:
    """Each script's number of processes and reference, from one process that has no process group.

    Raises InputError for a file that is no script to compare, RuntimeError where a reference fails.
    """
    files = list(paths)
    _preload()

    def read(rank: int, world: int, directory: Path) -> list[tuple[list[str], int, Parameters]]:
        return [_read(file) for file in files]

    (outcome,) = run(1, read, timeout=timeout, init=False)
    if outcome.value is None:
        raise RuntimeError(f"a reference could not be computed: {message([outcome])}\n{outcome.error}")
    problems = Problems()
    for file, (wrong, _, _) in zip(files, outcome.value, strict=True):
        for text in wrong:
            problems.add("PP110", f"{file}: {text}", help="define train(), reference() and WORLD, the number of processes")
    problems.raise_if_any()
    return {file: Read(world=world, reference=found) for file, (_, world, found) in zip(files, outcome.value, strict=True)}


def _read(file: Path) -> tuple[list[str], int, Parameters]:
    """What is wrong with a script, its number of processes, and its reference."""
    names = _namespace(file)
    wrong: list[str] = [f"there is no {name}()" for name in ("train", "reference") if not callable(names.get(name))]
    world = names.get("WORLD")
    if isinstance(world, bool) or not isinstance(world, int) or world < 1:
        wrong.append(f"WORLD is {world!r}, not a number of processes")
    if wrong:
        return wrong, 0, {}
    return [], int(str(world)), _plain(names["reference"]())


def train_all(paths: Sequence[Path], world: int, *, timeout: float, wait: float, environment: Mapping[str, str]) -> dict[Path, Ran]:
    """Run scripts in ``world`` processes, one after the other; if one of them fails, each in processes of its own."""
    _preload()

    def train(rank: int, size: int, directory: Path) -> list[tuple[Parameters, float]]:
        return [_trained(path) for path in paths]

    outcomes = run(world, train, timeout=timeout, collective_timeout=wait, environment=environment)
    if len(paths) > 1 and any(outcome.kind != "ok" for outcome in outcomes):
        return {
            path: ran
            for each in paths
            for path, ran in train_all([each], world, timeout=timeout, wait=wait, environment=environment).items()
        }
    return {path: _ran(outcomes, i) for i, path in enumerate(paths)}


def _ran(outcomes: Sequence[Outcome[list[tuple[Parameters, float]]]], i: int) -> Ran:
    """How the ranks ended the script of this number."""
    ended = [None if outcome.value is None else outcome.value[i] for outcome in outcomes]
    seconds = [outcome.seconds if each is None else each[1] for outcome, each in zip(outcomes, ended, strict=True)]
    return Ran(outcomes=outcomes, values=[None if each is None else each[0] for each in ended], seconds=max(seconds))


def _preload() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own modules
        for name in _PRELOAD:
            importlib.import_module(name)


# In a process of its own.


def _namespace(file: Path) -> dict[str, Any]:
    """The names of a script, imported as ``python FILE`` would find its neighbours. Warnings are shown and no errors, as there."""
    if sys.path[0] != str(file.parent):
        sys.path.insert(0, str(file.parent))
    warnings.resetwarnings()
    warnings.simplefilter("default")
    return runpy.run_path(str(file), run_name="__placeproof__")


def _trained(file: Path) -> tuple[Parameters, float]:
    """What a script returns, and the seconds that it took."""
    train: Callable[[], Any] = _namespace(file)["train"]
    began = time.perf_counter()
    return _plain(train()), time.perf_counter() - began


def _plain(parameters: object) -> Parameters:
    """The parameters, if they are what was asked for. Raises TypeError."""
    if not isinstance(parameters, dict):
        raise TypeError(f"train() and reference() return parameters by name, not a {type(parameters).__name__}")
    for name, value in parameters.items():
        if type(value) not in (Tensor, torch.nn.Parameter):
            raise TypeError(f"`{name}` is a {type(value).__name__}: return the full parameter as a plain tensor")
    return {str(name): value.detach().clone() for name, value in parameters.items()}


# What came back.


def judge(path: Path, reference: Parameters, ran: Ran) -> Compared:
    """What the ranks of a script ended with, against what one process did."""
    ranks = tuple(_rank(one, value, reference) for one, value in zip(ran.outcomes, ran.values, strict=True))
    values = [value for value in ran.values if value is not None]
    whole = len(values) == len(ranks)
    seen = {name for value in values for name in value}
    return Compared(
        path=path,
        world=len(ranks),
        ranks=ranks,
        agree=all(_same(one[name], other[name]) for one in values for other in values for name in one.keys() & other) if whole else None,
        missing=tuple(name for name in reference if name not in seen) if whole else (),
        seconds=ran.seconds,
    )


def _rank(outcome: Outcome[Any], value: Parameters | None, reference: Parameters) -> Rank:
    if value is None:
        word: Word = "exception" if outcome.kind == "ok" else _WORDS[outcome.kind]
        return Rank(rank=outcome.rank, word=word, said=message([outcome]))
    names = [*(name for name in reference if name in value), *(name for name in value if name not in reference)]
    wrong = [name for name in names if name not in reference or not _same(value[name], reference[name])]
    if not wrong:
        return Rank(rank=outcome.rank, word="equal")
    gap = max(_gap(value[name], reference.get(name)) for name in wrong)
    return Rank(rank=outcome.rank, word="differs", gap=gap, first=wrong[0])


def _same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.dtype == other.dtype and bool(torch.equal(tensor, other))


def _gap(tensor: Tensor, other: Tensor | None) -> float:
    if other is None or tensor.shape != other.shape:
        return math.inf
    gap = (tensor.double() - other.double()).abs().max().item() if tensor.numel() else 0.0
    return math.inf if math.isnan(gap) else float(gap)
