"""What a device of a stage sends: exchanges of activations, messages between stages, and what data parallelism makes of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.core.strategy import NORM, TIED
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.base import Base
from placeproof.cost.model.parts import At, Part
from placeproof.cost.model.stages import Stage
from placeproof.programs import Assign, calls, statements
from placeproof.semantics.linked import Linked

if TYPE_CHECKING:
    import sympy


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


class Share:
    """The parameters of one device that follow the same formulas: how many, and how many of them each unit has.

    A unit is a part of the model. Where the root unit is gathered apart, it has what is no layer, and the units are the layers. ``sums``:
    those of one copy whose gradients the step sums over the axis that splits the hidden dimension.
    """

    def __init__(self, base: Base, counted: Mapping[str, sympy.Expr], whole: Base, stage: Stage, at: At, linked: Linked) -> None:
        import sympy

        self.base = base
        self.total = sympy.Add(*(n for g, n in counted.items() if whole.speaks_of(g) is base))
        held = [(p, times, p.elements_of(lambda g: whole.speaks_of(g) is base, at)) for p, times in stage.held]
        units = [(p.repeats, sympy.Add(*found.values())) for p, _, found in held]
        self.root = _of_root(held) if base.root_apart else None
        self.units = [n for layer, n in units if layer or self.root is None] or [sympy.Integer(0)]
        norms = sympy.Add(*(times * n for _, times, found in held for weight, n in found.items() if linked.group(*weight) == NORM))
        self.norms = stage.copies * norms
        self.sums = self.total / stage.copies if whole.experts is base else norms

    @cached_property
    def largest(self) -> sympy.Expr:
        """Parameters in the largest unit. SymPy takes long to compare, so it is asked once, and only where a formula speaks of it."""
        import sympy

        return sympy.Max(*self.units)

    def of(self, expr: sympy.Expr, unit: sympy.Expr | None = None) -> sympy.Expr:
        """A formula for these parameters; ``unit``: those of the unit that it is about, the largest unless it is given."""
        named = self.largest if unit is None and symbol("U") in expr.free_symbols else unit
        return self.base.of(expr, self.total, self.total if named is None else named, self.root, self.norms)

    def of_sums(self, expr: sympy.Expr) -> sympy.Expr:
        """A formula for those of one copy that are summed, of all units together."""
        import sympy

        return self.base.of(expr, self.sums, self.sums, sympy.Integer(0), self.sums)


def _of_root(held: Sequence[tuple[Part, Amount, Mapping[tuple[str, str], Amount]]]) -> sympy.Expr:
    """Elements of what is no layer; what two segments of it share is one tensor."""
    import sympy

    counted: dict[str, Amount] = {}
    for part, _, found in held:
        for (block, weight), n in found.items() if not part.repeats else ():
            counted[weight if weight in part.shared else f"{part.name}.{block}.{weight}"] = n
    return sympy.Add(*counted.values())


def sent_of_activations(
    stage: Stage, at: At, batches: Amount, hops: tuple[Amount, Amount], linked: Linked, layer: Part | None
) -> list[Sent]:
    """Collectives inside layers, and messages to other stages: of so many micro-batches, each handed on and back so often.

    ``layer``: one of the model's, whose input is what goes between stages.
    """
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
                    times=sympy.sympify(times * each * batches),
                )
            )
    if linked.pipeline is not None and layer is not None:
        found += _between(layer, at, batches, hops, linked)
        found += _of_tied(stage, at, linked)
    return found


def synchronised(stage: Stage, shares: Sequence[Share], linked: Linked) -> Iterator[Sent]:
    """What is sent of parameters and of their gradients: sums over the axis that splits the hidden dimension together, whatever they are
    of, and then the rest as the step's statements say."""
    import sympy

    every = [(share, message) for share in shares if share.total != 0 for message in share.base.messages]
    inside = {a.name for a in linked.step.axes if a.splits.name == "hidden"}
    summed = [(s, m) for s, m in every if set(m.axes) & inside]
    layers = sympy.Add(*(times for _, times in stage.held))
    size = sympy.Add(*(share.of_sums(share.base.size(message)) for share, message in summed))
    if size != 0:
        message = summed[0][1]
        each = any(call.op.startswith("backward") for call in calls(message.stmt))  # as it is produced, in every pass
        yield Sent(
            kind=message.collective,
            axes=message.axes,
            about="gradients of norms" if len({id(s) for s, _ in summed}) == 1 else "gradients of norms and experts",
            phase="backward",
            size=size,
            bytes=sympy.Add(*(share.of_sums(m.bytes) * m.count / message.count for share, m in summed)),
            times=message.count * (1 if each else stage.copies),
            calls=layers,
            each=each,
        )
    for share, message in every:
        if set(message.axes) & inside:
            continue
        loops, copies = share.base.loops(message), bool(set(message.axes) & set(linked.apart))
        yield Sent(  # of two copies each device of a pair has both stages, and sends its own once
            kind="tied_reduce" if copies else message.collective,
            axes=(linked.pipeline or "",) if copies else message.axes,
            about="gradients of the two copies" if copies else message.state,
            phase=message.phase,
            size=share.of(share.base.size(message)),
            bytes=share.of(message.bytes),
            times=share.of(message.count),
            calls=stage.copies * layers if loops & {"units", "layers"} else 1,
            each="microbatches" in loops,
        )


def _ring_bytes(kind: str, group: sympy.Expr, size: sympy.Expr) -> sympy.Expr:
    """Bytes that one device sends for a collective about a tensor of that size, by a ring."""
    return size if kind == "shift" else COLLECTIVES[kind].sent(group, size)


def _between(part: Part, at: At, batches: Amount, hops: tuple[Amount, Amount], linked: Linked) -> Iterator[Sent]:
    """What the step's messages hand on to the neighbouring stages: the stream as it lies between layers, and its gradient."""
    import sympy

    stream = next(t for t in part.layer.program.tensors if part.layer.origin(t.name).block == "input")
    size = at.width * sympy.Mul(*(at.sizes[d] for d in stream.dims)) / sympy.Mul(*(at.degrees[axis] for axis, _ in stream.split))
    for call in (c for s in statements(linked.step.body) for c in calls(s) if c.op == "send"):
        often, phase = (hops[0], "forward") if call.steps > 0 else (hops[1], "backward")
        if often != 0:
            yield Sent(
                kind=call.op,
                axes=call.axes,
                about="activations between stages",
                phase=phase,
                size=size,
                bytes=size,
                times=sympy.sympify(batches * often),
            )


def _of_tied(stage: Stage, at: At, linked: Linked) -> Iterator[Sent]:
    """What the ends of a pipeline exchange of the gradients of weights that both have, as the step's statements say: nothing where one
    device has both."""
    import sympy

    ends = stage.held[:1] if stage.first else stage.held[-1:] if stage.last else ()
    rows = [r for part, _ in ends for r in part.bytes(tuple(w for _, w in part.weights), at) if r.stored.name in part.shared]
    if stage.first == stage.last or not rows:
        return
    size = symbol("b_g") * sympy.Add(*(r.elements for r in rows))
    tied = [s for s in statements(linked.step.body) if isinstance(s, Assign) and any(t.group == TIED for t in s.targets)]
    for call in (c for s in tied if any(c.op == "tied_reduce" for c in calls(s)) for c in calls(s) if c.op in COLLECTIVES):
        yield Sent(
            kind=call.op,
            axes=call.axes,
            about="gradients of the tied table",
            phase="backward",
            size=size,
            bytes=_ring_bytes(call.op, sympy.Mul(*(at.degrees[a] for a in call.axes)), size),
            times=sympy.Integer(1),
            each=False,
        )
