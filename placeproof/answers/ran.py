"""What the best plan would have been, beside each plan of a set of measured runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from placeproof.answers import subject as subjects
from placeproof.answers.accuracy import on_cluster
from placeproof.answers.answer import Answer
from placeproof.answers.models import Clock, ModelRun
from placeproof.answers.numbers import Settings
from placeproof.answers.plan import plan, question
from placeproof.answers.runs import Derivations, DerivedRun
from placeproof.core.diagnostics import refuse
from placeproof.implementations import BlockImplementation
from placeproof.implementations import find as find_implementation
from placeproof.planning.choices import Pins, space_of
from placeproof.planning.exact import Placed, placed
from placeproof.planning.ran import Ran, carried, lacking
from placeproof.planning.structures import Derived
from placeproof.planning.task import Task
from placeproof.report import ran as documents
from placeproof.report.placed import fits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placeproof.clusters import Cluster
    from placeproof.report.document import Document
    from placeproof.runs import RunSet

#: The whole grid.
NO_PINS = Pins()


@dataclass(frozen=True, repr=False, kw_only=True)
class PlansBeside(Answer):
    """The plans of a set, each beside the best one of the grid. ``left``: how many rows are not compared, by the reason."""

    of: RunSet
    plans: tuple[Ran, ...]
    left: Mapping[str, int]

    @property
    def document(self) -> Document:
        """What it says."""
        return documents.document(self.of, self.plans, self.left)


@dataclass(kw_only=True)
class _Question:
    """What some runs answer: a model on so many devices of a cluster, with a global batch; ``theirs``: their plans, by what was run."""

    task: Task
    theirs: dict[tuple[object, ...], tuple[DerivedRun, Placed, list[str]]] = field(default_factory=dict)

    @property
    def roomy(self) -> Task:
        """The same on devices with as much room for tensors as their plans took that ran, where that is more than is usual: what it is
        derived to be, so that both are measured alike."""
        every = [theirs for _, theirs, _ in self.theirs.values() if fits(theirs) is not False]
        most = max(every, key=lambda theirs: theirs.peak, default=None)
        if most is None or most.peak <= most.room:
            return self.task
        return replace(self.task, reserve=self.task.cluster.device.capacity - most.peak)


def plans_beside(of: RunSet, pins: Pins = NO_PINS) -> PlansBeside:
    """The plans of a set, each beside the best one of the grid for the same model, devices and batch, which has as much room as theirs.

    ``pins``: what is left of the grid. Raises InputError where no step was measured.
    """
    derive, run_by = Derivations(), find_implementation(of.implementation) if of.implementation else None
    questions: dict[tuple[object, ...], _Question] = {}
    left: dict[str, int] = {}
    for run in of.runs:
        cluster = on_cluster(of, run)
        if cluster is None or not run.steps:
            continue
        if subjects.strategy(subjects.read(run.strategy)).schedule.update is not None:
            why = f"the grid has no update of whole matrices: {run.run_as.model}"
            left[why] = left.get(why, 0) + 1
            continue
        on = None if run_by is None else run_by.on(cluster.device.architecture)
        one = derive(run, on)
        for m in run.steps:
            _add(questions, one, m, cluster, on)
    if not questions and not left:
        refuse("PP104", f"no step of `{of.name}` was measured", help="take a set of which steps were: `placeproof list runs`")
    known: dict[tuple[object, ...], Derived] = {}
    return PlansBeside(of=of, plans=tuple(ran for asked in questions.values() for ran in _answered(asked, pins, known)), left=left)


def _add(
    questions: dict[tuple[object, ...], _Question], one: DerivedRun, m: int, cluster: Cluster, run_by: BlockImplementation | None
) -> None:
    """A plan that was run, with its question."""
    run, step = one.run, one.step(m, cluster)
    settings = tuple(text for text in run.settings if text.partition("=")[0] not in ("b", "m") and not text.startswith("N"))
    batch = one.samples * m
    asked = run.run_as.model, settings, run.run_as.precision, run.run_as.fp8, run.run_as.overlap, cluster.name, one.devices, batch
    if asked not in questions:
        numbers = Settings(given=settings, precision=run.run_as.precision or None).numbers()
        how = ModelRun(fp8=bool(run.run_as.fp8), run_by=run_by)
        clock = Clock(cluster=cluster, overlap=run.run_as.overlap)  # type: ignore[arg-type]
        questions[asked] = _Question(task=question(subjects.model(run.run_as.model), how, numbers, clock, one.devices, batch=batch))
    task, plans = questions[asked].task, questions[asked].theirs
    shape = run.strategy, run.settings, run.stages, run.run_as.recompute
    if shape in plans:
        plans[shape][2].append(run.name)
        return
    b = int(one.numbers.values["b"])
    theirs = placed(task, step, run.strategy, recompute=run.run_as.recompute or "none", b=b, m=m)
    plans[shape] = one, theirs, [run.name]


def _answered(asked: _Question, pins: Pins, known: dict[tuple[object, ...], Derived]) -> list[Ran]:
    task = asked.roomy
    key = task.model.name, tuple(task.model.sizes.items()), task.fp8, task.cluster.device.architecture
    known[key] = carried(known.get(key, Derived()), task)
    outcome = plan(task, pins, 1, known=known[key]).outcome
    ours = outcome.plans[0] if outcome.plans else None
    space = space_of(task.model, task.counts, task.batch, pins, task.joined, fp8=task.fp8)
    return [
        Ran(names=tuple(names), task=task, theirs=theirs, ours=ours, lacks=lacking(space, one.strategy, theirs.recompute, one.run.stages))
        for one, theirs, names in asked.theirs.values()
    ]
