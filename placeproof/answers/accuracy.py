"""How far what is derived is from what was measured on real devices."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer
from placeproof.answers.models import Clock, ModelRun, derived, timed
from placeproof.answers.numbers import Settings, degrees
from placeproof.clusters import find as find_cluster
from placeproof.core.diagnostics import Problems, refuse, suggestion
from placeproof.cost.accuracy import Prediction
from placeproof.cost.model.process import process_memory
from placeproof.implementations import BlockImplementation, find
from placeproof.report import accuracy as documents
from placeproof.runs import MeasuredRun, RunSet, named

if TYPE_CHECKING:
    from placeproof.cost.model import ModelDerivation
    from placeproof.cost.model.time import StepTime
    from placeproof.cost.values import Numbers
    from placeproof.report.document import Document


@dataclass(frozen=True, repr=False, kw_only=True)
class Accuracy(Answer):
    """A set of measured runs beside what is derived for them. ``without``: differences of the implementation that were left out."""

    of: RunSet
    without: tuple[str, ...]
    predictions: tuple[Prediction, ...]

    @property
    def document(self) -> Document:
        """What it says."""
        return documents.document(self.of, self.predictions, self.without)


def accuracy(runs: str | RunSet, without: Collection[str] = ()) -> Accuracy:
    """Every run of a set, or of the set of that name, derived anew.

    ``without``: names of differences of its implementation to leave out, ``all`` for the blocks' programs alone. Raises InputError for a
    set or a difference that is not there.
    """
    of = named(runs) if isinstance(runs, str) else runs
    if not of.implementation:
        if without:
            refuse("PP104", f"of `{of.name}` nothing is derived, so that nothing can be left out", help="leave `--without` out")
        return Accuracy(of=of, without=(), predictions=tuple(Prediction(run=run) for run in of.runs))
    run_by = _without(find(of.implementation), tuple(without))
    once = {(run.strategy, run.settings, run.stages): _prediction(of, run, run_by) for run in of.runs}  # some were measured twice
    predictions = tuple(replace(once[run.strategy, run.settings, run.stages], run=run) for run in of.runs)
    return Accuracy(of=of, without=tuple(without), predictions=predictions)


def _without(run_by: BlockImplementation, without: tuple[str, ...]) -> BlockImplementation | None:
    if without == ("all",):
        return None
    known, problems = [one.name for one in run_by.differences], Problems()
    for name in without:
        if name not in known:
            help = suggestion(name, known) or f"its differences are {', '.join(known)}; `all` alone leaves out all of them"
            problems.add("PP101", f"`{run_by.name}` has no difference `{name}`", help=help)
    problems.raise_if_any()
    return replace(run_by, differences=tuple(one for one in run_by.differences if one.name not in without))


def _prediction(of: RunSet, run: MeasuredRun, run_by: BlockImplementation | None) -> Prediction:
    strategy = subjects.strategy(subjects.read(run.strategy))
    clock = Clock(cluster=find_cluster(of.cluster), overlap="none") if of.cluster else None
    architecture = clock.cluster.device.architecture if clock is not None else ""
    settings = Settings(given=run.settings, precision=of.precision)
    numbers = settings.numbers(degrees=degrees(strategy.axes, strategy.schedule.microbatches))
    how = ModelRun(run_by=None if run_by is None else run_by.on(architecture), recompute=of.recompute or None, layers=run.stages or None)
    d, rest = derived(subjects.model(of.model), strategy, how, numbers)
    rest = replace(rest, values={"m": Fraction(min(run.steps)), **rest.values} if run.steps else rest.values)
    peaks = {cost.stage.name: (peak, cost) for cost in d.costs if (peak := d.value(cost.peak, rest.values)) is not None}
    stage, (peak, cost) = max(peaks.items(), key=lambda item: item[1][0])
    moment = d.peak_moment(cost, rest.values)
    process, steps = None, {}
    if clock is not None and run.process is not None:
        process = process_memory(_step(d, rest, clock), cost).usual
    if clock is not None:
        steps = {m: _step(d, replace(rest, values={**rest.values, "m": Fraction(m)}), clock).seconds for m in run.steps}
    return Prediction(run=run, tensors=peak, process=process, steps=steps, stage=stage, moment="" if moment is None else moment.words)


def _step(d: ModelDerivation, numbers: Numbers, clock: Clock) -> StepTime:
    _, step = timed(d, numbers, clock)
    assert step is not None
    return step
