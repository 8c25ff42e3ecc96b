"""Traffic: bytes that one device sends in a step, by summing the program's collectives.

Conventions: ring algorithms unless the program names another; where the devices of an axis do different things (stages of
a pipeline), the figure is the mean over the axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.cost.reason import Reason
from placeproof.cost.step.amounts import Amounts
from placeproof.cost.step.shares import hops, shares
from placeproof.cost.step.unrolled import Sent, Unrolled
from placeproof.cost.uneven import STATES, rule, sent
from placeproof.programs import For, Index, Stmt, render_expression, render_head
from placeproof.semantics.values import Event, Kind, Trace, Value

if TYPE_CHECKING:
    import sympy

#: What a message is about that is of one number.
SCALAR = "scalar"
_STATE = {
    Kind.PARAMETERS: "parameters",
    Kind.OPTIMIZER: "optimizer",
    Kind.GRADIENTS: "gradients",
    Kind.MOMENTUM: "momentum",
    Kind.SUMS: "sums",
    Kind.NORMS: "norms",
    Kind.SAVED: "activations",
    Kind.STREAM: "activations",
    Kind.SCALAR: SCALAR,
}
_HOST = ("to_host", "to_device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one operation of the program sends: ``bytes`` a time, ``count`` times a step."""

    collective: str
    state: str
    axes: tuple[str, ...]
    phase: str
    bytes: sympy.Expr
    count: sympy.Expr
    stmt: Stmt
    steps: tuple[Reason, ...] = ()

    @property
    def total(self) -> sympy.Expr:
        """Bytes a step."""
        return self.bytes * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """All messages of a step, in program order, and the copies over the host link."""

    messages: tuple[Message, ...]
    host: tuple[Message, ...]

    def sent(self) -> sympy.Expr:
        """Bytes that one device sends in a step: the sum over the messages, not simplified."""
        return _sum(m.total for m in self.messages)

    def host_link(self) -> sympy.Expr:
        """Bytes that cross a device's host link in a step, both ways added."""
        return _sum(m.total for m in self.host)

    def by_axis(self) -> dict[str, sympy.Expr]:
        """Bytes sent, by the axes of the group (joined by ``*``)."""
        keys = dict.fromkeys("*".join(m.axes) for m in self.messages)
        return {key: _sum(m.total for m in self.messages if "*".join(m.axes) == key) for key in keys}


def _sum(terms: object) -> sympy.Expr:
    import sympy

    return sympy.Add(*terms)  # type: ignore[misc]


def traffic(trace: Trace, amounts: Amounts, runs: tuple[Unrolled, ...]) -> Traffic:
    """Interpret the runs of a program as traffic."""
    messages: list[Message] = []
    host: list[Message] = []
    for event in trace.events:
        if event.call.op in COLLECTIVES and event.call.op != "recv":
            messages += _messages(event, amounts, runs)
        elif event.call.op in _HOST:
            host += _messages(event, amounts, runs)
    keep = [m for m in messages if m.total != 0]
    return Traffic(messages=tuple(_merged(keep)), host=tuple(_merged([m for m in host if m.total != 0])))


def _merged(messages: list[Message]) -> list[Message]:
    """Messages that differ only in where they stand become one, sent as often as all of them together."""
    merged: dict[tuple[object, ...], Message] = {}
    for m in messages:
        key = (m.collective, m.state, m.axes, m.phase, m.bytes)
        if key in merged:
            merged[key] = replace(merged[key], count=merged[key].count + m.count)
        else:
            merged[key] = m
    return list(merged.values())


def _messages(event: Event, amounts: Amounts, runs: tuple[Unrolled, ...]) -> Iterator[Message]:
    """What an operation sends: for all devices that come to it together, unless they do not send the same."""
    for often, share in shares(event, amounts, runs):
        for value, amount, count in _repeated(event, often, amounts):
            yield _message(event, value, amount, count * share, amounts)


def _message(event: Event, value: Value, amount: sympy.Expr, count: sympy.Expr, amounts: Amounts) -> Message:
    why = f"n = {amounts.devices(event.call.axes)}; {_why(event, event.operands[0])}"
    text = "host copy: s"
    if event.call.op in _HOST:
        why = _why(event, event.operands[0])
    else:
        row, via = COLLECTIVES[event.call.op], event.call.option("via")
        text = rule(row, event.call.axes, amounts.uneven if value.kind in STATES else ())
        text = text if via in (None, "ring") else f"{via} exchange: {text.partition(':')[2].strip()}"
    return Message(
        collective=event.call.op,
        state=_STATE[value.kind],
        axes=event.call.axes,
        phase=event.phase,
        bytes=amount,
        count=count,
        stmt=event.stmt,
        steps=(Reason(rule=text, expression=amount, why=why), Reason(rule="repetition", expression=count, why=_times(event))),
    )


def _size(event: Event, value: Value, amounts: Amounts) -> sympy.Expr:
    """Bytes that a device sends of a value."""
    if event.call.op in _HOST:
        return amounts.bytes(value)
    n = amounts.devices(event.call.axes)
    local = event.call.op == "all_to_all"
    size = amounts.bytes(value) if local else amounts.payload(value, amounts.program.factors(*event.call.axes))
    if event.call.op == "tied_reduce" and not amounts.inside.issuperset(event.call.axes):  # the mean of all stages
        import sympy

        return size * 2 / n * sympy.Min(1, n - 1)
    return sent(COLLECTIVES[event.call.op], event.call.axes, n, size, amounts.uneven if value.kind in STATES else ())


def _repeated(event: Event, often: Sent, amounts: Amounts) -> Iterator[tuple[Value, sympy.Expr, sympy.Expr]]:
    """Bytes a time and times a step. What is sent part by part is counted as one pass over the whole."""
    passes: dict[sympy.Expr, tuple[Value, sympy.Expr]] = {}
    for (value, extent, first), number in often.items():

        def size(part: str | None, index: Index | None, value: Value = value) -> sympy.Expr:
            return _size(event, replace(value, part=part, index=index), amounts)

        outer, inner = number.by_batches()
        amount = amounts.spread(inner * extent, size, first=first) if extent.terms else None
        if amount is not None:
            count = amounts.times(outer)
            before = passes.get(count, (value, amounts.one * 0))[1]
            passes[count] = (value, before + amount)
        else:
            each = amounts.spread(extent, size, first=first)
            assert each is not None
            yield value, each if extent.terms else size(None, None), amounts.times(number)
    yield from ((value, amount, count) for count, (value, amount) in passes.items())


def _partition(event: Event) -> tuple[For, ...]:
    return tuple(loop for loop in event.loops if loop.domain != "microbatches")


def _why(event: Event, operand: Value) -> str:
    place = event.stmt.place
    line = f"line {place.line}: " if place else ""
    loops = _partition(event)
    summed = bool(loops) and operand.part == loops[-1].domain and (operand.index is None or operand.index.var is not None)
    whole = f"; summed over {operand.part}" if summed else ""
    return f"{line}`{render_head(event.stmt)}`{whole}"


def _times(event: Event) -> str:
    parts = ["once for each micro-batch" for loop in event.loops if loop.domain == "microbatches"]
    if _partition(event) and event.operands[0].part is None:
        parts.append(f"once for each of a device's {_partition(event)[-1].domain}")
    if (often := hops(event)) is not None:
        parts.append(f"{render_expression(often)} times over all devices: a schedule hands it on so often")
        return " and ".join(parts)
    parts += [f"by the devices with {'' if t else 'not '}rank({b.axis}) {b.op} {render_expression(b.bound)}" for b, t in event.branches]
    return " and ".join(parts) or "once a step"
