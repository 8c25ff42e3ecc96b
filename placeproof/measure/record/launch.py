"""Runs a script as ranks, each in a process of its own, and says of one that fails, dies or hangs what it did last."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import re
import tempfile
import traceback
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Generic, NoReturn, TypeVar

from placeproof.core.diagnostics import Diagnostic, InputError, Place, refuse
from placeproof.measure.processes import Outcome, cause, message, run
from placeproof.measure.record.recording import Instead, Recording
from placeproof.measure.record.together import Numbers, Samples, Trial
from placeproof.measure.record.trail import last_said

#: Up to how many ranks all are run under the fake backend; of more, rank 0 and its neighbour on each axis.
ALL_RANKS = 8
#: Seconds that ranks may take, unless it is said otherwise.
TIMEOUT = 300.0
#: The part of them that a collective waits for other ranks.
_WAITING = 0.2
_ALONE = "run the script by itself to see why"
_HELP = {True: "the fake backend hands out data that nobody sent; `--backend gloo` runs real processes", False: _ALONE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A script, its ranks, which of its steps is followed (from 1), what it is given as arguments, and the seconds that ranks may take, and
    may all wait (``idle``)."""

    script: Path
    world: int
    step: int = 1
    arguments: tuple[str, ...] = ()
    timeout: float = TIMEOUT
    idle: float = inf

    def of(self, world: int) -> Launch:
        """With so many ranks: others than those that were asked for may wait for one that is not there, and for less long."""
        return self if world == self.world else replace(self, world=world, idle=_IDLE, timeout=min(self.timeout, SOON))


class EndedError(InputError):
    """A rank was killed, ended before it should, or did not end."""


#: Seconds that ranks may take where there are other numbers of them, at least, and all may wait: a pipeline may wait for a stage that is
#: not there.
SOON, _IDLE = 50.0, 5.0
#: What a rank brings, and what it does: of a launch, as a rank, and where to say how far it is.
T = TypeVar("T")
Follow = Callable[[Launch, int, Path], T]


def _alone(launch: Launch, rank: int, trail: Path) -> Recording:
    recording: Recording = _session().alone(launch, rank, trail)
    return recording


def _among_others(launch: Launch, rank: int, trail: Path) -> Recording:
    recording: Recording = _session().among_others(launch, rank, trail)
    return recording


def as_parameters_are(launch: Launch, rank: int, trail: Path) -> Recording:
    """What a rank brings without the others, where parameters keep their shapes if there is one rank."""
    recording: Recording = _session().as_parameters_are(launch, rank, trail)
    return recording


def beyond_step(launch: Launch, rank: int, trail: Path) -> Recording:
    """What a rank among others brings that keeps its parameters until further steps are over."""
    recording: Recording = _session().beyond(launch, rank, trail)
    return recording


def scaled_twice(launch: Launch, rank: int, trail: Path) -> Recording:
    """The same where scalers of gradients begin with twice their scale."""
    recording: Recording = _session().beyond(launch, rank, trail, scale=2)
    return recording


def with_samples(instead: Mapping[int, Instead]) -> Follow[Recording]:
    """The same with other samples, by ranks."""

    def beyond(launch: Launch, rank: int, trail: Path) -> Recording:
        recording: Recording = _session().beyond(launch, rank, trail, instead=instead.get(rank))
        return recording

    return beyond


def received_once(launch: Launch, rank: int, trail: Path) -> Recording:
    """The same where backward reads what was received as it was when forward read it, whatever was received there since."""
    recording: Recording = _session().beyond(launch, rank, trail, keep=True)
    return recording


def numbers_of(samples: Mapping[int, Samples], trial: Trial) -> Follow[Numbers]:
    """What a rank comes to in a step with given samples, by ranks: see ``numbered``."""

    def numbers(launch: Launch, rank: int, _: Path) -> Numbers:
        found: Numbers = _session().as_numbers(launch, rank, samples.get(rank, {}), trial)
        return found

    return numbers


def of_rank_0(launch: Launch) -> Recording:
    """What rank 0 does in a step: without the others, if it needs nothing of theirs."""
    try:
        return faked(launch, 0)
    except InputError:
        return forked(launch)[0]


def others_of(recordings: Mapping[int, Recording], way: int, *, apart: bool = False) -> Follow[list[tuple[str, int]]]:
    """What is wrong with losses of a recorded step as sums over samples, with the lines of the script. ``way``: of replacing samples;
    ``apart``: ranks have samples of their own, on which no loss of another rank may depend."""

    def others(launch: Launch, rank: int, _: Path) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = _session().with_others(launch, rank, recordings[rank], way, apart=apart)
        return found

    return others


def functions_of(recording: Recording) -> Follow[list[tuple[str, int]]]:
    """What is wrong with modules that exchange activations, as functions and with their derivatives, with the lines of the script."""

    def functions(launch: Launch, rank: int, _: Path) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = _session().as_functions(launch, rank, recording)
        return found

    return functions


def derivative_of(recordings: Mapping[int, Recording]) -> Follow[list[tuple[str, int]]]:
    """What is wrong with gradients of a recorded pipeline as derivatives of its losses, with the lines of the script."""

    def derivative(launch: Launch, rank: int, _: Path) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = _session().as_derivative(launch, rank, recordings[rank])
        return found

    return derivative


def parts_of(
    recordings: Mapping[int, Recording], divided: Collection[int], lines: Collection[Sequence[int]]
) -> Follow[list[tuple[str, int]]]:
    """What is wrong with gradients of layers of which each rank of a line has made its own parts, with the lines of the script."""

    def parts(launch: Launch, rank: int, _: Path) -> list[tuple[str, int]]:
        recorded = recordings[rank]
        own = frozenset(recorded.states[i].name for i in divided)
        line = next(line for line in lines if rank in line)
        found: list[tuple[str, int]] = _session().as_parts(launch, rank, recorded, own, line)
        return found

    return parts


def faked(launch: Launch, rank: int, follow: Follow[T] = _alone) -> T:  # type: ignore[assignment]
    """What one rank brings without the others, under the fake process group. Raises InputError where it fails, dies or hangs."""
    _session()
    with tempfile.TemporaryDirectory(prefix="placeproof-") as folder:
        if not hasattr(os, "fork"):
            return _here(follow, launch, rank, Path(folder))
        followed = _Followed(follow, launch, Path(folder), rank)
        return _read(launch, Path(folder), run(1, followed, timeout=launch.timeout, init=False), {0: rank}, fake=True)[rank]


def forked(launch: Launch, follow: Follow[T] = _among_others) -> dict[int, T]:  # type: ignore[assignment]
    """What all ranks bring, as real processes. Raises InputError where one fails, dies or hangs."""
    _session()
    with tempfile.TemporaryDirectory(prefix="placeproof-") as folder:
        followed = _Followed(follow, launch, Path(folder), None)
        outcomes = run(launch.world, followed, timeout=launch.timeout, collective_timeout=launch.timeout * _WAITING, idle=launch.idle)
        return _read(launch, Path(folder), outcomes, {r: r for r in range(launch.world)}, fake=False)


def _session() -> ModuleType:
    """What imports torch, all of it; parts of it warn of themselves when they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("placeproof.measure.record.session")


# In the process of a rank.


@dataclass(frozen=True, slots=True)
class _Followed(Generic[T]):
    """What a rank's process does. ``alone``: the rank that runs without others; None where all run."""

    follow: Follow[T]
    launch: Launch
    folder: Path
    alone: int | None

    def __call__(self, rank: int, *_: object) -> T:
        own = rank if self.alone is None else self.alone
        try:
            return self.follow(self.launch, own, self.folder / f"{own}.trail")
        except BaseException as error:
            failure = error if isinstance(error, InputError) else _described(error, self.launch.script)
            (self.folder / f"{own}.failure").write_bytes(pickle.dumps(failure))
            raise


def _described(error: BaseException, script: Path) -> tuple[str, int]:
    """What was raised in one line, and the line of the script."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f.lineno or 0 for f in frames if Path(f.filename) == script.resolve()]
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0] if lines else ''}"
    return text, own[-1] if own else 0


def _here(follow: Follow[T], launch: Launch, rank: int, folder: Path) -> T:
    """Where no process can be forked."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return follow(launch, rank, folder / f"{rank}.trail")
    except (Exception, SystemExit) as error:
        _failed(launch, rank, error if isinstance(error, InputError) else _described(error, launch.script), fake=True)


# What came of it.


def _read(launch: Launch, folder: Path, outcomes: Sequence[Outcome[T]], ranks: dict[int, int], *, fake: bool) -> dict[int, T]:
    if any(o.kind != "ok" for o in outcomes):
        first = cause(outcomes)
        rank = ranks[first.rank]
        failure = folder / f"{rank}.failure"
        if first.kind == "error" and failure.exists():
            _failed(launch, rank, pickle.loads(failure.read_bytes()), fake=fake)
        _ended(launch, folder, rank, first, [o for o in outcomes if o is not first])
    return {ranks[o.rank]: o.value for o in outcomes if o.value is not None}


def _failed(launch: Launch, rank: int, failure: InputError | tuple[str, int], *, fake: bool) -> NoReturn:
    """What the script did cannot be followed, or it raised an exception: shown where it stood."""
    if isinstance(failure, InputError):
        raise failure
    text, line = failure
    refuse("PP603", f"rank {rank} of the script failed: {text}", place=_place(launch, line), help=_HELP[fake])


def _ended(launch: Launch, folder: Path, rank: int, outcome: Outcome[T], others: Sequence[Outcome[T]]) -> NoReturn:
    """A rank was killed, ended, or did not end: what it did last."""
    said = last_said(folder / f"{rank}.trail")
    what, phase, line = said or ("", "", 0)
    words = message([outcome]).partition(" ")[2].partition(" ")[2]
    text = f"rank {rank} {words}"
    help_ = _ALONE
    if outcome.kind == "timeout":
        line = _stands(launch.script, outcome.output) or line
        help_ = f"`--timeout SECONDS` gives ranks more than {launch.timeout:g} s; one that waits for another one does not end at all"
    notes = [f"the last thing that it did: `{what}`, in {phase}" if what else "it did nothing with tensors"]
    if lines := outcome.output.split("Fatal Python error")[0].strip().splitlines() if outcome.kind != "timeout" else []:
        notes.append(f"the last line that it wrote: {lines[-1][:200]}")
    notes += message(others).splitlines() if others else []
    raise EndedError([Diagnostic(code="PP603", message=text, place=_place(launch, line), help=help_, notes=tuple(notes))])


def _stands(script: Path, output: str) -> int:
    """The line of the script at which a process stood when it was stopped, innermost first; 0 if it says none."""
    found = re.findall(rf'File "{re.escape(str(script.resolve()))}", line (\d+)', output.rpartition("(most recent call first)")[2])
    return int(found[0]) if found else 0


def _place(launch: Launch, line: int) -> Place | None:
    lines = launch.script.read_text(encoding="utf-8").splitlines()
    if not 0 < line <= len(lines):
        return None
    return Place(source=launch.script.name, line=line, column=1, text=lines[line - 1], length=len(lines[line - 1]))
