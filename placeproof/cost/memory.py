"""Memory: what one device (and its share of the host) holds, and the most that is alive at any point of the step.

The peak is the maximum over program points of what is alive there, not a sum of worst cases. Units are taken as equal in
size where two of them are alive at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from placeproof.core.modes import Mode, Share
from placeproof.core.program import Program
from placeproof.core.states import MODEL_STATES
from placeproof.cost.amounts import Amounts
from placeproof.cost.closed import largest
from placeproof.cost.moments import ACTIVATIONS, Buffer, Moment, buffers_of, moments_of, stored
from placeproof.cost.step import Step
from placeproof.cost.uneven import fraction
from placeproof.semantics.liveness import liveness
from placeproof.semantics.values import Kind, Trace, placed_value

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device. ``held`` by state; ``activations`` between forward and backward; ``transient`` beyond both at
    the peak; ``moments`` are the points at which the peak can lie. ``host`` is held in host memory, ``host_transient`` passes."""

    held: dict[str, sympy.Expr]
    activations: sympy.Expr
    transient: sympy.Expr
    moments: tuple[Moment, ...]
    host: sympy.Expr
    host_transient: sympy.Expr
    steps: tuple[Step, ...]

    def model_states(self) -> sympy.Expr:
        """What parameters, optimizer state and gradients hold all step."""
        import sympy

        return sympy.Add(*self.held.values())

    def peak(self) -> sympy.Expr:
        """The most that is alive at any point."""
        return self.model_states() + self.activations + self.transient


def memory(found: Trace, amounts: Amounts) -> Memory:
    """Interpret a traced program as memory."""
    held, host, steps = _held(found, amounts)
    buffers = buffers_of(found, amounts, set(_persistent(found).values()))
    live = liveness(found.program, frozenset(b.name for b in buffers.values()))
    device = {label: b for label, b in buffers.items() if not b.whole.host}
    on_host = {label: b for label, b in buffers.items() if b.whole.host}
    activations, step = _activations(device, amounts)
    moments = moments_of(live, device, found, amounts)
    transient = largest([*(m.total() - activations for m in moments), amounts.one * 0])
    host_kept, _ = _activations({label: b for label, b in on_host.items() if b.name == ACTIVATIONS}, amounts)
    host_moments = moments_of(live, on_host, found, amounts)
    host_transient = largest([*(m.total() - host_kept for m in host_moments), amounts.one * 0])
    return Memory(
        held=held,
        activations=activations,
        transient=transient,
        moments=_decisive(moments, transient, activations),
        host=host + host_kept,
        host_transient=host_transient,
        steps=(*steps, *step),
    )


def _persistent(found: Trace) -> dict[str, str]:
    """States that are held all step -> the buffer that plays them (a state placed M is an ordinary buffer)."""
    playing = {}
    for state in MODEL_STATES:
        name = found.program.gradients if state.name == "gradients" else state.name
        if not any(m.transient for p in found.program.placed if p.state == state.name for _, m in p.modes):
            playing[state.name] = name
    return playing


def _held(found: Trace, amounts: Amounts) -> tuple[dict[str, sympy.Expr], sympy.Expr, tuple[Step, ...]]:
    zero = amounts.one * 0
    held = {state.name: zero for state in MODEL_STATES}
    host, steps = zero, []
    for state, name in _persistent(found).items():
        if state == name:
            value, why = placed_value(found.program, state), _placement_text(found.program, state, amounts.uneven)
        else:
            local = stored(found, name)
            if local is None:
                continue
            value, why = local, f"`{name}` is what the update reads as gradients"
        amount = amounts.bytes(value)
        where = "host memory" if value.host else "each device"
        steps.append(Step(rule=f"{state} held all step", expression=amount, why=f"{why}; in {where}" if value.host else why))
        if value.host:
            host = host + amount
        else:
            held[state] = amount
    return held, host, tuple(steps)


def _placement_text(program: Program, state: str, uneven: tuple[str, ...]) -> str:
    mine = [p for p in program.placed if p.state == state]
    parts = []
    for axis in (a.name for a in program.axes):
        modes = {p.group: dict(p.modes)[axis] for p in mine if axis in dict(p.modes)}
        if len(set(modes.values())) == 1:
            mode = next(iter(modes.values()))
            parts.append(f"{mode} on {axis}: {_share(mode, axis, uneven)}")
        else:
            parts += [f"{mode} on {axis} for {group}: {_share(mode, axis, uneven)}" for group, mode in modes.items()]
    return "; ".join(parts) or "one device"


def _share(mode: Mode, axis: str, uneven: tuple[str, ...]) -> str:
    share = mode.host if mode.fetches else mode.device
    text = f"s*{fraction(axis)}" if axis in uneven and share is Share.PART else share.value
    return f"{text} on the host" if mode.fetches else text


def _activations(buffers: dict[str, Buffer], amounts: Amounts) -> tuple[sympy.Expr, tuple[Step, ...]]:
    """What forward keeps for backward: the state of that name, or the first buffer that plays it."""
    saved = [b.name for b in buffers.values() if b.whole.kind is Kind.SAVED and b.within is None]
    name = ACTIVATIONS if any(b.name == ACTIVATIONS for b in buffers.values()) else next(iter(saved), None)
    kept = [b for b in buffers.values() if b.name == name]
    amount = amounts.one * 0
    for buffer in kept:
        amount = amount + buffer.extent(amounts) * buffer.copies
    if not kept:
        return amount, ()
    times = "" if kept[0].copies == 1 else f", for {kept[0].copies} micro-batches in flight"
    what = "each layer's input" if kept[0].whole.kind is Kind.STREAM else "what forward keeps"
    return amount, (Step(rule="activations kept for backward", expression=amount, why=f"{what}{times}"),)


def _decisive(moments: list[Moment], transient: sympy.Expr, base: sympy.Expr) -> tuple[Moment, ...]:
    """The points at which the peak lies for some admissible values."""
    import sympy

    candidates = set(transient.args) if isinstance(transient, sympy.Max) else {transient}
    return tuple(m for m in moments if m.total() - base in candidates) or tuple(moments[:1])
