"""The segments of a model as one device runs them: blocks lowered onto the strategy's mesh, put into chains, recomputed where asked.

Axes that split the computation, and those that split a sequence, are those of the blocks' own programs. Axes that split the batch are
not: a device's micro-batch is what a block sees. Collectives of gradients by weights over axes that split a sequence are left to the step
program, which reduces every gradient once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from placeproof.core.diagnostics import Diagnostic, InputError
from placeproof.core.exchange import Exchange
from placeproof.core.states import ACTIVATIONS
from placeproof.core.strategy import EXPERT, OUTER, Strategy
from placeproof.cost.blocks.chain import INPUT
from placeproof.cost.blocks.flops import Work
from placeproof.cost.blocks.layer import Layer, Row, Stored, layer
from placeproof.cost.blocks.tensors import Amount, BlockExchange, Splits, exchanges
from placeproof.cost.model.recomputation import Recompute, chosen, recomputed
from placeproof.models import Block, Model, Segment
from placeproof.models.expressions import Expression
from placeproof.programs import POSITIONS
from placeproof.semantics.blocks import Plan, combined, context_parallel, expert_parallel, lower_block, tensor_parallel
from placeproof.semantics.lower.facts import Facts

#: The group of a router's weights (:data:`placeproof.models.family.GROUPS`).
ROUTER = "router"


def plan_of(strategy: Strategy) -> Plan:
    """What the strategy's axes split of a block."""
    plans = []
    facts = Facts(strategy)
    for axis in strategy.axes:
        if axis.splits.name == "hidden":
            experts: Literal["split", "whole"] = "whole" if facts.whole_experts else "split"
            plans.append(tensor_parallel(axis.name, axis.degree, sequence=facts.sequence_parallel, experts=experts))
        elif axis.splits.name == "sequence":
            by: Literal["gather", "ulysses"] = "ulysses" if strategy.schedule.attention == "ulysses" else "gather"
            plans.append(context_parallel(axis.name, axis.degree, by=by))
        elif axis.name == facts.experts:
            plans.append(expert_parallel(axis.name, axis.degree))
    return combined(*plans) if plans else Plan(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Where the inputs of layers lie that a strategy keeps: on the ``host``, and in parts ``over`` axes, gathered when they are used."""

    host: bool = False
    over: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Part:
    """One repetition of a segment on one device. ``plain``: without recomputation. ``ring``: the axes round which keys and values go.
    ``shared``: names of weights that several parts have in common. ``checkpoints``: where its inputs lie, if the strategy keeps them alone.
    """

    name: str
    times: Expression
    blocks: tuple[Block, ...]
    plain: Layer
    layer: Layer
    drawn: tuple[str, ...] = ()
    ring: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    checkpoints: Checkpoints = Checkpoints()

    @property
    def repeats(self) -> bool:
        """Whether it is a layer, of which a model has several."""
        return str(self.times) != "1"

    @cached_property
    def weights(self) -> tuple[tuple[str, Stored], ...]:
        """Its weights, each with the parameter group that it is of."""
        return tuple((self.blocks[w.number - 1].groups[w.name], w) for w in self.layer.weights())

    @cached_property
    def kept(self) -> tuple[Stored, ...]:
        """What lives from forward to backward, checkpoints in the parts that one device has of them."""
        over = self.checkpoints.over
        found = self.layer.kept(self.drawn)
        return tuple(replace(s, split=_split(s.split, over)) if over and self.is_checkpoint(s) else s for s in found)

    def is_checkpoint(self, stored: Stored) -> bool:
        """Whether a tensor is an input of the layer."""
        return stored.block == INPUT and stored.picks is None

    @cached_property
    def working(self) -> tuple[Stored, ...]:
        """What backward has of one repetition beyond what was kept, once it is computed again; nothing where nothing is.

        A checkpoint that lies elsewhere, or in parts, is there again as well.
        """
        if self.layer is self.plain:
            return ()
        elsewhere = self.checkpoints != Checkpoints()
        kept = {(s.number, s.name) for s in self.kept if not (elsewhere and self.is_checkpoint(s))}
        return tuple(s for s in self.plain.kept() if (s.number, s.name) not in kept)

    @cached_property
    def narrow(self) -> frozenset[tuple[int, str]]:
        """What a layer keeps as an operand for gradients by weights and for nothing else, by block and name; routers are not in fp8."""
        apart = {(w.number, w.name) for group, w in self.weights if group == ROUTER}
        return self.layer.operands(apart) if self.repeats else frozenset()

    def bytes(self, stored: tuple[Stored, ...], at: At) -> tuple[Row, ...]:
        """Each tensor with its elements and bytes."""
        rows = self.layer.rows(stored, at.sizes, at.degrees, at.width, at.widths, at.load)
        if not at.fp8:
            return rows
        return tuple(replace(r, bytes=r.elements) if _key(r.stored) in self.narrow and not at.told(r.stored) else r for r in rows)

    def flops(self, at: At) -> Work:
        """Floating-point operations of one repetition."""
        if self.name not in at.flops:
            at.flops[self.name] = self.layer.flops(at.sizes, at.degrees, load=at.load)
        return at.flops[self.name]

    def exchanges(self, at: At) -> tuple[tuple[Exchange, Amount], ...]:
        """The collectives of activations, each with how often it comes in one repetition."""
        if self.name not in at.exchanges:
            at.exchanges[self.name] = tuple(self._exchanges(at))
        return at.exchanges[self.name]

    def _exchanges(self, at: At) -> Iterator[tuple[Exchange, Amount]]:
        """The collectives of activations, checkpoints that are gathered among them.

        Where keys and values go round a ring, an all-gather of n parts is n - 1 steps of a part each, and a reduce-scatter n: gradients
        that travel have one more step to be home (the program ring_attention of ``placeproof.blocks``).
        """
        for shape, one in self._sent(at):
            if POSITIONS.isdisjoint(shape.dims):
                continue
            if one.axes and set(one.axes) <= set(self.ring) and one.kind in ("all_gather", "reduce_scatter"):
                (axis,) = one.axes
                degree = at.degrees[axis]
                part = _part(one.bytes, degree)
                steps = degree - 1 if one.kind == "all_gather" else degree * _any_other(degree)
                yield Exchange(kind="shift", axes=one.axes, bytes=part, op="", phase=one.phase), steps
            else:
                yield one, 1
        if self.checkpoints.over:
            for stored in filter(self.is_checkpoint, self.layer.kept(self.drawn)):
                (row,) = self.bytes((stored,), at)
                yield Exchange(kind="all_gather", axes=self.checkpoints.over, bytes=row.bytes, phase="backward"), 1

    def _sent(self, at: At) -> tuple[tuple[BlockExchange, Exchange], ...]:
        """Every collective of the layer, as its shape and with its bytes."""
        if self.name not in at.sent:
            bytes_ = self.layer.exchanges(at.sizes, at.degrees, at.width, at.load)
            at.sent[self.name] = tuple(zip(exchanges(self.layer.program), bytes_, strict=True))
        return at.sent[self.name]

    def summed(self, at: At, axis: str) -> tuple[tuple[Amount, bool], ...]:
        """The gradients by weights of which each device of an axis has a part, where a layer's own program sums them over it: elements of
        each, and whether it is of experts."""
        experts = [set(w.dims) for group, w in self.weights if group == EXPERT]
        found = ((s, e) for s, e in self._sent(at) if s.dims and POSITIONS.isdisjoint(s.dims) and axis in s.axes)
        return tuple((e.bytes / at.width, set(s.dims) in experts) for s, e in found)


def _split(split: Splits, over: tuple[str, ...]) -> Splits:
    """With tokens split over more axes."""
    found = dict(split)
    return tuple({**found, "tokens": (*found.get("tokens", ()), *over)}.items())


def _key(stored: Stored) -> tuple[int, str]:
    return stored.number, stored.name


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """Where amounts are worked out: sizes of dimensions, degrees of axes, bytes of an element, and of the elements of named values.

    ``load``: tokens that a device's experts get, over the mean of all devices. ``fp8``: operands for gradients by weights take one byte,
    unless ``widths`` names them.
    """

    sizes: Mapping[str, Amount]
    degrees: Mapping[str, Amount]
    width: Amount
    widths: Mapping[str, Amount]
    load: Amount = 1
    fp8: bool = False
    #: What was worked out for parts, by their names: several stages have the same part.
    sent: dict[str, tuple[tuple[BlockExchange, Exchange], ...]] = field(default_factory=dict, compare=False, repr=False)
    flops: dict[str, Work] = field(default_factory=dict, compare=False, repr=False)
    exchanges: dict[str, tuple[tuple[Exchange, Amount], ...]] = field(default_factory=dict, compare=False, repr=False)

    def told(self, stored: Stored) -> bool:
        """Whether ``widths`` says how wide the elements of a value are."""
        return f"{stored.block}.{stored.name}" in self.widths or stored.name in self.widths


def _any_other(degree: Amount) -> Amount:
    """1 where there is another device, 0 where a device is alone: it has nobody to send to."""
    if isinstance(degree, int):
        return min(1, degree - 1)
    import sympy

    return sympy.Min(1, degree - 1)


def _part(whole: Amount, degree: Amount) -> Amount:
    return whole // degree if isinstance(whole, int) and isinstance(degree, int) else whole / degree


def parts(model: Model, strategy: Strategy, recompute: Recompute | None = None) -> tuple[Part, ...]:
    """The model's segments on the strategy's mesh; ``recompute``: what is computed again, None for what the strategy says.

    Raises InputError for a block that cannot be lowered onto it, for experts that the model does not have, and for a recomputation that is
    none.
    """
    _require_experts(model, strategy)
    plan, facts, said = plan_of(strategy), Facts(strategy), chosen(strategy, recompute)
    ring = tuple(a.name for a in strategy.axes if a.splits.name == "sequence" and strategy.schedule.attention == "ring")
    having = [{w.name for b in s.blocks for w in b.weights} for s in model.segments]
    shared = tuple(name for name in model.shared if sum(name in names for names in having) > 1)
    found = tuple(replace(_part_of(segment, plan, said), ring=ring, shared=shared) for segment in model.segments)
    if not strategy.schedule.recompute:
        return found
    over = _checkpoints_over(strategy, facts.hidden)
    return tuple(replace(p, checkpoints=Checkpoints(host=facts.checkpoints_on_host, over=over)) if p.repeats else p for p in found)


def _require_experts(model: Model, strategy: Strategy) -> None:
    axis = Facts(strategy).experts
    if axis is None or any(group == EXPERT for s in model.segments for b in s.blocks for group in b.groups.values()):
        return
    message = f"axis `{axis}` of `{strategy.name}` spreads experts over devices, and {model.name} has none"
    help = "leave `ep` out, or take a model with experts: mixtral-8x7b, deepseek-v3"
    note = "the same rule in frameworks: megatron-31 (`placeproof explain megatron-31`)"
    raise InputError([Diagnostic(code="PP104", message=message, help=help, notes=(note,))])


def _checkpoints_over(strategy: Strategy, hidden: str | None) -> tuple[str, ...]:
    """The axes over which checkpoints are split that the layers' programs have whole."""
    if hidden is None:
        return ()
    mode = strategy.mode(ACTIVATIONS, hidden, OUTER)
    return (hidden,) if mode.gathers or mode.fetches else ()


def _part_of(segment: Segment, plan: Plan, said: tuple[str, ...]) -> Part:
    plain = layer([lower_block(b.program, plan) for b in segment.blocks], segment.name)
    again, drawn = recomputed(plain, segment, said)
    return Part(name=segment.name, times=segment.times, blocks=segment.blocks, plain=plain, layer=again, drawn=drawn)
