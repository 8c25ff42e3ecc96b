"""How far what is derived is from what was measured on real devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from placeproof.answers.answer import Answer
from placeproof.answers.runs import Derivations, DerivedRun
from placeproof.clusters import find as find_cluster
from placeproof.core.diagnostics import Problems, refuse, suggestion
from placeproof.cost.accuracy import Prediction, StepAccuracy, step_accuracy
from placeproof.cost.model.process import process_memory
from placeproof.cost.model.terms import TERMS
from placeproof.implementations import BlockImplementation, find
from placeproof.report import accuracy as documents
from placeproof.runs import MeasuredRun, RunSet, named

if TYPE_CHECKING:
    from placeproof.clusters import Cluster
    from placeproof.report.document import Document


@dataclass(frozen=True, repr=False, kw_only=True)
class Accuracy(Answer):
    """A set of measured runs beside what is derived for them. ``without``: differences of the implementation, and terms of a step's time,
    that were left out; ``rows``: whether every row of a long set is shown."""

    of: RunSet
    without: tuple[str, ...]
    predictions: tuple[Prediction, ...]
    rows: bool = False

    @property
    def document(self) -> Document:
        """What it says."""
        return documents.document(self.of, self.predictions, self.without, rows=self.rows)


@dataclass(frozen=True, repr=False, kw_only=True)
class TermsLeftOut(Answer):
    """How good times of a set are, and how good without each term: by its name, and "" for nothing."""

    of: RunSet
    accuracies: Mapping[str, StepAccuracy]

    @property
    def document(self) -> Document:
        """What it says."""
        return documents.terms_document(self.of, self.accuracies)


def accuracy(runs: str | RunSet, without: Collection[str] = (), *, rows: bool = False) -> Accuracy:
    """Every run of a set, or of the set of that name, derived anew.

    ``without``: names of differences of its implementation to leave out, ``all`` for the blocks' programs alone, and of terms of a step's
    time (:data:`placeproof.cost.model.terms.TERMS`). ``rows``: show all rows of a long set. Raises InputError for a set, a difference or
    a term that is not there.
    """
    of, derive = named(runs) if isinstance(runs, str) else runs, Derivations()
    if not any(run.run_as.model for run in of.runs):
        if without:
            refuse("PP104", f"of `{of.name}` nothing is derived, so that nothing can be left out", help="leave `--without` out")
        return Accuracy(of=of, without=(), predictions=tuple(Prediction(run=run) for run in of.runs), rows=rows)
    run_by, terms = _without(of, tuple(without))
    once = {_plan(run): run for run in of.runs}  # some were measured twice
    made = {plan: prediction(derive(run, _on(run_by, of, run)), on_cluster(of, run), terms, fits=of.fits) for plan, run in once.items()}
    predictions = tuple(replace(made[_plan(run)], run=run) for run in of.runs)
    return Accuracy(of=of, without=tuple(without), predictions=predictions, rows=rows)


def terms_left_out(runs: str | RunSet) -> TermsLeftOut:
    """How good the times of a set, or of the set of that name, are without each term. Raises InputError where no step was measured."""
    of, derive = named(runs) if isinstance(runs, str) else runs, Derivations()
    timed = [run for run in of.runs if run.steps and on_cluster(of, run) is not None]
    if not timed:
        refuse("PP104", f"no step of `{of.name}` was measured", help="take a set of which steps were: `placeproof list runs`")
    run_by, _ = _without(of, ())
    each = [(derive(run, _on(run_by, of, run)), cluster) for run in timed if (cluster := on_cluster(of, run)) is not None]
    found = {name: step_accuracy([step_prediction(one, cluster, [name] if name else []) for one, cluster in each]) for name in ("", *TERMS)}
    return TermsLeftOut(of=of, accuracies={name: one for name, one in found.items() if one is not None})


def some_of(runs: str | RunSet, only: Sequence[str]) -> RunSet:
    """A set, or the set of that name, with those rows alone of which each of the texts is the name, the model or the cluster. Raises
    InputError where there are none."""
    of = named(runs) if isinstance(runs, str) else runs
    told = {run: (run.name, run.run_as.model, run.run_as.cluster or of.cluster) for run in of.runs}
    for text in only:
        if not any(text in own for own in told.values()):
            known = dict.fromkeys(word for own in told.values() for word in own if word)
            help = suggestion(text, known) or "the name of a row, a model or a cluster of the set: `--json` shows them"
            refuse("PP101", f"`{of.name}` has no rows of `{text}`", help=help)
    kept = tuple(run for run in of.runs if all(text in told[run] for text in only))
    if not kept:
        refuse("PP101", f"no row of `{of.name}` is of {' and '.join(f'`{text}`' for text in only)}", help="leave one of them out")
    return replace(of, runs=kept)


def _plan(run: MeasuredRun) -> tuple[object, ...]:
    """What was run, whatever was measured."""
    return run.strategy, run.settings, run.run_as, run.stages, *run.steps


def on_cluster(of: RunSet, run: MeasuredRun) -> Cluster | None:
    """That of a run's devices."""
    name = run.run_as.cluster or of.cluster
    return find_cluster(name) if name else None


def _on(run_by: BlockImplementation | None, of: RunSet, run: MeasuredRun) -> BlockImplementation | None:
    """The implementation on a run's devices."""
    cluster = on_cluster(of, run)
    return None if run_by is None else run_by.on("" if cluster is None else cluster.device.architecture)


def _without(of: RunSet, without: tuple[str, ...]) -> tuple[BlockImplementation | None, tuple[str, ...]]:
    """The implementation of a set, without some of its differences; and the terms among the names."""
    run_by = find(of.implementation) if of.implementation else None
    timed = any(run.steps and on_cluster(of, run) is not None for run in of.runs)
    differences = [one.name for one in run_by.differences] if run_by is not None else []
    known = {*differences, *(TERMS if timed else ())}
    problems = Problems()
    rest = tuple(name for name in without if name not in TERMS or not timed)
    for name in rest if rest != ("all",) or run_by is None else ():
        if name not in known:
            listed = [f"its differences are {', '.join(differences)}; `all` leaves out all of them"] if differences else []
            listed += [f"terms of a step's time are {', '.join(TERMS)}"] if timed else []
            whose = f"`{run_by.name}` has no difference" if run_by is not None else f"`{of.name}` has nothing of the name"
            problems.add("PP101", f"{whose} `{name}`", help=suggestion(name, known) or "; ".join(listed))
    problems.raise_if_any()
    terms = tuple(name for name in without if name not in rest)
    if run_by is None or rest == ("all",):
        return None, terms
    return replace(run_by, differences=tuple(one for one in run_by.differences if one.name not in rest)), terms


def step_prediction(one: DerivedRun, cluster: Cluster, terms: Collection[str] = ()) -> Prediction:
    """How long the steps of a run take on a cluster, without some terms. Raises InputError where they cannot be timed."""
    steps = {m: one.step(m, cluster, terms).seconds for m in one.run.steps}
    return Prediction(run=one.run, steps=steps, devices=one.devices, samples=one.samples, tokens=one.tokens)


def prediction(one: DerivedRun, cluster: Cluster | None, terms: Collection[str] = (), *, fits: bool = False) -> Prediction:
    """What is derived for a run: of memory what was measured, and whether it ``fits``."""
    made = Prediction(run=one.run) if cluster is None or not one.run.steps else step_prediction(one, cluster, terms)
    if one.run.tensors is None and one.run.process is None and not fits:
        return made
    d, values = one.d, {"m": Fraction(min(one.run.steps, default=1)), **one.numbers.values}
    peaks = {cost.stage.name: (peak, cost) for cost in d.costs if (peak := d.value(cost.peak, values)) is not None}
    stage, (peak, cost) = max(peaks.items(), key=lambda item: item[1][0])
    moment = d.peak_moment(cost, values)
    memory = None if cluster is None else process_memory(one.step(int(values["m"]), cluster), cost)
    process = None if memory is None or one.run.process is None else memory.usual
    room = memory if fits else None
    return replace(made, tensors=peak, process=process, room=room, stage=stage, moment="" if moment is None else moment.words)
