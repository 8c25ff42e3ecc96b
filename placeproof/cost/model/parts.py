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

from placeproof.core.exchange import Exchange
from placeproof.core.program import POSITIONS, Assign
from placeproof.core.strategy import Strategy
from placeproof.cost.flops import Work
from placeproof.cost.layer import Layer, Row, Stored, layer
from placeproof.cost.tensor_shapes import lines
from placeproof.cost.tensors import Amount, exchanges
from placeproof.models import Block, Model, Segment
from placeproof.models.expressions import Expression
from placeproof.semantics.blocks import Plan, combined, context_parallel, expert_parallel, lower_block, tensor_parallel
from placeproof.semantics.lower.facts import Facts

#: What is computed again in backward: nothing; what attention makes between keys and values and its output; everything.
Recompute = Literal["none", "selective", "full"]
RECOMPUTE: dict[str, str] = {
    "none": "everything is kept that backward reads",
    "selective": "what has an element for each query and key is computed again (Korthikanti et al. 2022, section 5)",
    "full": "each layer keeps its input alone, and all of it is computed again",
}


def plan_of(strategy: Strategy) -> Plan:
    """What the strategy's axes split of a block."""
    plans = []
    facts = Facts(strategy)
    for axis in strategy.axes:
        if axis.splits.name == "hidden":
            plans.append(tensor_parallel(axis.name, axis.degree, sequence=facts.sequence_parallel))
        elif axis.splits.name == "sequence":
            by: Literal["gather", "ulysses"] = "ulysses" if strategy.schedule.attention == "ulysses" else "gather"
            plans.append(context_parallel(axis.name, axis.degree, by=by))
        elif axis.name == facts.experts:
            plans.append(expert_parallel(axis.name, axis.degree))
    return combined(*plans) if plans else Plan(())


@dataclass(frozen=True, kw_only=True)
class Part:
    """One repetition of a segment on one device. ``plain``: without recomputation. ``ring``: the axes round which keys and values go.
    ``shared``: names of weights that several parts have in common.
    """

    name: str
    times: Expression
    blocks: tuple[Block, ...]
    plain: Layer
    layer: Layer
    drawn: tuple[str, ...] = ()
    ring: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @cached_property
    def weights(self) -> tuple[tuple[str, Stored], ...]:
        """Its weights, each with the parameter group that it is of."""
        return tuple((self.blocks[w.number - 1].groups[w.name], w) for w in self.layer.weights())

    @cached_property
    def kept(self) -> tuple[Stored, ...]:
        """What lives from forward to backward."""
        return self.layer.kept(self.drawn)

    @cached_property
    def working(self) -> tuple[Stored, ...]:
        """What backward has of one repetition beyond what was kept, once it is computed again; nothing where nothing is."""
        if self.layer is self.plain:
            return ()
        kept = {(s.number, s.name) for s in self.kept}
        return tuple(s for s in self.plain.kept() if (s.number, s.name) not in kept)

    def bytes(self, stored: tuple[Stored, ...], at: At) -> tuple[Row, ...]:
        """Each tensor with its elements and bytes."""
        return self.layer.rows(stored, at.sizes, at.degrees, at.width, at.widths, at.load)

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
        """The collectives of activations.

        Where keys and values go round a ring, an all-gather of n parts is n - 1 steps of a part each, and a reduce-scatter n: gradients
        that travel have one more step to be home (the program ring_attention of ``placeproof.blocks``).
        """
        found = zip(exchanges(self.layer.program), self.layer.exchanges(at.sizes, at.degrees, at.width, at.load), strict=True)
        for shape, one in found:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """Where amounts are worked out: sizes of dimensions, degrees of axes, bytes of an element, and of the elements of named values.

    ``load``: tokens that a device's experts get, over the mean of all devices.
    """

    sizes: Mapping[str, Amount]
    degrees: Mapping[str, Amount]
    width: Amount
    widths: Mapping[str, Amount]
    load: Amount = 1
    #: What was worked out for parts, by their names: several stages have the same part.
    flops: dict[str, Work] = field(default_factory=dict, compare=False, repr=False)
    exchanges: dict[str, tuple[tuple[Exchange, Amount], ...]] = field(default_factory=dict, compare=False, repr=False)


def _any_other(degree: Amount) -> Amount:
    """1 where there is another device, 0 where a device is alone: it has nobody to send to."""
    if isinstance(degree, int):
        return min(1, degree - 1)
    import sympy

    return sympy.Min(1, degree - 1)


def _part(whole: Amount, degree: Amount) -> Amount:
    return whole // degree if isinstance(whole, int) and isinstance(degree, int) else whole / degree


def parts(model: Model, strategy: Strategy, recompute: Recompute = "none") -> tuple[Part, ...]:
    """The model's segments on the strategy's mesh. Raises InputError for a block that cannot be lowered onto it."""
    plan = plan_of(strategy)
    ring = tuple(a.name for a in strategy.axes if a.splits.name == "sequence" and strategy.schedule.attention == "ring")
    having = [{w.name for b in s.blocks for w in b.weights} for s in model.segments]
    shared = tuple(name for name in model.shared if sum(name in names for names in having) > 1)
    return tuple(replace(_part_of(segment, plan, ring, recompute), shared=shared) for segment in model.segments)


def _part_of(segment: Segment, plan: Plan, ring: tuple[str, ...], recompute: Recompute) -> Part:
    plain = layer([lower_block(b.program, plan) for b in segment.blocks], segment.name)
    repeated = str(segment.times) != "1"
    chosen, drawn = plain, tuple[str, ...]()
    if recompute == "selective":
        between = [s for s in plain.kept() if {"keys", "tokens"} <= set(s.dims)]
        given = {f"{b.name}.{t.name}" for b in segment.blocks for t in b.program.tensors}
        names = [f"{s.block}.{s.name}" for s in between]
        drawn = tuple(dict.fromkeys(n for n in names if n in given))
        again = tuple(dict.fromkeys(n for n in names if n not in given))
        chosen = plain.recomputed(*again, rerun=_made_of(plain, again)) if again else plain
    elif recompute == "full" and repeated:
        chosen = plain.full()
        drawn = tuple(f"{s.block}.{s.name}" for s in chosen.kept() if s.block != "input" and s.picks is None)
    return Part(name=segment.name, times=segment.times, blocks=segment.blocks, plain=plain, layer=chosen, drawn=drawn, ring=ring)


def _made_of(chain: Layer, values: tuple[str, ...]) -> tuple[str, ...]:
    """What forward makes directly of some values: a checkpoint runs to its end, the output of attention included."""
    inside = set(chain.named(values))
    found = []
    for line in lines(chain.program):
        if isinstance(line.stmt, Assign) and not line.backward and inside & {held.name for held in line.reads}:
            name = line.stmt.targets[0].name
            found += [name] if name not in inside else []
    origins = [chain.origin(name) for name in found]
    return tuple(dict.fromkeys(f"{o.block}.{o.name}" for o in origins if f"{o.block}.{o.name}" not in values))
