"""Deriving for a model: what each pipeline stage holds and computes, and what its devices send, as closed formulas.

Parameters are counted from the headers of the model's blocks, activations are what the blocks' backward reads of their forward, both on the
mesh of the strategy; what data parallelism makes of them follows from the step program. Nothing is typed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from placeproof.collectives import COLLECTIVES
from placeproof.core.mesh import degree_symbol
from placeproof.core.strategy import Strategy
from placeproof.core.symbols import symbol
from placeproof.cost.derive import evaluate
from placeproof.cost.flops import Work
from placeproof.cost.layer import Row
from placeproof.cost.model.base import Base
from placeproof.cost.model.compiled import compiled
from placeproof.cost.model.parts import At, Part, Recompute, parts
from placeproof.cost.model.stages import Stage, pipeline_axis, stages
from placeproof.cost.tensors import Amount
from placeproof.models import Model
from placeproof.models.family import GROUPS

if TYPE_CHECKING:
    import sympy

#: Bytes of an element of values that every system keeps otherwise than activations, by their names in the blocks' programs.
WIDTHS: Mapping[str, int] = {"mask": 1, "drop": 1, "lse": 4}

MODEL_STATES = ("parameters", "gradients", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A tensor that one device keeps: of which part of the model, how often, and the bytes of all of them for one micro-batch."""

    part: str
    row: Row
    times: sympy.Expr

    @property
    def bytes(self) -> sympy.Expr:
        """Bytes for one micro-batch."""
        return self.row.bytes * self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A collective that a device of a stage takes part in: ``bytes`` sent by it a time, ``times`` a step. ``about``: what is sent.

    ``size``: bytes of the tensor that it is about, by the convention of :class:`placeproof.core.exchange.Exchange`; they are sent in
    ``calls`` equal parts. ``each``: whether it comes for each micro-batch.
    """

    kind: str
    axes: tuple[str, ...]
    about: str
    phase: str
    size: sympy.Expr
    bytes: sympy.Expr
    times: sympy.Expr
    calls: Amount = 1
    each: bool = True

    @property
    def total(self) -> sympy.Expr:
        """Bytes a step."""
        return self.bytes * self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """What a device of one stage has, in bytes; ``parameters`` are numbers of elements by group.

    ``in_flight``: micro-batches of which it keeps activations at the same time, at most; ``deferred`` of which it keeps what gradients by
    weights still need. ``working``: what backward computes again of one layer. ``flops`` for one micro-batch.
    """

    stage: Stage
    parameters: Mapping[str, sympy.Expr]
    states: Mapping[str, sympy.Expr]
    held: tuple[Held, ...]
    late: sympy.Expr
    in_flight: sympy.Expr
    deferred: sympy.Expr
    working: sympy.Expr
    transient: sympy.Expr
    sent: tuple[Sent, ...]
    flops: Work

    @property
    def model_states(self) -> sympy.Expr:
        """Parameters, gradients and optimizer state."""
        return sum(self.states.values())

    @property
    def kept(self) -> sympy.Expr:
        """Activations of one micro-batch."""
        return sum(h.bytes for h in self.held)

    @property
    def activations(self) -> sympy.Expr:
        """Activations of all micro-batches that are in flight."""
        return self.in_flight * self.kept + self.deferred * self.late

    @property
    def peak(self) -> sympy.Expr:
        """The most that is alive: model states, activations, gathered parameters, and what is computed again."""
        return self.model_states + self.activations + self.transient + self.working

    def traffic(self) -> dict[str, sympy.Expr]:
        """Bytes sent in a step by the axes of the group."""
        found: dict[str, sympy.Expr] = {}
        for one in self.sent:
            name = "*".join(one.axes)
            found[name] = found.get(name, 0) + one.total
        return found


@dataclass(frozen=True, kw_only=True)
class ModelDerivation:
    """A model under a strategy. ``values``: the numbers of symbols that the model or the strategy says."""

    model: Model
    strategy: Strategy
    recompute: Recompute
    schedule: str
    chunks: int
    parts: tuple[Part, ...]
    costs: tuple[StageCost, ...]
    values: Mapping[str, Fraction]
    at: At
    base: Base

    @cached_property
    def forms(self) -> dict[str, sympy.Expr]:
        """Every closed form by its dotted key: ``stage 0.peak``, ``stage 0.traffic.tp``, ``stage 0.flops.forward``."""
        found: dict[str, sympy.Expr] = {}
        for cost in self.costs:
            name = cost.stage.name
            found |= {f"{name}.parameters.{group}": n for group, n in cost.parameters.items()}
            found |= {f"{name}.{state}": n for state, n in cost.states.items()}
            found |= {f"{name}.{key}": getattr(cost, key) for key in ("model_states", "activations", "transient", "working", "peak")}
            found |= {f"{name}.traffic.{axes}": n for axes, n in cost.traffic().items()}
            found |= {f"{name}.flops.{key}": getattr(cost.flops, key) for key in ("forward", "again", "inputs", "weights")}
        return found

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
    recompute: Recompute = "none",
    layers: Sequence[int] | None = None,
    widths: Mapping[str, int] = WIDTHS,
) -> ModelDerivation:
    """What a model costs under a strategy, in symbols.

    ``layers``: those of each pipeline stage, where they are not as many. ``widths``: bytes of elements of values that are not as wide as
    activations, by ``block.value`` or ``value``. Raises InputError for a strategy that no device could use, for a block that cannot be
    lowered onto its mesh, and for stages that cannot be.
    """
    base = Base(strategy)
    held = parts(model, strategy, recompute)
    only = len(strategy.axes) == 1
    degrees: dict[str, Amount] = {a.name: a.degree or symbol(degree_symbol(a.name, only=only)) for a in strategy.axes}
    known = {name: symbol(name) for name in model.given}
    at = At(sizes=model.dims({**known, **_batch(model)}), degrees=degrees, width=symbol("b_a"), widths=widths)
    times = _times(model, known)
    pipeline = pipeline_axis(strategy)
    depth = None if pipeline is None else degrees[pipeline]
    if isinstance(depth, int):  # stages are told one by one
        times = {**times, **{p.name: n for p in held if isinstance(n := _number(model, p), int)}}
    found = stages(held, times, depth, layers)
    flow = _Flow(strategy, depth)
    costs = tuple(_cost(stage, base, at, flow, pipeline) for stage in found)
    return ModelDerivation(
        model=model,
        strategy=strategy,
        recompute=recompute,
        schedule=flow.name,
        chunks=flow.chunks,
        parts=held,
        costs=costs,
        values=_values(model, strategy),
        at=at,
        base=base,
    )


def _batch(model: Model) -> dict[str, Amount]:
    return {"b": symbol("b")} if "b" not in model.given else {}


def _times(model: Model, known: Mapping[str, Amount]) -> dict[str, Amount]:
    return model.times(known)


def _number(model: Model, part: Part) -> Amount:
    return model.times()[part.name]


def _values(model: Model, strategy: Strategy) -> dict[str, Fraction]:
    """What is a number already: the model's sizes, and the micro-batches that the strategy fixes."""
    found = {name: Fraction(n) for name, n in model.sizes.items()}
    fixed = strategy.schedule.microbatches
    return found | ({"m": Fraction(fixed)} if isinstance(fixed, int) else {})


class _Flow:
    """How micro-batches flow through the stages. ``batches``: their number; ``chunks``: runs of layers on one device."""

    def __init__(self, strategy: Strategy, depth: Amount | None) -> None:
        fixed = strategy.schedule.microbatches
        self.depth = depth
        self.batches: Amount = 1 if fixed is None else fixed if isinstance(fixed, int) else symbol("m")
        self.name = strategy.schedule.in_flight or "1f1b"
        self.chunks = 1

    def in_flight(self, stage: Stage) -> tuple[Amount, Amount]:
        """Micro-batches whose activations a device keeps, and those of which it keeps only what gradients by weights need."""
        import sympy

        if self.depth is None:
            return 1, 0
        from placeproof.schedules import formula

        form = formula(self.name, "peak")
        assert form is not None
        device: Amount = self.depth - 1 if stage.last else 0 if stage.first else 1 if stage.index is None else stage.index
        put = {"p": self.depth, "m": self.batches, "v": self.chunks, "d": device}
        at = form.subs({sympy.Symbol(n): v for n, v in put.items()}, simultaneous=True)
        kept, late = sympy.Symbol("M_B"), sympy.Symbol("M_W")
        return at.subs({kept: 1, late: 0}), at.subs({kept: 0, late: 1})


def _cost(stage: Stage, base: Base, at: At, flow: _Flow, pipeline: str | None) -> StageCost:
    import sympy

    counted = _parameters(stage, at)
    total = sympy.Add(*counted.values())
    unit = sympy.Max(*(sympy.Add(*(r.elements for r in p.bytes(tuple(w for _, w in p.weights), at))) for p, _ in stage.held))
    states = {state: base.of(base.memory[state], total, unit) for state in MODEL_STATES}
    held = tuple(Held(part=p.name, row=r, times=sympy.sympify(n)) for p, n in stage.held for r in p.bytes(p.kept, at))
    working = sympy.Max(0, *(sympy.Add(*(r.bytes for r in p.bytes(p.working, at))) for p, _ in stage.held))
    kept, deferred = flow.in_flight(stage)
    late = sympy.Integer(0)
    if deferred != 0:
        late = sympy.Add(*(n * sum(r.bytes for r in p.bytes(p.layer.kept_for_weights(), at)) for p, n in stage.held))
    return StageCost(
        stage=stage,
        parameters=counted,
        states=states,
        held=held,
        late=late,
        in_flight=sympy.sympify(kept),
        deferred=sympy.sympify(deferred),
        working=working,
        transient=base.of(base.memory["transient"], total, unit),
        sent=tuple(_sent(stage, base, at, flow, pipeline, total, unit)),
        flops=_flops(stage, at),
    )


def _parameters(stage: Stage, at: At) -> dict[str, sympy.Expr]:
    """Elements of one device by group."""
    import sympy

    found: dict[str, sympy.Expr] = {}
    seen: set[str] = set()
    for part, times in stage.held:
        rows = part.bytes(tuple(w for _, w in part.weights), at)
        for (group, weight), row in zip(part.weights, rows, strict=True):
            if weight.name in seen:  # a table that the stage has for both of its ends
                continue
            seen |= {weight.name} & set(part.shared)
            found[group] = found.get(group, sympy.Integer(0)) + times * row.elements
    return {g: found[g] for g in GROUPS if g in found}


def _flops(stage: Stage, at: At) -> Work:
    each = [(part.flops(at), times) for part, times in stage.held]
    totals = {k: sum(n * getattr(w, k) for w, n in each) for k in ("forward", "again", "inputs", "weights")}
    return Work(**totals)


def _sent(stage: Stage, base: Base, at: At, flow: _Flow, pipeline: str | None, total: sympy.Expr, unit: sympy.Expr) -> list[Sent]:
    import sympy

    found = []
    for part, times in stage.held:
        for one, each in part.exchanges(at):
            group = sympy.Mul(*(at.degrees[a] for a in one.axes))
            found.append(
                Sent(
                    kind=one.kind,
                    axes=one.axes,
                    about=f"activations of `{part.name}`",
                    phase=one.phase,
                    size=sympy.sympify(one.bytes),
                    bytes=_ring_bytes(one.kind, group, sympy.sympify(one.bytes)),
                    times=times * each * flow.batches,
                )
            )
    if pipeline is not None:
        found += _between(stage, at, flow, pipeline)
        found += _tied(stage, at, pipeline)
    for message in base.messages:
        whole, loops = base.of(message.bytes, total, unit), base.loops(message)
        found.append(
            Sent(
                kind=message.collective,
                axes=message.axes,
                about=message.state,
                phase=message.phase,
                size=base.of(base.size(message), total, unit),
                bytes=whole,
                times=base.of(message.count, total, unit),
                calls=sum(times for _, times in stage.held) if loops & {"units", "layers"} else 1,
                each="microbatches" in loops,
            )
        )
    return found


def _ring_bytes(kind: str, group: sympy.Expr, size: sympy.Expr) -> sympy.Expr:
    """Bytes that one device sends for a collective about a tensor of that size, by a ring."""
    return size if kind == "shift" else COLLECTIVES[kind].sent(group, size)


def _between(stage: Stage, at: At, flow: _Flow, pipeline: str) -> list[Sent]:
    """What goes to the neighbouring stages: the stream as it lies between layers, and its gradient."""
    import sympy

    part = next(p for p, _ in stage.held if str(p.times) != "1")
    stream = next(t for t in part.layer.program.tensors if part.layer.origin(t.name).block == "input")
    split: dict[str, Amount] = {}
    size = at.width * sympy.Mul(*(at.sizes[d] for d in stream.dims))
    for axis, _ in stream.split:
        size = size / at.degrees[axis]
        split[axis] = at.degrees[axis]
    found = []
    for phase, there in (("forward", not stage.last), ("backward", not stage.first)):
        if there:
            found.append(
                Sent(
                    kind="send",
                    axes=(pipeline,),
                    about="activations between stages",
                    phase=phase,
                    size=size,
                    bytes=size,
                    times=sympy.sympify(flow.batches * flow.chunks),
                )
            )
    return found


def _tied(stage: Stage, at: At, pipeline: str) -> list[Sent]:
    """What the first and the last stage add of the gradient of a table that both have: two devices, each of which sends it once."""
    import sympy

    if stage.first == stage.last:
        return []
    end = stage.held[0 if stage.first else -1][0]
    rows = [r for r in end.bytes(tuple(w for _, w in end.weights), at) if r.stored.name in end.shared]
    size = symbol("b_g") * sympy.Add(*(r.elements for r in rows))
    if not rows:
        return []
    about = "gradients of the tied table"
    return [Sent(kind="tied_reduce", axes=(pipeline,), about=about, phase="backward", size=size, bytes=size, times=sympy.Integer(1))]
