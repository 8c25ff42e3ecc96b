"""Deriving for a model: what each pipeline stage holds and computes, and what its devices send, as closed formulas.

Parameters are counted from the headers of the model's blocks, activations are what the blocks' backward reads of their forward, both on the
mesh of the strategy; what data parallelism makes of them follows from the step program. Nothing is typed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from placeproof.core.diagnostics import refuse
from placeproof.core.mesh import degree_symbol
from placeproof.core.strategy import EXPERT, NORM, TIED, Strategy
from placeproof.core.symbols import SYMBOLS, symbol
from placeproof.cost.blocks.flops import Work
from placeproof.cost.blocks.kernels import KernelWork
from placeproof.cost.blocks.layer import SizedTensor
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.derive import evaluate
from placeproof.cost.model.chunks import Moment, PipelineFlow
from placeproof.cost.model.compiled import compiled
from placeproof.cost.model.directions import iterated
from placeproof.cost.model.parts import DeviceSegment, Sizing, parts
from placeproof.cost.model.recomputation import Recompute, chosen, extent, of_layers, words
from placeproof.cost.model.running import PassMoment, running
from placeproof.cost.model.stages import Stage, require_something
from placeproof.cost.model.step import StepCosts
from placeproof.cost.model.traffic import ParameterShare, Transfer, sent_of_activations, synchronised
from placeproof.cost.step.host import asked
from placeproof.implementations import BlockImplementation
from placeproof.models import Model, substituted
from placeproof.models.family import GROUPS
from placeproof.schedules import Profile, Schedule
from placeproof.semantics.linked import Linked, link

if TYPE_CHECKING:
    import sympy

#: Bytes of an element of values that every system keeps otherwise than activations, by their names in the blocks' programs.
WIDTHS: Mapping[str, int] = {"mask": 1, "drop": 1, "lse": 4}

MODEL_STATES = ("parameters", "gradients", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTensor:
    """A tensor that one device keeps: of which part of the model, how often, and the bytes of all of them for one micro-batch.

    ``host``: whether it lies on the host.
    """

    part: str
    row: SizedTensor
    times: sympy.Expr
    host: bool = False

    @property
    def bytes(self) -> sympy.Expr:
        """Bytes for one micro-batch."""
        return self.row.bytes * self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """What one run of layers of a device keeps of one micro-batch, in bytes: until backward, on the ``host``, and, while gradients by
    weights are put off, ``late``."""

    kept: sympy.Expr
    host: sympy.Expr
    late: sympy.Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCost:
    """Of what a device of one stage has, what the step makes of its parameters: fields of :class:`StageCost` that have the same names, but
    for what an implementation has in the update besides, and what blocks send."""

    stage: Stage
    parameters: Mapping[str, sympy.Expr]
    states: Mapping[str, sympy.Expr]
    transient: sympy.Expr
    updating: sympy.Expr
    offloaded: sympy.Expr
    sent: tuple[Transfer, ...]
    iterated: sympy.Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """What a device of one stage has, in bytes; ``parameters`` are numbers of elements by group.

    ``runs``: its runs of layers, of which it keeps activations of several micro-batches ``at_once``
    (:meth:`placeproof.cost.model.chunks.PipelineFlow.at_once`). ``working``: what backward computes again of one layer; as an
    implementation runs it, the most of ``moments``. ``beyond``: of that, what lies there beyond all activations when
    most does. ``beside``: what that has there all the time. ``updating``: what passes when parameters
    are updated. ``offloaded``: model states that lie on the host, which are in none of ``states``. ``flops`` for one
    micro-batch, ``iterated`` those of an update of whole matrices, once a step.
    """

    stage: Stage
    parameters: Mapping[str, sympy.Expr]
    states: Mapping[str, sympy.Expr]
    held: tuple[KeptTensor, ...]
    runs: tuple[RunCost, ...]
    at_once: tuple[Moment, ...]
    working: sympy.Expr
    beyond: sympy.Expr
    moments: tuple[PassMoment, ...]
    beside: sympy.Expr
    transient: sympy.Expr
    updating: sympy.Expr
    offloaded: sympy.Expr
    sent: tuple[Transfer, ...]
    flops: Work
    iterated: sympy.Expr

    @property
    def model_states(self) -> sympy.Expr:
        """Parameters, gradients and optimizer state."""
        import sympy

        return sympy.Add(*self.states.values())

    @property
    def kept(self) -> sympy.Expr:
        """Activations of one micro-batch, those on the host apart."""
        return _bytes(h for h in self.held if not h.host)

    @property
    def in_flight(self) -> sympy.Expr:
        """Micro-batches of which a device keeps activations at the same time, at most; those of one of v runs count as one v-th."""
        import sympy

        each = sympy.Rational(self.stage.copies, len(self.runs)) if self.stage.runs else 1
        return sympy.Max(*(each * sympy.Add(*(kept for kept, _ in moment)) for moment in self.at_once))

    @property
    def activations(self) -> sympy.Expr:
        """Activations of all micro-batches that are in flight."""
        return self._most(lambda run: run.kept, lambda run: run.late)

    @property
    def peak(self) -> sympy.Expr:
        """The most that is alive: model states, and, in the passes, activations, gathered parameters, and what is computed again; or what
        passes in the update."""
        import sympy

        passes = self.activations + self.transient + self.beyond
        return self.model_states + self.beside + (passes if self.updating == 0 else sympy.Max(passes, self.updating, evaluate=False))

    @property
    def host(self) -> sympy.Expr:
        """What a device has on its host: model states, and activations of all micro-batches that are in flight."""
        return self.offloaded + self._most(lambda run: run.host, lambda run: run.host * 0)

    def _most(self, kept: Callable[[RunCost], sympy.Expr], late: Callable[[RunCost], sympy.Expr]) -> sympy.Expr:
        import sympy

        moments = ([(n, w, run) for (n, w), run in zip(moment, self.runs, strict=True)] for moment in self.at_once)
        amounts = dict.fromkeys(sympy.Add(*(n * kept(run) + w * late(run) for n, w, run in moment)) for moment in moments)
        return sympy.Max(*amounts, evaluate=False) if len(amounts) > 1 else next(iter(amounts))  # compared, they would take seconds

    @property
    def host_asked(self) -> sympy.Expr:
        """What DeepSpeed asks for it: :func:`placeproof.cost.step.host.asked`."""
        return asked(self.host)

    def traffic(self) -> dict[str, sympy.Expr]:
        """Bytes sent in a step by the axes of the group."""
        sums: dict[str, sympy.Expr] = {}
        for transfer in self.sent:
            name = "*".join(transfer.axes)
            sums[name] = sums.get(name, 0) + transfer.total
        return sums


@dataclass(frozen=True, kw_only=True)
class ModelDerivation:
    """A linked program's costs. ``batches``: micro-batches of a step. ``values``: the numbers of symbols that it says.

    ``schedule``: the name of the pipeline's, ``order``: what it is; where that is searched for, ``profiled``: whether for the model's own
    passes, and not for those that its file says.
    ``model``, ``strategy``: what was linked, where it was. ``run_by``: the implementation that runs its blocks, None for their programs.
    """

    linked: Linked
    recompute: Recompute
    schedule: str
    order: Schedule
    chunks: int
    batches: Amount
    parts: tuple[DeviceSegment, ...]
    costs: tuple[StageCost, ...]
    values: Mapping[str, Fraction]
    at: Sizing
    step: StepCosts
    profiled: bool = False
    model: Model | None = None
    strategy: Strategy | None = None
    run_by: BlockImplementation | None = None

    @cached_property
    def forms(self) -> dict[str, sympy.Expr]:
        """Every closed form by its dotted key: ``stage 0.peak``, ``stage 0.traffic.tp``, ``stage 0.flops.forward``."""
        forms: dict[str, sympy.Expr] = {}
        for cost in self.costs:
            name = cost.stage.name
            forms |= {f"{name}.parameters.{group}": n for group, n in cost.parameters.items()}
            forms |= {f"{name}.{state}": n for state, n in cost.states.items()}
            forms |= {
                f"{name}.{key}": getattr(cost, key)
                for key in ("model_states", "activations", "transient", "working", "peak", "host", "host_asked")
            }
            forms |= {f"{name}.traffic.{axes}": n for axes, n in cost.traffic().items()}
            forms |= {f"{name}.flops.{key}": getattr(cost.flops, key) for key in ("forward", "again", "inputs", "weights")}
            sometimes = (("beside", cost.beside), ("updating", cost.updating), ("flops.update", cost.iterated))
            forms |= {f"{name}.{key}": n for key, n in sometimes if n != 0}
        return forms

    @property
    def undescribed(self) -> tuple[str, ...]:
        """Blocks of which its implementation says nothing, so that they are run as their programs say; all without one."""
        described = () if self.run_by is None else self.run_by.describes
        return tuple(dict.fromkeys(b.name for p in self.parts for b in p.blocks if b.name not in described))

    def peak_moment(self, cost: StageCost, values: Mapping[str, Fraction]) -> PassMoment | None:
        """The moment of a stage's passes at which most lies there, as its implementation runs them; None while a symbol is not set."""
        known = {moment: n for moment in cost.moments if (n := self.value(moment.bytes, values)) is not None}
        return max(known, key=known.__getitem__) if known and len(known) == len(cost.moments) else None

    def value(self, expr: Amount, values: Mapping[str, Fraction] | None = None) -> Fraction | None:
        """The exact number that a formula has here, or None while one of its symbols is unset. ``values`` are set besides."""
        import sympy

        return evaluate(sympy.sympify(expr), {**self.values, **(values or {})})

    def compile(self, key: str, arguments: Sequence[str] | None = None) -> Callable[..., Any]:
        """A fast function of one of :attr:`forms`, the model's numbers put in: see :func:`placeproof.cost.model.compiled.compiled`."""
        return compiled(self.forms[key], self.values, arguments)


def derive_model(
    model: Model,
    strategy: Strategy,
    *,
    recompute: Recompute | None = None,
    layers: Sequence[int] | None = None,
    widths: Mapping[str, int] = WIDTHS,
    fp8: bool = False,
    run_by: BlockImplementation | None = None,
) -> ModelDerivation:
    """What a model costs under a strategy, in symbols: :func:`derive_linked` of the program that they are linked to.

    ``layers``: those of each pipeline stage, where they are not as many. ``recompute``: words of
    :data:`placeproof.cost.model.recomputation.RECOMPUTE` with ``+`` between them, None for what the strategy says. Raises InputError for a
    strategy that no device could use, for a block that cannot be lowered onto its mesh, for a recomputation that is none or contradicts the
    strategy, and for stages that cannot be.
    """
    again = chosen(strategy, recompute)
    linked = link(model if run_by is None else substituted(model, run_by.runs), of_layers(strategy, again), recompute=again, layers=layers)
    return replace(derive_linked(linked, widths=widths, fp8=fp8, run_by=run_by), model=model, strategy=strategy)


def _require_known_groups(linked: Linked) -> None:
    """A step's amounts are in the symbols of groups; proofs need none."""
    for group in (g for g in linked.step.groups if g.name in linked.members and f"P_{g.name}" not in SYMBOLS):
        message = f"a group of the name `{group.name}` is proved, and its costs are not derived: there is no symbol `P_{group.name}`"
        help = f"call it `{NORM}` if each device has all of its weights, `{EXPERT}` if they are experts, `{TIED}` if stages share them"
        refuse("PP311", message, place=group.place, help=help)


def derive_linked(
    linked: Linked,
    *,
    widths: Mapping[str, int] = WIDTHS,
    fp8: bool = False,
    run_by: BlockImplementation | None = None,
    segments: tuple[DeviceSegment, ...] | None = None,
) -> ModelDerivation:
    """What a linked program costs, in symbols.

    ``widths``: bytes of elements of values that are not as wide as activations, by ``block.value`` or ``value``. ``fp8``: what layers keep
    for products of matrices that give gradients by weights, and for nothing else, takes one byte an element
    (:meth:`placeproof.cost.blocks.layer.Layer.operands`). ``run_by``: the implementation that runs the blocks. ``segments``: those
    that were made of the same blocks on a mesh of other degrees. Raises InputError for stages that cannot be, and for groups that have
    other names than costs know.
    """
    _require_known_groups(linked)
    words("+".join(linked.recompute))
    step, at = StepCosts(linked), sizing(linked, widths, fp8)
    segments = _segments(linked, run_by, at) if segments is None else segments
    flow, stages = laid_out(linked, segments, at)
    search = flow.schedule.search
    if search is not None and not search.said:
        flow = replace(flow, profile=_profile(stages, at, linked.values))
    layer = next((p for p in segments if p.repeats), None)
    values = {name: Fraction(n) for name, n in linked.values.items()}
    return ModelDerivation(
        linked=linked,
        recompute="+".join(linked.recompute),
        schedule=flow.name,
        order=flow.schedule,
        profiled=flow.profile is not None,
        chunks=flow.chunks,
        batches=flow.batches,
        parts=segments,
        costs=tuple(map(_Costs(step, at, flow, layer, run_by).of, stages)),
        values=values | ({"m": Fraction(flow.batches)} if flow.fixed else {}),
        at=at,
        step=step,
        run_by=run_by,
    )


def _flow(linked: Linked, at: Sizing) -> PipelineFlow:
    return PipelineFlow(linked=linked, depth=None if linked.stages is None else at.degrees[linked.stages.name])


def laid_out(linked: Linked, segments: Sequence[DeviceSegment], at: Sizing) -> tuple[PipelineFlow, tuple[Stage, ...]]:
    """How micro-batches flow, and what each device has. Raises InputError for stages that cannot be."""
    flow = _flow(linked, at)
    depth = flow.depth
    times = {s.name: s.times.at({n: symbol(n) for n in s.times.names}) for s in linked.stack}
    in_order = depth is None and extent(linked.recompute) is not None and sum(s.repeats for s in segments) > 1
    if isinstance(depth, int) or in_order:  # stages are told one by one, or layers
        times |= {s.name: s.times.at(linked.values) for s in linked.stack if set(s.times.names) <= set(linked.values)}
    stages = flow.stages(segments, times, linked.layers)
    require_something(stages)
    return flow, stages


def _profile(stages: Sequence[Stage], at: Sizing, values: Mapping[str, int]) -> Profile | None:
    """What an order is searched for: operations and what is kept of one sample, activations of two bytes, of the stage that keeps most.
    None while a size is open."""
    known = {**{name: Fraction(n) for name, n in values.items()}, "b": Fraction(1), "b_a": Fraction(2)}
    rows = []
    for stage in stages:
        run, work = _run(stage, at), flops(stage, at)
        amounts = (run.kept, run.late, work.forward, work.again + work.inputs, work.weights)
        row = [n for amount in amounts if (n := evaluate(amount, known)) is not None]
        if len(row) < len(amounts):
            return None
        rows.append(row)
    kept, late, forward, backward, weight = max(rows)
    return Profile(forward=forward, backward=backward, weight=weight, kept=kept, late=late)


def sizing(linked: Linked, widths: Mapping[str, int], fp8: bool) -> Sizing:
    """The sizes of dimensions, and the degrees of axes, in symbols as far as they are open."""
    axes = [a for a in linked.step.axes if a.name not in linked.apart]
    degrees: dict[str, Amount] = {a.name: a.degree or symbol(degree_symbol(a.name, only=len(axes) == 1)) for a in axes}
    sizes = {dim: size.at({n: symbol(n) for n in size.names}) for dim, size in linked.sizes.items()}
    for axis in (a for a in axes if a.name in linked.experts and a.splits.batch):  # samples whose tokens meet where the experts are
        sizes["batch"] = sizes["batch"] * degrees[axis.name]
    load = symbol("c") if linked.experts else 1
    sizes["3"] = 3  # queries, keys and values in one
    sizes |= {f"{dim}/2": size / 2 for dim, size in sizes.items() if not isinstance(size, int)}  # halves of heads are turned by positions
    return Sizing(sizes=sizes, degrees=degrees, width=symbol("b_a"), widths=widths, load=load, fp8=fp8)


def _segments(linked: Linked, run_by: BlockImplementation | None, at: Sizing) -> tuple[DeviceSegment, ...]:
    """The segments, as an implementation runs them with the numbers that it knows."""
    import sympy

    if run_by is None or not run_by.modules:
        return parts(linked, run_by)
    known = {**{name: Fraction(n) for name, n in linked.values.items()}, **run_by.known}
    alone = frozenset(dim for dim, size in at.sizes.items() if evaluate(sympy.sympify(size), known) == 1)
    return parts(linked, run_by, alone, added=evaluate(sympy.sympify(_flow(linked, at).batches), known) != 1)


class _Costs:
    """What devices of a pipeline have. Stages that differ in their number alone are worked out once. ``layer``: one whose input goes along
    the pipeline."""

    def __init__(
        self, step: StepCosts, at: Sizing, flow: PipelineFlow, layer: DeviceSegment | None, run_by: BlockImplementation | None
    ) -> None:
        self.step, self.at, self.flow, self.layer, self.run_by = step, at, flow, layer, run_by
        self._known: dict[tuple[object, ...], StageCost] = {}
        self._runs: dict[tuple[object, ...], RunCost] = {}

    def of(self, stage: Stage) -> StageCost:
        """What a device has of a stage."""
        runs = tuple(self._run(run) for run in stage.runs.values() or [stage])
        at_once = self.flow.at_once(stage, [runs.index(run) for run in runs])
        put_off = any(late != 0 for moment in at_once for _, late in moment)
        alike = (id(self.step.at(stage)), stage.index == 0, stage.end, stage.copies, put_off, *map(_members, (stage, *stage.runs.values())))
        if alike not in self._known:
            self._known[alike] = self._made(stage, runs, put_off)
        return replace(self._known[alike], stage=stage, at_once=at_once)

    def _run(self, run: Stage) -> RunCost:
        key = _members(run)
        if key not in self._runs:
            self._runs[key] = _run(run, self.at)
        return self._runs[key]

    def _made(self, stage: Stage, runs: tuple[RunCost, ...], put_off: bool) -> StageCost:
        """All but what is kept at once."""
        at, flow, run_by, linked = self.at, self.flow, self.run_by, self.flow.linked
        if run_by is not None and run_by.modules and (put_off or at.fp8):
            what = "what gradients by weights need that are put off" if put_off else "which tensors are in fp8"
            refuse("PP310", f"`{run_by.name}` does not say {what}", help="another schedule" if put_off else "leave `--fp8` out")
        own = state_costs(stage, self.step, at, linked)
        beyond = running(stage, at, run_by, put_off, linked.values, own.states["optimizer"])
        return StageCost(
            stage=stage,
            parameters=own.parameters,
            states=own.states,
            held=tuple(_held(stage, at)),
            runs=runs,
            at_once=(),
            working=beyond.working,
            beyond=beyond.beyond,
            moments=beyond.moments,
            beside=beyond.beside,
            transient=own.transient,
            updating=own.updating + beyond.updating,
            offloaded=own.offloaded,
            sent=(
                *sent_of_activations(stage, at, flow.batches, flow.hops(stage), linked, self.layer),
                *own.sent,
            ),
            flops=flops(stage, at),
            iterated=own.iterated,
        )


def _members(stage: Stage) -> tuple[object, ...]:
    """What a stage has, whatever its number."""
    every = (stage.held, *(members for replay in stage.replays for members in (replay.members, replay.freed)))
    return stage.first, stage.last, stage.several, *(tuple((id(part), times) for part, times in members) for members in every)


def cost_of(d: ModelDerivation, stage: Stage) -> StageCost:
    """What a device has of another stage than those of :attr:`ModelDerivation.costs`, of the same number."""
    layer = next((p for p in d.parts if p.repeats), None)
    return _Costs(d.step, d.at, _flow(d.linked, d.at), layer, d.run_by).of(stage)


def state_costs(stage: Stage, step: StepCosts, at: Sizing, linked: Linked) -> StateCost:
    """What the step makes of a stage's parameters, whatever its blocks keep."""
    import sympy

    counted = _parameters(stage, at)
    shares = [ParameterShare(costs, counted, stage, at, linked) for costs in step.at(stage)]
    return StateCost(
        stage=stage,
        parameters=counted,
        states={state: sympy.Add(*(s.of(s.costs.memory[state]) for s in shares)) for state in MODEL_STATES},
        transient=passing(shares, "transient"),
        updating=passing(shares, "update"),
        offloaded=sympy.Add(*(s.of(s.costs.memory["host"]) for s in shares)),
        sent=tuple(synchronised(stage, shares, linked)),
        iterated=iterated(stage, step, at),
    )


def _run(stage: Stage, at: Sizing) -> RunCost:
    import sympy

    tensors = tuple(_held(stage, at))
    late = sympy.Add(*(n * sum(r.bytes for r in p.bytes(p.late, at)) for p, n in stage.held))
    return RunCost(kept=_bytes(h for h in tensors if not h.host), host=_bytes(h for h in tensors if h.host), late=late)


def _held(stage: Stage, at: Sizing) -> Iterator[KeptTensor]:
    """What a device of a stage keeps of one micro-batch."""
    import sympy

    for part, times in stage.held:
        for row in part.bytes(part.kept, at):
            host = part.checkpoints.host and part.is_checkpoint(row.stored)
            yield KeptTensor(part=part.name, row=row, times=sympy.sympify(times), host=host)


def _bytes(tensors: Iterable[KeptTensor]) -> sympy.Expr:
    import sympy

    return sympy.Add(*(h.bytes for h in tensors))


def passing(shares: Sequence[ParameterShare], when: str) -> sympy.Expr:
    """What passes at once, of all shares together: the most of any part, in the passes (``transient``) or in the ``update``."""
    import sympy

    if any(s.apart for s in shares):
        points = [tuple(map(sympy.expand, point)) for point in zip(*(s.costs.points[when] for s in shares), strict=True)]
        numbers = range(max(len(s.parts) for s in shares))
        every = (sympy.Add(*(s.of_unit(p, n) for s, p in zip(shares, point, strict=True))) for point in points for n in numbers)
        amounts = dict.fromkeys(n for n in every if n != 0)
        return sympy.Max(*amounts) if amounts else sympy.Integer(0)
    if len(shares) == 1:
        return shares[0].of(shares[0].costs.memory[when])
    together = zip(*(s.units for s in shares), strict=True)
    return sympy.Max(*(sympy.Add(*(s.of(s.costs.memory[when], n) for s, n in zip(shares, units, strict=True))) for units in together))


def _parameters(stage: Stage, at: Sizing) -> dict[str, sympy.Expr]:
    """Elements of one device by group."""
    import sympy

    elements: dict[str, sympy.Expr] = {}
    seen: set[str] = set()
    for part, times in stage.held:
        rows = part.bytes(tuple(w for _, w in part.weights), at)
        for (group, weight), row in zip(part.weights, rows, strict=True):
            if weight.name in seen:  # a table that the stage has for both of its ends
                continue
            seen |= {weight.name} & set(part.shared)
            elements[group] = elements.get(group, sympy.Integer(0)) + stage.copies * times * row.elements
    return {g: elements[g] for g in GROUPS if g in elements}


def run_costs(d: ModelDerivation) -> dict[int, StageCost]:
    """The stages of the model, by their numbers, where a device has several and they are known one by one: what the passes of each compute
    and exchange. Their states and memory are those of the device.

    Those that are alike are one.
    """
    import sympy

    known: dict[tuple[object, ...], StageCost] = {}
    found: dict[int, StageCost] = {}
    for cost in d.costs:
        formulas = d.step.at(cost.stage)
        for number, run in cost.stage.runs.items():
            key = (id(formulas), run.first, run.last, *((part.name, times) for part, times in run.held))
            if key not in known:
                counted = _parameters(run, d.at)
                shares = [ParameterShare(costs, counted, run, d.at, d.linked) for costs in formulas]
                sent = (
                    *sent_of_activations(run, d.at, d.batches, (0, 0), d.linked, None),
                    *synchronised(run, shares, d.linked),
                )
                known[key] = replace(cost, stage=run, sent=sent, flops=flops(run, d.at), iterated=sympy.Integer(0))
            found[number] = known[key]
    return found


def flops(stage: Stage, at: Sizing) -> Work:
    """Floating-point operations of a stage for one micro-batch."""
    return _together((part.flops(at), times) for part, times in stage.held)


def narrow_flops(stage: Stage, at: Sizing) -> Work:
    """Those floating-point operations of a stage, for one micro-batch, that are done in fp8."""
    return _together((part.narrow_flops(at), times) for part, times in stage.held)


def _together(each: Iterable[tuple[Work, Amount]]) -> Work:
    """All of some work, each so many times."""
    import sympy

    every = list(each)
    return Work(**{k: sympy.Add(*(n * getattr(w, k) for w, n in every)) for k in ("forward", "again", "inputs", "weights")})


def stage_kernels(stage: Stage, at: Sizing) -> KernelWork:
    """What the kernels of a stage do for one micro-batch."""
    each = [(part.kernels(at), times) for part, times in stage.held]
    names = ("moved", "moving", "launched", "inside")
    return KernelWork(**{name: _together((getattr(k, name), n) for k, n in each) for name in names})
