"""A model under a strategy, as it is asked for: its sizes set, its vocabulary padded, its step timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from placeproof.answers.numbers import byte_count
from placeproof.clusters import find as find_cluster
from placeproof.core.diagnostics import refuse
from placeproof.cost.model import derive_model
from placeproof.cost.model.checks import require_fit, require_names
from placeproof.cost.model.derivation import WIDTHS, ModelDerivation, derive_linked
from placeproof.cost.model.rates import measured
from placeproof.cost.model.stages import pipeline_axis
from placeproof.cost.model.time import DEFAULT_OVERLAP, Overlap, StepTime, step_time
from placeproof.cost.model.vocabulary import padded
from placeproof.cost.values import Numbers
from placeproof.models import Segment
from placeproof.models.programs import block_program, blocks, weights
from placeproof.programs import Assign, Program
from placeproof.report.units import giga
from placeproof.semantics.scheduled import require_order

if TYPE_CHECKING:
    from placeproof.answers.answer import Setting
    from placeproof.clusters import Cluster
    from placeproof.core.strategy import Strategy
    from placeproof.implementations import BlockImplementation
    from placeproof.importers import Imported
    from placeproof.models import Model
    from placeproof.semantics.linked import Linked


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """How a model is run. ``recompute``: None for what a strategy says; ``layers``: of each pipeline stage; ``widths``: those that were
    given; ``padding``: see :func:`placeproof.cost.model.vocabulary.padded`, 0 for none; ``run_by``: the implementation that runs its
    blocks."""

    recompute: str | None = None
    layers: Sequence[int] | None = None
    widths: Mapping[str, int] = field(default_factory=dict)
    fp8: bool = False
    padding: int | None = None
    run_by: BlockImplementation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """What a step is timed with. ``eta``: the share of the peak, where it was given; ``reserve``: bytes for all but tensors, as well.
    ``order``: axes from the innermost to the outermost, where they do not lie as usual."""

    cluster: Cluster
    eta: Fraction | None = None
    overlap: Overlap = DEFAULT_OVERLAP
    order: tuple[str, ...] | None = None
    reserve: Fraction | None = None

    def __post_init__(self) -> None:
        """Raise InputError for a reserve that leaves nothing for tensors."""
        capacity = self.cluster.device.capacity
        if self.reserve is not None and self.reserve >= capacity:
            text = f"a device of {self.cluster.name} has {giga(capacity)} GB, and {giga(self.reserve)} GB are reserved"
            refuse("PP202", text, help="`--reserve` says what a device needs for all but tensors: `--reserve 6GB`")

    def values(self, numbers: Numbers, *, fp8: bool) -> dict[str, Fraction]:
        """Those of the numbers, with the share of the peak that was given; without one where none was and the cluster says what kernels
        reach."""
        eta = {} if self.eta is None else {"eta": self.eta}
        values = {**numbers.values, **eta}
        if not eta and "eta" not in numbers.given and measured(self.cluster, values, fp8=fp8) is not None:
            del values["eta"]
        return values


def clock_of(
    cluster: str | Cluster, *, efficiency: Setting | None, overlap: Overlap, reserve: Setting | None, order: Sequence[str] | None = None
) -> Clock:
    """What Python says of a step on a cluster. Raises InputError for a cluster that there is not, and for what is no number of bytes."""
    return Clock(
        cluster=find_cluster(cluster) if isinstance(cluster, str) else cluster,
        eta=None if efficiency is None else Fraction(str(efficiency)),
        overlap=overlap,
        order=None if order is None else tuple(order),
        reserve=None if reserve is None else byte_count(str(reserve)),
    )


def derived(
    model: Model, strategy: Strategy, run: ModelRun, numbers: Numbers, imported: Sequence[Imported] = ()
) -> tuple[ModelDerivation, Numbers]:
    """The derivation for a model of the sizes that the numbers set, and the other numbers.

    ``imported``: the configuration that the strategy is of, which may say what is computed again, and how many layers stages have.

    Raises InputError where the model cannot have these sizes, or cannot be run that way.
    """
    layers = run.layers or next((read.stages for read in imported), None)
    _check_stages(strategy, layers)
    require_order(strategy, numbers.values)
    model, rest = sized(model, strategy, run.padding, numbers)
    widths = {**WIDTHS, **run.widths}
    require_known(run, model.segments)
    recompute = run.recompute or next((read.recompute for read in imported), None)
    run_by = None if run.run_by is None else run.run_by.knowing(numbers.values)
    d = derive_model(model, strategy, recompute=recompute, layers=layers, widths=widths, fp8=run.fp8, run_by=run_by)
    require_names(d, run.widths)
    return d, rest


def derived_as_linked(linked: Linked, run: ModelRun) -> ModelDerivation:
    """The derivation of a linked program, of which ``run`` says widths alone. Raises InputError."""
    require_known(run, linked.stack)
    d = derive_linked(linked, widths={**WIDTHS, **run.widths}, fp8=run.fp8, run_by=run.run_by)
    require_names(d, run.widths)
    return d


def require_known(run: ModelRun, own: Sequence[Segment]) -> None:
    """Raise InputError where an implementation speaks of a block that neither placeproof nor the model has, or of a value that it lacks."""
    if run.run_by is not None and run.run_by.mentions:
        programs = {block.name: block.program for segment in own for block in segment.blocks}
        known = {name: partial(block_program, name) for name in blocks()} | {name: lambda p=p: p for name, p in programs.items()}
        run.run_by.require_known({name: partial(_names, program) for name, program in known.items()})


def _names(program: Callable[[], Program]) -> dict[str, tuple[str, ...]]:
    """The names of a block's values, of the tensors of its header, of its weights, and of its dimensions."""
    given = tuple(t.name for t in program().tensors)
    made = (target.name for stmt in program().body if isinstance(stmt, Assign) for target in stmt.targets)
    dims = (dim for t in program().tensors for dim in (*t.dims, *([t.picks] if t.picks else [])))
    own = tuple(t.name for t in weights(program()))
    return {"value": tuple(dict.fromkeys((*given, *made))), "tensor": given, "weight": own, "dimension": tuple(dict.fromkeys(dims))}


def sized(model: Model, strategy: Strategy, padding: int | None, numbers: Numbers) -> tuple[Model, Numbers]:
    """The model with the sizes among the numbers, its vocabulary padded, and the numbers that are none of its sizes.

    ``padding``: as of :class:`ModelRun`. Raises InputError where the model cannot have these sizes.
    """
    names = {name for name in numbers.given if name in model.symbols() and name != "b"}
    sizes = {name: numbers.values[name] for name in names}
    model = model.resized({name: int(n) if n.denominator == 1 else n for name, n in sizes.items()})
    rest = {name: n for name, n in numbers.values.items() if name not in names}
    model = model if padding == 0 else padded(model, strategy, rest, padding)
    return model, replace(numbers, values=rest, given=tuple(n for n in numbers.given if n not in names))


def _check_stages(strategy: Strategy, layers: Sequence[int] | None) -> None:
    """Raise InputError where stages are told, and there are none, or nobody knows how many."""
    name = pipeline_axis(strategy)
    axis = next((a for a in strategy.axes if a.name == name), None)
    if layers is not None and axis is None:
        message = f"`--stages` lists the layers of pipeline stages, and `{strategy.name}` has none"
        refuse("PP104", message, help=f"`{strategy.name} * pp({len(layers)})` has {len(layers)} stages")
    elif layers is not None and axis is not None and axis.degree is None:
        message = f"`--stages` lists {len(layers)} stages, and the degree of axis `{name}` is open"
        refuse("PP203", message, help=f"say it in the strategy: `pp({len(layers)})`")


def timed(d: ModelDerivation, numbers: Numbers, clock: Clock | None) -> tuple[Numbers, StepTime | None]:
    """The numbers with what a cluster adds, and the step on it. Raises InputError where numbers do not fit together or are missing."""
    require_fit(d, {n: v for n, v in numbers.values.items() if n in numbers.given})
    if clock is None:
        return numbers, None
    values = clock.values(numbers, fp8=d.at.fp8)
    step = step_time(d, values, clock.cluster, overlap=clock.overlap, order=clock.order, reserve=clock.reserve)
    return replace(numbers, values={**values, "eta": step.price.values["eta"]}, asked=True), step
