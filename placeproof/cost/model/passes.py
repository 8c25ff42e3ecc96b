"""What a schedule makes of the passes of a pipeline's stages: how long they take, and who does what when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from placeproof.cost.blocks.flops import Work
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.derivation import ModelDerivation, flops
from placeproof.cost.model.prices import Exact
from placeproof.schedules import Schedule, Times, Timetable, is_own, simulate
from placeproof.schedules import step as makespan


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """Seconds of one stage. ``forward``, ``inputs``, ``weights``: computing of one micro-batch (what is computed again is in ``inputs``).

    ``inside``, ``data``: exchanges of activations, and of parameters and gradients, in a forward and in a backward pass; ``once``: the
    latter where they come once a step. ``exposed``: what is not hidden, in the same order, and of what comes once a step. ``update``: of
    the parameters, with what makes and exchanges directions of whole matrices. ``send``: a message to the next stage.
    """

    forward: Amount
    inputs: Amount
    weights: Amount
    inside: tuple[Amount, Amount]
    data: tuple[Amount, Amount]
    once: tuple[Amount, Amount]
    exposed: tuple[Amount, Amount, Amount]
    update: Amount
    send: Amount

    @property
    def passes(self) -> tuple[Amount, Amount, Amount]:
        """T_F, T_B and T_W: with exchanges that are not hidden."""
        return self.forward + self.exposed[0], self.inputs + self.exposed[1], self.weights

    @property
    def tail(self) -> Amount:
        """What comes once a step, behind the passes."""
        return self.exposed[2] + self.update


def schedule_seconds(d: ModelDerivation, stages: Sequence[StageTime], runs: Mapping[int, StageTime], price: Exact) -> Fraction:
    """The schedule's time: by its closed form if all stages take equally long, else each with its own times."""
    count = int(price.amount(d.batches))
    if d.linked.pipeline is None:
        return count * sum((Fraction(t) for t in stages[0].passes), Fraction(0))
    if "bubble" in price.without:
        return count * max(sum((Fraction(t) for t in s.passes), Fraction(0)) for s in stages)
    rows = times_of(d, stages, runs)
    if is_own(d.schedule):  # its forms were tried at small sizes alone
        return simulate(d.order, p=len(stages), m=count, v=d.chunks, times=rows).step
    return _makespan(d.order, len(stages), count, d.chunks, rows[0] if len(set(rows)) == 1 else tuple(rows))


@lru_cache(maxsize=64)
def _makespan(schedule: Schedule, p: int, m: int, v: int, times: Times | tuple[Times, ...]) -> Fraction:
    """As :func:`placeproof.schedules.step`, once for the same times: most terms change none of them."""
    return makespan(schedule, p=p, m=m, v=v, times=times)


def share_of_device(d: ModelDerivation) -> Fraction:
    """The share of a device's pass that is one of its runs of layers."""
    return Fraction(d.order.copies, d.chunks)


def times_of(d: ModelDerivation, stages: Sequence[StageTime], runs: Mapping[int, StageTime]) -> list[Times]:
    """What the schedule is given: the passes of each stage of the model, and a message."""
    send = max(Fraction(s.send) for s in stages)
    each = [tuple(map(Fraction, s.passes)) for s in stages]
    return by_stage(d, each, {n: tuple(map(Fraction, run.passes)) for n, run in runs.items()}, send)


def by_stage(
    d: ModelDerivation, devices: Sequence[tuple[Fraction, ...]], runs: Mapping[int, tuple[Fraction, ...]], send: Fraction | int = 0
) -> list[Times]:
    """Of each stage of the model, in the order of its layers, its own passes; where these are not known, an equal share of what its device
    takes."""
    schedule, p, share = d.order, len(devices), share_of_device(d)
    numbers = range(schedule.depth(p, d.chunks))
    each = [runs.get(n) or tuple(t * share for t in devices[schedule.device(n, 0, p, 2)]) for n in numbers]
    return [Times(forward=f, backward=b, weight=w, send=send) for f, b, w in each]


def work_timeline(d: ModelDerivation, values: Mapping[str, Fraction]) -> Timetable | None:
    """The same without a cluster, in floating-point operations; None without a pipeline, or where its stages or m have no number."""
    axis = d.linked.pipeline
    count = d.value(d.batches, values)
    if axis is None or count is None or not isinstance(d.at.degrees[axis], int):
        return None
    each = [_work(d, cost.flops, values) for cost in d.costs]
    runs = {n: _work(d, flops(run, d.at), values) for cost in d.costs for n, run in cost.stage.runs.items()}
    devices, own = [w for w in each if w is not None], {n: w for n, w in runs.items() if w is not None}
    if len(devices) < len(each) or len(own) < len(runs):
        return None
    return simulate(d.order, p=len(each), m=int(count), v=d.chunks, times=by_stage(d, devices, own))


def _work(d: ModelDerivation, work: Work, values: Mapping[str, Fraction]) -> tuple[Fraction, ...] | None:
    """Floating-point operations of F, B and W; None while a symbol is not set."""
    amounts = [d.value(n, values) for n in (work.forward, work.again + work.inputs, work.weights)]
    known = [n for n in amounts if n is not None]
    return tuple(known) if len(known) == len(amounts) else None
