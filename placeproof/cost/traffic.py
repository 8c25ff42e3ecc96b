"""Traffic: bytes that one device sends in a step, by summing the program's collectives.

Conventions: ring algorithms unless the program names another; where the devices of an axis do different things (stages of
a pipeline), the figure is the mean over the axis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.core.program import Expr, For, Index, Stmt, render_expression, render_head, walked
from placeproof.cost.amounts import Amounts
from placeproof.cost.step import Step
from placeproof.cost.uneven import STATES, rule, sent
from placeproof.semantics.values import Event, Kind, Trace, Value

if TYPE_CHECKING:
    import sympy

_STATE = {
    Kind.PARAMETERS: "parameters",
    Kind.OPTIMIZER: "optimizer",
    Kind.GRADIENTS: "gradients",
    Kind.SAVED: "activations",
    Kind.STREAM: "activations",
    Kind.SCALAR: "scalar",
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
    steps: tuple[Step, ...] = ()

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


def traffic(found: Trace, amounts: Amounts) -> Traffic:
    """Interpret a traced program as traffic."""
    messages: list[Message] = []
    host: list[Message] = []
    for event in found.events:
        if event.call.op in COLLECTIVES and event.call.op != "recv":
            messages.append(_message(event, amounts))
        elif event.call.op in _HOST:
            host.append(_copy(event, amounts))
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


def _partition(event: Event) -> tuple[For, ...]:
    return tuple(loop for loop in event.loops if loop.domain != "microbatches")


def _message(event: Event, amounts: Amounts) -> Message:
    program = amounts.program
    operand = event.operands[0]
    axes = program.factors(*event.call.axes)
    local = event.call.op == "all_to_all"
    n = amounts.devices(event.call.axes)
    row = COLLECTIVES[event.call.op]

    uneven = amounts.uneven if operand.kind in STATES else ()

    def of(value: Value) -> sympy.Expr:
        size = amounts.bytes(value) if local else amounts.payload(value, axes)
        if event.call.op == "tied_reduce":
            import sympy

            return size * 2 / n * sympy.Min(1, n - 1)
        return sent(row, event.call.axes, n, size, uneven)

    amount, count = _repeated(event, operand, of, amounts)
    via = event.call.option("via")
    text = rule(row, event.call.axes, uneven)
    text = text if via in (None, "ring") else f"{via} exchange: {text.partition(':')[2].strip()}"
    steps = (
        Step(rule=text, expression=amount, why=f"n = {n}; {_why(event, operand)}"),
        Step(rule="repetition", expression=count, why=_times(event)),
    )
    return Message(
        collective=event.call.op,
        state=_STATE[operand.kind],
        axes=event.call.axes,
        phase=event.phase,
        bytes=amount,
        count=count,
        stmt=event.stmt,
        steps=steps,
    )


def _copy(event: Event, amounts: Amounts) -> Message:
    operand = event.operands[0]
    amount, count = _repeated(event, operand, amounts.bytes, amounts)
    steps = (
        Step(rule="host copy: s", expression=amount, why=_why(event, operand)),
        Step(rule="repetition", expression=count, why=_times(event)),
    )
    return Message(
        collective=event.call.op,
        state=_STATE[operand.kind],
        axes=(),
        phase=event.phase,
        bytes=amount,
        count=count,
        stmt=event.stmt,
        steps=steps,
    )


def _repeated(event: Event, operand: Value, sent: object, amounts: Amounts) -> tuple[sympy.Expr, sympy.Expr]:
    """Bytes a time and times a step. What is sent part by part is counted as one pass over the whole."""
    assert callable(sent)
    count = amounts.count("microbatches") if any(loop.domain == "microbatches" for loop in event.loops) else amounts.one
    hops = _hops(event)
    count = count * amounts.share((b, t) for b, t in event.branches if hops is None or b.axis not in event.call.axes)
    if hops is not None:
        count = count * amounts.scalar(hops) / amounts.devices(event.call.axes)
    loops = _partition(event)
    if operand.index is not None and operand.index.var is None:
        return sent(operand), count
    if not loops:
        return sent(operand), count
    if operand.part == loops[-1].domain and operand.kind is not Kind.STREAM:
        whole = sent(replace(operand, part=None))
        if (over := walked(loops)) != "all":
            first = sent(replace(operand, part="units", index=Index(var=None)))
            whole = first if over == "first" else whole - first
        shifted = operand.index is not None and operand.index.offset != 0
        return (whole - sent(operand) if shifted else whole), count
    return sent(operand), count * amounts.passes(loops)


def _hops(event: Event) -> Expr | None:
    """How often, over all devices, something is handed on for each micro-batch; None where the branches around it say so."""
    return next((loop.hops for loop in event.loops if loop.hops is not None), None) if event.call.op == "send" else None


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
    if (hops := _hops(event)) is not None:
        parts.append(f"{render_expression(hops)} times over all devices: a schedule hands it on so often")
        return " and ".join(parts)
    parts += [f"by the devices with {'' if t else 'not '}rank({b.axis}) {b.op} {render_expression(b.bound)}" for b, t in event.branches]
    return " and ".join(parts) or "once a step"
