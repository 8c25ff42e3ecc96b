"""The best placements of a model on a cluster, as an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer, Setting, texts
from placeproof.answers.models import Clock, ModelRun, clock_of, require_known
from placeproof.answers.numbers import Settings
from placeproof.answers.proof import judgement_of_model
from placeproof.core.diagnostics import Problems, refuse, unknown_name
from placeproof.core.symbols import info
from placeproof.cost.model.derivation import WIDTHS
from placeproof.cost.model.time import DEFAULT_OVERLAP, Overlap
from placeproof.cost.values import how_to_set
from placeproof.implementations import find as find_implementation
from placeproof.planning import certificate as certificates
from placeproof.planning.choices import Pins, space_of
from placeproof.planning.crew import ALONE, Crew, Running
from placeproof.planning.frontier import Frontier, frontier
from placeproof.planning.objective import OBJECTIVES
from placeproof.planning.reasons import beside, near, reasons, require_strategy
from placeproof.planning.search import Outcome, Search
from placeproof.planning.space import Flow, Point, Space
from placeproof.planning.structures import Derived
from placeproof.planning.task import Task
from placeproof.planning.uneven import Uneven, all_uneven
from placeproof.report import plan as documents

if TYPE_CHECKING:
    from placeproof.clusters import Cluster
    from placeproof.cost.values import Numbers
    from placeproof.models import Model
    from placeproof.report.document import Document

#: Sequences of a step, at most.
MOST_BATCH = 1 << 24


@dataclass(frozen=True, repr=False, kw_only=True)
class Planned(Answer, documents.Found):
    """The best plans of a grid, in order, and what became of its other points. ``count``: how many plans were asked for."""

    count: int

    @property
    def document(self) -> Document:
        """What it says."""
        return documents.document(self)

    def certificate(self, question: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What `placeproof verify` checks: that no placement of the grid is faster than those that are listed; or, where none is, that none
        fits. ``question``: the options of the command line by their names, `global_batch`; without it formulas are not derived again.

        Raises InputError of a search that was interrupted, and where an exchange has no closed form.
        """
        if not self.outcome.complete:
            refuse("PP202", "a search that was interrupted has no certificate", help="let it end")
        if self.outcome.objective.memory or (self.outcome.objective.by_device and self.task.fewer):
            refuse("PP202", "a certificate is about the seconds of a step", help="`--objective time`")
        return certificates.written(Search(self.task, self.space), self.outcome, self.count, question or {})


def differences(document: Mapping[str, Any], task: Task, pins: Pins, count: int) -> Iterator[str]:
    """What of a plan's certificate is not so by what this version of placeproof derives of its question. Raises InputError."""
    if document["count"] != count:
        yield f"the question is about {count} plans, and the certificate about {document['count']}"
    verdicts = Verdicts(task.ran, Crew(1, {"prove": prove}))
    yield from certificates.differences(Search(task, grid(task, pins, count)), document, verdicts)


def planned(
    model: str | Model,
    cluster: str | Cluster,
    devices: int | Sequence[int],
    *,
    batch: int | None = None,
    tokens: int | None = None,
    only: Sequence[str] = (),
    forbid: Sequence[str] = (),
    most: Sequence[str] = (),
    count: int = 10,
    why: Sequence[str] = (),
    objective: str = "time",
    pareto: bool = False,
    uneven: bool = False,
    surely_fit: bool = False,
    efficiency: Setting | None = None,
    overlap: Overlap = DEFAULT_OVERLAP,
    reserve: Setting | None = None,
    implementation: str | None = None,
    fp8: bool = False,
    vocab_padding: int | None = None,
    precision: str | None = None,
    **numbers: Setting,
) -> Planned:
    """The best placements: :func:`placeproof.plan`."""
    run_by = None if implementation is None else find_implementation(implementation)
    clock = clock_of(cluster, efficiency=efficiency, overlap=overlap, reserve=reserve)
    read = subjects.model(model) if isinstance(model, str) else model
    settings = Settings(given=texts(numbers), precision=precision).numbers()
    run = ModelRun(fp8=fp8, padding=vocab_padding, run_by=run_by)
    return plan(
        question(read, run, settings, clock, devices, batch=batch, tokens=tokens, surely=surely_fit),
        Pins(only=only, forbid=forbid, most=most),
        count,
        why,
        objective=objective,
        pareto=pareto,
        uneven=uneven,
    )


def question(
    model: Model,
    run: ModelRun,
    numbers: Numbers,
    clock: Clock,
    devices: int | Sequence[int],
    *,
    batch: int | None = None,
    tokens: int | None = None,
    surely: bool = False,
) -> Task:
    """What is asked. ``devices``: one number of them, or several that are tried; ``batch``: sequences of a step; or ``tokens``: as many as
    that; ``surely``: as in :class:`Task`. Raises InputError with everything that is wrong."""
    problems = Problems()
    counts = sorted({devices} if isinstance(devices, int) else {*devices})
    names = {name for name in numbers.given if name in model.symbols() and name != "b"}
    for name in (n for n in numbers.given if n in ("b", "m", "N") or n.startswith("N_")):
        remedies = {"m": "it follows from the global batch and b", "N": "`--devices 64`"}
        problems.add("PP104", f"`{name}` is what a plan chooses", help=remedies.get(name, f"pin it: `--only {name.removeprefix('N_')}=8`"))
    with problems.collecting():
        model = model.resized({name: int(numbers.values[name]) for name in names})
    length = model.sizes.get("s")
    if (batch is None) == (tokens is None) or (tokens is not None and "s" not in model.symbols()):
        problems.add("PP104", "say how much a step trains on, once", help="`--global-batch 1024` in sequences, or `--tokens 4M`")
    elif tokens is not None and length is not None:
        batch, rest = divmod(tokens, length)
        if rest or not batch:
            help = f"a multiple of {length:,}, or `--set s=4096`"
            problems.add("PP202", f"{tokens:,} tokens are no whole number of sequences of {length:,}", help=help)
    if batch is not None and (batch > MOST_BATCH or (batch < 1 and tokens is None)):
        problems.add("PP202", f"{batch:,} sequences are no batch", help=f"from 1 to {MOST_BATCH:,}")
    if run.run_by is not None:
        require_known(run, model.segments)
    if run.run_by is not None and run.run_by.modules:
        message = f"`{run.run_by.name}` runs modules of one device, and plans split their tensors"
        problems.add("PP310", message, help="another implementation, or none")
    _check_devices(counts, clock.cluster, problems)
    open_ = {str(s) for n in model.symbols().values() if not isinstance(n, int) for s in n.free_symbols}
    open_ |= {"b_theta", "b_g", "b_omega", "b_a"} - {*numbers.values}
    for name in sorted(open_ - {"b"} - names):
        problems.add("PP203", f"`{name}` of {model.name} is not set ({info(name).meaning})", help=how_to_set(name))
    problems.raise_if_any()
    assert batch is not None
    values = {name: n for name, n in clock.values(numbers, fp8=run.fp8).items() if name not in names}
    return Task(
        model=model, cluster=clock.cluster, devices=counts[-1], fewer=(*counts[:-1],), batch=batch, values=values, overlap=clock.overlap,
        reserve=clock.reserve, run_by=run.run_by, fp8=run.fp8, padding=run.padding, widths={**WIDTHS, **run.widths},
        surely=surely, precision=numbers.precision,
    )  # fmt: skip


def _check_devices(counts: Sequence[int], cluster: Cluster, problems: Problems) -> None:
    """Numbers of devices, the least first, that a cluster has."""
    if not counts:
        problems.add("PP202", "a plan is for some number of devices", help="for example 8")
    for number in (n for n in counts if not 1 <= n <= 1 << 20):
        problems.add("PP202", f"{number:,} devices cannot be planned for", help=f"from 1 to {1 << 20:,}")
    joined = cluster.levels[-1].joins
    if joined is not None and counts and counts[-1] > joined:
        problems.add("PP202", f"{cluster.name} joins {joined} devices, and {counts[-1]} are asked for", help=f"at most {joined}")


def grid(task: Task, pins: Pins, count: int, why: Sequence[str] = (), objective: str = "time", *, uneven: bool = False) -> Space:
    """The grid that the pins leave. Raises InputError with everything that is wrong, before anything is derived."""
    problems = Problems()
    if not 1 <= count <= 100:
        problems.add("PP202", f"{count} plans cannot be listed", help="from 1 to 100")
    with problems.collecting():
        if objective not in OBJECTIVES:
            raise unknown_name(f"there is no objective `{objective}`", objective, OBJECTIVES, f"there are {', '.join(OBJECTIVES)}")
    if uneven and objective == "memory":
        problems.add(
            "PP104", "`--uneven` shares out layers for the shortest step, and not for the least memory", help="leave one of them out"
        )
    for text in why:
        with problems.collecting():
            require_strategy(task, text)
    space = problems.attempt(lambda: space_of(task.model, task.counts, task.batch, pins, task.joined, fp8=task.fp8))
    problems.raise_if_any()
    return space()


class Verdicts(dict[str, str]):
    """Verdicts on structures of points, each a strategy with open degrees; ``crew``: processes that know :func:`prove`."""

    def __init__(self, model: Model, crew: Crew) -> None:
        self.model, self.crew = model, crew
        self._asked: dict[str, int] = {}
        self._orders: dict[str, int] = {}

    def ahead(self, point: Point) -> None:
        """Begin a proof. Steps that differ in a schedule alone have the same proof: one process has it."""
        if point.structure not in self._asked:
            alike = replace(point, option=replace(point.option, flow=Flow(schedule="1f1b"))).structure
            by = self._orders.setdefault(alike, len(self._orders))
            self._asked[point.structure] = self.crew.begin("prove", (point.structure, self.model), by)

    def __call__(self, point: Point) -> str:
        """The verdict in a word."""
        self.ahead(point)
        if point.structure not in self:
            self[point.structure] = self.crew.answer(self._asked[point.structure])
        return self[point.structure]


def prove(task: tuple[str, Model]) -> str:
    """The verdict on a model's step under a strategy, in a word."""
    structure, model = task
    return judgement_of_model(structure, model).word


def plan(
    task: Task,
    pins: Pins,
    count: int,
    why: Sequence[str] = (),
    known: Derived | None = None,
    running: Running = ALONE,
    *,
    objective: str = "time",
    pareto: bool = False,
    uneven: bool = False,
) -> Planned:
    """The best plans of the grid that the pins leave, each proved; and beside them strategies that are asked about.

    ``objective``: a key of :data:`placeproof.planning.objective.OBJECTIVES`; ``pareto``: whether also those that nothing beats in both time
    and memory; ``uneven``: whether layers are shared out over stages as is best. ``known``: as of
    :class:`placeproof.planning.search.Search`. Raises InputError.
    """
    space = grid(task, pins, count, why, objective, uneven=uneven)
    search = Search(task, space, known, unfit=uneven)
    besides = tuple(beside(task, space, text) for text in why)
    with Crew(min(running.jobs, len(search.units())), {"bound": search.bounding.of_unit, "prove": prove}) as crew:
        verdicts = Verdicts(task.ran, crew)
        running = replace(running, ahead=verdicts.ahead)
        if pareto or uneven:
            search.widen(inf, running, crew)
        outcome = search.run(count, verdicts, OBJECTIVES[objective], running, crew)
        unbeaten = _frontier(search, outcome, verdicts, running) if pareto else None
        moved = _moved(search, outcome, verdicts, running) if uneven else ()
    if not outcome.complete:
        outcome.plans = [plan for plan in outcome.plans if verdicts.get(plan.point.structure, "proved") == "proved"]
    fits = outcome.plans or (outcome.least is not None and outcome.least.fits) or any(one.best is not None for one in moved)
    no_point = not fits and outcome.complete and outcome.least is None and outcome.least_of_all
    if no_point:
        running.tell("other numbers of sequences and of devices are tried")
    found = () if fits or not outcome.complete else reasons(task, pins, search.known)
    return Planned(
        task=task,
        space=space,
        outcome=outcome,
        count=count,
        verdicts=verdicts,
        reasons=found,
        near=near(task, pins, space, search.known) if no_point else None,
        besides=besides,
        frontier=unbeaten,
        uneven=moved,
    )


def _moved(search: Search, outcome: Outcome, verdicts: Verdicts, running: Running) -> tuple[Uneven, ...]:
    """The best layers of stages: of those plans that an interrupt has left time for."""
    found: list[Uneven] = []
    with outcome.interruptible(running):
        for one in all_uneven(search, outcome.plans, verdicts) if outcome.complete else ():
            found.append(one)
            running.tell(f"layers of {len(found)} placements shared out over their stages")
    return tuple(found)


def _frontier(search: Search, outcome: Outcome, verdicts: Verdicts, running: Running) -> Frontier | None:
    """The plans that nothing beats, None where that was interrupted."""
    if outcome.complete:
        with outcome.interruptible(running):
            return frontier(search, verdicts, running)
    return None
