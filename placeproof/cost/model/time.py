"""How long a training step of a model takes: as a closed form, and as an exact number on a cluster.

A pass of a stage takes the time of its products of matrices at the efficiency eta, and that of its exchanges as far as they are not hidden
behind computing. The schedule puts passes together, messages between stages included; what is exchanged once a step and the update of the
parameters come on top. Copies to a host and the loading of data take no time here.

Where a cluster says what kernels of its device reach, and eta is not set, time is counted by kernels
(:mod:`placeproof.cost.blocks.kernels`). Products of matrices run at the rate that they reach; in attention that is one kernel, half of them
are masked. Everything else takes the bytes that it moves, and t_k for each kernel, as an exchange does, over links as they were measured.
A pass takes no less than it takes to launch its kernels. Elsewhere nothing but products of matrices takes time in a pass, and eta stands
for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from placeproof.clusters import Cluster
from placeproof.core.diagnostics import Problems, refuse, suggestion
from placeproof.core.symbols import info, symbol
from placeproof.cost.blocks.flops import Work
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.derivation import (
    ModelDerivation,
    StageCost,
    StateCost,
    derive_linked,
    flops,
    narrow_flops,
    run_costs,
    stage_kernels,
)
from placeproof.cost.model.passes import StageTime, schedule_seconds, share_of_device, times_of
from placeproof.cost.model.prices import Exact, Known, Symbols, layout, seconds_of_kernels
from placeproof.cost.model.rates import rates_on
from placeproof.cost.model.running import owned
from placeproof.cost.model.traffic import Transfer
from placeproof.cost.values import how_to_set
from placeproof.schedules import Timetable, formula, simulate
from placeproof.schedules import form as closed_form

if TYPE_CHECKING:
    import sympy

Overlap = Literal["none", "data", "all"]
#: What is hidden behind computing -> what is assumed.
OVERLAP: Mapping[str, str] = {
    "none": "nothing is hidden: computing and exchanges come one after the other",
    "data": "exchanges of parameters and gradients are hidden behind a pass as far as its computing lasts; others are not",
    "all": "exchanges of activations are hidden, too: a lower bound, since the computing that waits for them cannot hide them",
}
#: Named values of eta, each with what speaks for it.
EFFICIENCY: Mapping[str, tuple[Fraction, str]] = {
    "peak": (Fraction(1), "products of matrices run at the peak: a lower bound"),
    "half": (Fraction(1, 2), "large runs reach about half of the peak: 163 of 312 TFLOP/s (Narayanan et al. 2021, table 1)"),
}
DEFAULT_OVERLAP: Overlap = "data"


def stage_time(d: ModelDerivation, cost: StageCost, price: Symbols | Exact, overlap: Overlap) -> StageTime:
    """What a stage takes; in symbols or in numbers, as the prices are."""
    import sympy

    without = price.without
    if "ends" in without:
        cost = _layers_alone(d, cost)
    sums: dict[str, list[Amount]] = {kind: [0, 0] for kind in _TERM_OF}
    for sent in cost.sent:
        kind, backward = "send" if sent.kind == "send" else exchange_kind(sent), sent.phase == "backward"
        if _TERM_OF[kind] in without:
            continue
        if kind == "send":
            sums[kind] = [price.exchange(sent), 0]
            continue
        often = sympy.sympify(sent.times) / (1 if kind in ("once", "update") else d.batches)
        sums[kind][backward] += price.exchange(sent) * price.amount(often)
    launched = stage_kernels(cost.stage, d.at).launched if price.by_kernels and "launches" not in without else None
    update = 0 if "update" in without else price.memory(updated(cost)) + price.compute(cost.iterated) + sums["update"][0]
    return together(
        _computing(d, cost, price),
        None if launched is None else (price.launch(launched.forward), price.launch(_kinds(launched, without)[1] + launched.backward)),
        {kind: (forth, back) for kind, (forth, back) in sums.items()},
        update,
        sums["send"][0],
        price.most,
        overlap,
    )


#: The term that an exchange is of, by its kind.
_TERM_OF = {"inside": "exchanges", "data": "gradients", "once": "gradients", "update": "update", "send": "messages"}


def _layers_alone(d: ModelDerivation, cost: StageCost) -> StageCost:
    """With the computing of its layers alone."""
    stage = replace(cost.stage, held=tuple((part, n) for part, n in cost.stage.held if part.repeats))
    return replace(cost, stage=stage, flops=flops(stage, d.at))


def stage_times(d: ModelDerivation, price: Symbols | Exact, overlap: Overlap) -> tuple[tuple[StageTime, ...], dict[int, StageTime]]:
    """What each device takes; and each stage of the model, by its number, where devices have several that are known one by one.

    A device's passes of a micro-batch are then those of its stages one after the other, and of two copies of the model the mean of both.
    """
    alike: dict[int, StageTime] = {}

    def timed(cost: StageCost) -> StageTime:
        key = id(cost.flops)  # stages that are worked out once have one object
        if key not in alike:
            alike[key] = stage_time(d, cost, price, overlap)
        return alike[key]

    of_runs = {number: timed(run) for number, run in run_costs(d).items()}
    devices = (_of_several(timed(cost), [of_runs[n] for n in cost.stage.runs], cost.stage.copies) for cost in d.costs)
    return tuple(devices), of_runs


def _of_several(device: StageTime, runs: Sequence[StageTime], copies: int) -> StageTime:
    """A device's times, with the passes of its stages."""
    if not runs:
        return device

    def mean(times: Iterable[Amount]) -> Amount:
        return sum(times) / copies if copies > 1 else sum(times)

    return replace(
        device,
        forward=mean(r.forward for r in runs),
        inputs=mean(r.inputs for r in runs),
        weights=mean(r.weights for r in runs),
        inside=(mean(r.inside[0] for r in runs), mean(r.inside[1] for r in runs)),
        data=(mean(r.data[0] for r in runs), mean(r.data[1] for r in runs)),
        exposed=(mean(r.exposed[0] for r in runs), mean(r.exposed[1] for r in runs), device.exposed[2]),
    )


def together(
    computing: tuple[Amount, Amount, Amount, Amount],
    launches: tuple[Amount, Amount] | None,
    exchanged: Mapping[str, tuple[Amount, Amount]],
    update: Amount,
    send: Amount,
    most: Callable[..., Amount],
    overlap: Overlap,
) -> StageTime:
    """A stage's times of what it does: computing of forward, what is computed again, gradients by inputs and by weights; ``exchanged``,
    ``inside``, ``data`` and ``once``, in a forward and a backward pass; and the least that these passes take to launch."""
    forward, again, inputs, weights = computing
    inside, data, once = (exchanged[key] for key in ("inside", "data", "once"))
    if launches is not None:
        forward = most(forward, launches[0] - inside[0])
        inputs = most(inputs, launches[1] - inside[1] - again - weights)
    compute = (forward, again + inputs + weights)
    return StageTime(
        forward=forward,
        inputs=again + inputs,
        weights=weights,
        inside=inside,
        data=data,
        once=once,
        exposed=_exposed(compute, inside, data, once, most, overlap),
        update=update,
        send=send,
    )


def _computing(d: ModelDerivation, cost: StageCost, price: Symbols | Exact) -> tuple[Amount, Amount, Amount, Amount]:
    """Of forward, of what is computed again, of gradients by inputs and by weights."""
    each = [cost.flops, narrow_flops(cost.stage, d.at)]
    if price.by_kernels:
        kernels = stage_kernels(cost.stage, d.at)
        of_terms = {"mask": kernels.inside, "moved": kernels.moved, "kernels": kernels.moving}
        each += [_NOTHING if term in price.without else work for term, work in of_terms.items()]
    rows = zip(*(_kinds(work, price.without) for work in each), strict=True)
    forward, again, inputs, weights = (seconds_of_kernels(price, *row) for row in rows)
    return forward, again, inputs, weights


_NOTHING = Work(forward=0, again=0, inputs=0, weights=0)


def _kinds(work: Work, without: Collection[str]) -> tuple[Amount, Amount, Amount, Amount]:
    """Of forward, of what is computed again, of gradients by inputs and by weights."""
    return work.forward, 0 if "recomputation" in without else work.again, work.inputs, work.weights


def exchange_kind(sent: Transfer) -> Literal["inside", "data", "once", "update"]:
    """Of activations; or of parameters and gradients, for each micro-batch or once a step; or within the update, which no pass can hide."""
    if sent.about.startswith("activations"):
        return "inside"
    if sent.phase == "update" and sent.about != "parameters":
        return "update"
    return "data" if sent.each else "once"


def _exposed(
    compute: tuple[Amount, Amount],
    inside: tuple[Amount, Amount],
    data: tuple[Amount, Amount],
    once: tuple[Amount, Amount],
    most: Callable[..., Amount],
    overlap: Overlap,
) -> tuple[Amount, Amount, Amount]:
    """What is not hidden of exchanges in a forward pass, in a backward pass, and of those that come once a step.

    Gradients that are reduced once a step hide behind the backward pass of the last micro-batch, parameters that are gathered once a step
    behind the forward pass of the first one, as far as exchanges of these passes leave room.
    """

    def beyond(exchanged: Amount, computed: Amount) -> Amount:
        return 0 if _nothing(exchanged) else most(0, exchanged - computed)

    if overlap == "none":
        return inside[0] + data[0], inside[1] + data[1], once[0] + once[1]
    passes = (0, 1)
    hidden = [data[i] if overlap == "data" else inside[i] + data[i] for i in passes]
    during = [beyond(hidden[i], compute[i]) + (inside[i] if overlap == "data" else 0) for i in passes]
    rest = [compute[i] if _nothing(hidden[i]) else most(0, compute[i] - hidden[i]) for i in passes]
    return during[0], during[1], beyond(once[0], rest[0]) + beyond(once[1], rest[1])


def _nothing(amount: Amount) -> bool:
    """Whether it is the number 0: of an array of amounts that is not asked."""
    return not hasattr(amount, "__array__") and bool(amount == 0)


def updated(cost: StageCost | StateCost) -> Amount:
    """Bytes that the update reads and writes: gradients, optimizer state twice, parameters twice, of the part that a device updates.

    That part is what it holds optimizer state for; nothing where the optimizer is on the host.
    """
    optimizer = cost.states["optimizer"]
    mine = owned(optimizer)
    passes = 2 * symbol("b_theta") + symbol("b_g")
    return mine * passes + 2 * optimizer if optimizer.has(symbol("b_master"), symbol("b_pre")) else mine * (passes + 2 * symbol("b_omega"))


@dataclass(frozen=True, kw_only=True)
class ModelTime:
    """A step in symbols: those of the derivation, of a device (F_peak, eta, B_mem; ``by_kernels`` also t_k), and of the links along each
    axis (alpha, beta).

    Ring algorithms; one level of links for each axis. Where stages differ, the slowest sets the pace, which is an upper bound.
    """

    d: ModelDerivation
    overlap: Overlap = DEFAULT_OVERLAP
    by_kernels: bool = False

    @property
    def stages(self) -> tuple[StageTime, ...]:
        """Each device's stage, or its stages together."""
        return self._each[0]

    @cached_property
    def _each(self) -> tuple[tuple[StageTime, ...], dict[int, StageTime]]:
        price = Symbols(d=self.d, order=tuple(a.name for a in layout(self.d.linked.axes)), by_kernels=self.by_kernels)
        return stage_times(self.d, price, self.overlap)

    @cached_property
    def slowest(self) -> dict[str, sympy.Expr]:
        """The longest T_F, T_B, T_W, T_send, and what comes once a step (``tail``), over the stages; where devices have several, as if each
        of these were the slowest."""
        price, runs = Symbols(d=self.d, order=()), self._each[1].values()
        share = share_of_device(self.d)
        passes = [tuple(t / share for t in run.passes) for run in runs] if runs else [s.passes for s in self.stages]
        times = {name: price.most(*dict.fromkeys(row)) for name, row in zip(("T_F", "T_B", "T_W"), zip(*passes, strict=True), strict=True)}
        return times | {"T_send": price.most(*(s.send for s in self.stages)), "tail": price.most(*(s.tail for s in self.stages))}

    @cached_property
    def shape(self) -> sympy.Expr | None:
        """The step in T_F, T_B, T_W, T_send, and p, m: what the schedule makes of passes. Without a pipeline p is 1. None where the
        schedule has no closed form of it.

        Times are those of all layers of a device; passes that overlap take as long as one after the other.
        """
        import sympy

        if self.d.linked.pipeline is None:
            return sympy.Symbol("m") * sum(sympy.symbols("T_F T_B T_W"))
        busy, idle = (formula(self.d.order, what) for what in ("busy", "idle"))
        if busy is None or idle is None:
            return None
        share, passes = sympy.sympify(share_of_device(self.d)), sympy.symbols("T_F T_B T_W")
        each = {name: name * share for name in passes} | {sympy.Symbol("T_FB"): sympy.Add(*passes) * share}
        return (busy + idle).xreplace({sympy.Symbol("v"): sympy.Integer(self.d.chunks), **each})

    @property
    def conditions(self) -> tuple[str, ...]:
        """Where :attr:`shape` holds: elsewhere a step on a cluster follows from the order of passes, and has no form."""
        if self.d.linked.pipeline is None:
            return ()
        known = (closed_form(self.d.order, what) for what in ("busy", "idle"))
        return tuple(dict.fromkeys(condition.text for form in known if form is not None for condition in form.when))

    @cached_property
    def form(self) -> sympy.Expr | None:
        """Seconds of a step, None where :attr:`shape` is."""
        import sympy

        if self.shape is None:
            return None
        axis = self.d.linked.pipeline
        put: dict[str, Amount] = {**self.slowest, "m": self.d.batches, "p": 1 if axis is None else self.d.at.degrees[axis]}
        tail = put.pop("tail")
        return self.shape.xreplace({sympy.Symbol(n): sympy.sympify(v) for n, v in put.items()}) + tail


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """A step on a cluster, in exact seconds. ``passes``: how long the schedule takes; ``stages``: as in :attr:`ModelDerivation.costs`;
    ``runs``: the model's stages, where devices have several, as :func:`stage_times` says; ``given``: the values that it was asked with;
    ``reserve``: bytes that a device needs for all but tensors, where that is said."""

    d: ModelDerivation
    price: Exact
    overlap: Overlap
    format: str
    stages: tuple[StageTime, ...]
    runs: Mapping[int, StageTime]
    passes: Fraction
    given: Mapping[str, Fraction]
    reserve: Fraction | None = None

    @property
    def seconds(self) -> Fraction:
        """Of a step."""
        return self.passes + max(Fraction(s.tail) for s in self.stages)

    @property
    def form(self) -> ModelTime:
        """The same in symbols."""
        return ModelTime(d=self.d, overlap=self.overlap, by_kernels=self.price.by_kernels)

    def again(self, cluster: Cluster, without: Collection[str] = ()) -> StepTime:
        """The same step with other figures of its cluster, or without some terms. Raises InputError as :func:`step_time` does."""
        price = self.price
        order = [axis.name for axis in price.axes]
        return _timed(self.d, self.given, cluster, self.overlap, order, price.flat, self.reserve, frozenset(without), price.known)

    @property
    def devices(self) -> int:
        """All of the mesh."""
        return self.price.devices

    @cached_property
    def slowest(self) -> int:
        """The stage whose passes take the longest for one micro-batch, by its place."""
        return max(range(len(self.stages)), key=lambda i: (sum(self.stages[i].passes), -i))

    @property
    def bubble(self) -> Fraction:
        """Of the schedule's time, the share in which the slowest stage does nothing of its own."""
        count = self.price.amount(self.d.batches)
        return 1 - count * sum(self.stages[self.slowest].passes) / self.passes if self.passes else Fraction(0)

    @property
    def terms(self) -> dict[str, Fraction]:
        """What its time is made of, in seconds, as its slowest stage has it."""
        stage, count = self.stages[self.slowest], self.price.amount(self.d.batches)
        busy = count * sum(map(Fraction, stage.passes))
        computing = count * (Fraction(stage.forward) + Fraction(stage.inputs) + Fraction(stage.weights))
        tail = max(self.stages, key=lambda s: Fraction(s.tail))
        return {
            "computing": computing,
            "exchanges in passes": busy - computing,
            "bubble": self.passes - busy,
            "exchanges once a step": Fraction(tail.exposed[2]),
            "update": Fraction(tail.update),
        }

    def idle(self, stage: StageTime) -> Fraction:
        """The share of the passes' time for which a device of a stage waits."""
        return 1 - self.price.amount(self.d.batches) * sum(map(Fraction, stage.passes)) / self.passes if self.passes else Fraction(0)

    @cached_property
    def utilisation(self) -> tuple[Fraction, Fraction]:
        """MFU and HFU: see :func:`utilisation`."""
        return utilisation(self.d, self.price.values, self.seconds, self.price.peak, self.price.cluster.device.peak.get("fp8"))

    def by_level(self, cost: StageCost) -> dict[str, tuple[Fraction, ...]]:
        """Bytes that a device of a stage sends in a step, by axes, over each level of links from the inside out."""
        bytes_by_axes: dict[str, tuple[Fraction, ...]] = {}
        for sent in cost.sent:
            name, over = "*".join(sent.axes), self.price.by_level(sent)
            bytes_by_axes[name] = tuple(a + b for a, b in zip(bytes_by_axes.get(name, (Fraction(0),) * len(over)), over, strict=True))
        return bytes_by_axes

    def algorithms(self, cost: StageCost) -> dict[tuple[str, str], tuple[str, ...]]:
        """Which algorithms are taken, by the kind of exchange and its axes."""
        names_by_kind: dict[tuple[str, str], list[str]] = {}
        for sent in cost.sent:
            names_by_kind.setdefault((sent.kind, "*".join(sent.axes)), []).append(self.price.timed(sent).algorithm)
        return {key: tuple(dict.fromkeys(names)) for key, names in names_by_kind.items()}


def step_time(
    d: ModelDerivation,
    values: Mapping[str, Fraction],
    cluster: Cluster,
    *,
    overlap: Overlap = DEFAULT_OVERLAP,
    order: Sequence[str] | None = None,
    flat: bool = False,
    reserve: Fraction | None = None,
    without: Collection[str] = (),
) -> StepTime:
    """How long a step takes on a cluster. ``values``: of all symbols that are open, and of eta; F_peak, F_fp8, B_mem and t_k where they are
    not the cluster's. Without eta time is counted by kernels, for which the cluster says what these reach.

    ``reserve``: as in :class:`StepTime`. ``order``: axes from the innermost to the outermost, as
    :func:`placeproof.cost.model.prices.layout`. ``flat``: rings alone, instead of
    the fastest algorithms. ``without``: terms that are left out (:data:`placeproof.cost.model.terms.TERMS`).

    Raises InputError where a symbol is not set or cannot have its value, where the cluster has too few devices,
    and where its device has no peak for the format.
    """
    if overlap not in OVERLAP:
        refuse("PP104", f"there is no overlap `{overlap}`", suggestion(overlap, OVERLAP) or "none, data or all")
    require_values(d, values)
    return _timed(_on(told(d, values), cluster), values, cluster, overlap, order, flat, reserve, frozenset(without), Known())


def _timed(
    d: ModelDerivation,
    values: Mapping[str, Fraction],
    cluster: Cluster,
    overlap: Overlap,
    order: Sequence[str] | None,
    flat: bool,
    reserve: Fraction | None,
    without: frozenset[str],
    known: Known,
) -> StepTime:
    """``known``: of the derivation at these values."""
    rates = rates_on(cluster, {**d.values, **values}, fp8=d.at.fp8, without=without)
    price = Exact(
        d=d,
        cluster=rates.cluster,
        values=rates.values,
        axes=layout(d.linked.axes, order),
        peak=rates.peak,
        bandwidth=rates.bandwidth,
        flat=flat,
        by_kernels=rates.by_kernels,
        without=without,
        known=known,
    )
    stages, runs = stage_times(d, price, overlap)
    return StepTime(
        d=d,
        price=price,
        overlap=overlap,
        format=rates.format,
        stages=stages,
        runs=runs,
        passes=schedule_seconds(d, stages, runs, price),
        given=values,
        reserve=reserve,
    )


def _on(d: ModelDerivation, cluster: Cluster) -> ModelDerivation:
    """With the workspaces that its implementation has on the cluster's devices."""
    if d.run_by is None:
        return d
    run_by = d.run_by.on(cluster.device.architecture)
    more = run_by.workspace - d.run_by.workspace
    return replace(d, run_by=run_by, costs=tuple(replace(cost, beside=cost.beside + more) for cost in d.costs))


def told(d: ModelDerivation, values: Mapping[str, Fraction]) -> ModelDerivation:
    """The derivation with a pipeline's stages told one by one, where their number is a value: the same one if they are already."""
    axis = d.linked.pipeline
    if axis is None or isinstance(d.at.degrees[axis], int):
        return d
    depth = int(values[str(d.at.degrees[axis])])
    derived = derive_linked(d.linked.with_degrees({axis: depth}), widths=d.at.widths, fp8=d.at.fp8, run_by=d.run_by, segments=d.parts)
    return replace(derived, model=d.model, strategy=d.strategy)


def timeline(step: StepTime) -> Timetable | None:
    """Who does what when; None without a pipeline."""
    if step.d.linked.pipeline is None:
        return None
    rows, count = times_of(step.d, step.stages, step.runs), int(step.price.amount(step.d.batches))
    return simulate(step.d.order, p=len(step.stages), m=count, v=step.d.chunks, times=rows)


def utilisation(
    d: ModelDerivation, values: Mapping[str, Fraction], seconds: Fraction, peak: Fraction, narrow_peak: Fraction | None = None
) -> tuple[Fraction, Fraction]:
    """The shares of all devices' peak that a step of so many seconds is: of what the model asks for (MFU), and of what is computed (HFU).

    Both count products of matrices (Korthikanti et al. 2022, section 6.3); those in fp8 by ``narrow_peak``, where there is one. Raises
    InputError where a symbol is not set.
    """
    require_values(d, values)
    d = told(d, values)
    saved = 0 if narrow_peak is None else 1 - peak / narrow_peak
    count = d.value(d.batches, values)
    assert count is not None
    ideal = seconds * peak * len(d.costs)  # the devices of one pipeline: those of other axes do the same
    works = [(c.flops, narrow_flops(c.stage, d.at)) for c in d.costs]
    done = [
        tuple(d.value(getattr(all_, what) - saved * getattr(narrow, what), values) for all_, narrow in works) for what in ("model", "total")
    ]
    model, total = (sum((n for n in each if n), Fraction(0)) * count / ideal for each in done)
    return model, total


def require_values(d: ModelDerivation, values: Mapping[str, Fraction]) -> None:
    """Raise InputError with every symbol that a time needs and that has no value; and for an efficiency above 1."""
    problems = Problems()
    exprs = [e for c in d.costs for e in (c.peak, c.flops.total, c.iterated, *(x for s in c.sent for x in (s.total, s.size)))]
    used = {str(s) for e in exprs for s in getattr(e, "free_symbols", ())} | {
        str(n) for n in d.at.degrees.values() if not isinstance(n, int)
    }
    for name in sorted(used - set(values) - set(d.values)):
        problems.add("PP203", f"a time was asked for, and `{name}` is not set ({info(name).meaning})", help=how_to_set(name))
    if values.get("eta", Fraction(1)) > 1:
        problems.add("PP202", f"`eta` is a share of the peak: at most 1, and not {float(values['eta']):g}", help="for example eta=0.5")
    problems.raise_if_any()
