"""The exact time and memory of one placement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from placeproof.core.diagnostics import refuse
from placeproof.cost.model.checks import require_fit
from placeproof.cost.model.derivation import StageCost, derive_linked
from placeproof.cost.model.parts import DeviceSegment
from placeproof.cost.model.prices import Exact
from placeproof.cost.model.recomputation import chosen, of_layers
from placeproof.cost.model.time import StepTime, step_time
from placeproof.cost.model.vocabulary import padded
from placeproof.planning.space import Point
from placeproof.planning.task import Task
from placeproof.semantics.linked import link
from placeproof.strategies import parse_strategy


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A strategy with its exact time and memory: b sequences in each of m micro-batches, and what backward computes again. ``room``: bytes
    that tensors may take on its fullest device, which has ``peak``; ``most``: the most bytes of tensors on a device, which may be another
    one, with more room. ``layers``: of each stage, where they are not as many; ``order``: axes from the innermost to the outermost, where
    they do not lie as usual."""

    expression: str
    recompute: str
    b: int
    m: int
    step: StepTime
    peak: Fraction
    room: Fraction
    most: Fraction
    layers: tuple[int, ...] = ()
    order: tuple[str, ...] | None = None

    @property
    def seconds(self) -> Fraction:
        """Of a step."""
        return self.step.seconds

    @property
    def fp8(self) -> bool:
        """Whether products with layers' matrices are in fp8."""
        return self.step.d.at.fp8

    @property
    def devices(self) -> int:
        """All of them."""
        return self.step.devices

    @property
    def fits(self) -> bool:
        """Whether tensors have that room."""
        return self.peak <= self.room


@dataclass(frozen=True, kw_only=True)
class Plan(Placed):
    """A point of a grid, worked out."""

    point: Point


def worked_out(
    task: Task,
    expression: str,
    *,
    recompute: str,
    b: int,
    m: int,
    segments: tuple[DeviceSegment, ...] | None = None,
    layers: tuple[int, ...] = (),
    order: tuple[str, ...] | None = None,
) -> Placed:
    """A strategy worked out by itself; ``segments``: those of the model under it, if they are there. ``layers``, ``order``: as of
    :class:`Placed`.

    Raises InputError where it cannot be.
    """
    strategy = parse_strategy(expression)
    values = {**task.values, "b": Fraction(b), "m": Fraction(m)}
    model = task.ran if task.padding == 0 else padded(task.ran, strategy, values, task.padding)
    words = chosen(strategy, recompute)
    linked = link(model, of_layers(strategy, words), recompute=words, layers=layers or None)
    d = derive_linked(linked, widths=task.widths, fp8=task.fp8, run_by=task.run_by, segments=segments)
    require_fit(d, values)
    if (count := d.value(d.batches, values)) != m:
        message = f"`{expression}` has {count} micro-batch{'es' if count != 1 else ''} in a step, and the batch makes {m} of b = {b}"
        refuse("PP205", message, help="`accumulate`, or another number of micro-batches")
    step = step_time(d, values, task.cluster, overlap=task.overlap, order=order, reserve=task.reserve)
    return replace(placed(task, step, expression, recompute=recompute, b=b, m=m), layers=layers, order=order)


def placed(task: Task, step: StepTime, expression: str, *, recompute: str, b: int, m: int) -> Placed:
    """A strategy of which the step is known, with its memory."""
    rows = []
    for cost in step.d.costs:
        rows.append((step.price.amount(cost.peak), room(task, step.price, cost)))
    peak, left = max(rows, key=lambda row: row[0] - row[1])
    most = max(own for own, _ in rows)
    return Placed(expression=expression, recompute=recompute, b=b, m=m, step=step, peak=peak, room=left, most=most)


def room(task: Task, price: Exact, cost: StageCost) -> Fraction:
    """Bytes that tensors may take on a device of a stage: it has a communicator for each group that it exchanges with."""
    return task.room(len({sent.axes for sent in cost.sent if price.timed(sent).group.degree > 1}))
