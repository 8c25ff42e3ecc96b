"""Memory: what one device (and its share of the host) holds, and the most that is alive at any point of the step.

The peak is the maximum over program points of what is alive there, not a sum of worst cases. Units are taken as equal in
size where two of them are alive at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placeproof.core.modes import Mode, Share
from placeproof.core.states import MODEL_STATES
from placeproof.cost.closed import largest
from placeproof.cost.reason import Reason
from placeproof.cost.step.amounts import Amounts
from placeproof.cost.step.moments import ACTIVATIONS, Moment, Moments, in_flight, moments_of, passing
from placeproof.cost.step.unrolled import Life, Unrolled
from placeproof.cost.uneven import fraction
from placeproof.programs import Program
from placeproof.semantics.values import Kind, Trace, placed_value

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one device. ``held`` by state; ``activations`` between forward and backward; ``transient`` beyond both at
    the peak; ``moments`` are the points at which the peak can lie, ``points`` all, each with its phase and what is alive beyond
    activations. ``host`` is held in host memory, ``host_transient`` passes."""

    held: dict[str, sympy.Expr]
    activations: sympy.Expr
    transient: sympy.Expr
    moments: tuple[Moment, ...]
    points: tuple[tuple[str, sympy.Expr], ...]
    host: sympy.Expr
    host_transient: sympy.Expr
    steps: tuple[Reason, ...]

    def model_states(self) -> sympy.Expr:
        """What parameters, optimizer state and gradients hold all step."""
        import sympy

        return sympy.Add(*self.held.values())

    def peak(self) -> sympy.Expr:
        """The most that is alive at any point."""
        return self.model_states() + self.activations + self.transient


def memory(trace: Trace, amounts: Amounts, runs: tuple[Unrolled, ...], without: frozenset[Kind] = frozenset()) -> Memory:
    """Interpret the runs of a program as memory. ``without``: kinds of values that are counted elsewhere."""
    playing = _persistent(trace)
    states, host, steps = _held(trace, amounts, playing, runs)

    def passes(life: Life) -> bool:
        kept = life.by_parts or life.batch is not None or life.name == ACTIVATIONS  # A counts the stream between blocks
        kind = life.value.kind
        counted = kept if kind is Kind.STREAM else kind not in (Kind.SCALAR, Kind.NORMS)
        return counted and kind not in without and life.name not in playing.values()

    moments = moments_of(runs, trace, amounts, lambda life: passes(life) and not life.value.host)
    activations, step = _activations(moments, trace, amounts)
    points = tuple((m.phase, m.total() - activations) for m in moments.points)
    transient = largest(beyond for _, beyond in points)
    on_host = moments_of(runs, trace, amounts, lambda life: passes(life) and life.value.host)
    host_kept = on_host.most.get(ACTIVATIONS, amounts.one * 0)
    host_transient = largest([*(m.total() - host_kept for m in on_host.points), amounts.one * 0])
    return Memory(
        held=states,
        activations=activations,
        transient=transient,
        moments=_decisive(moments.points, transient, activations),
        points=points,
        host=host + host_kept,
        host_transient=host_transient,
        steps=(*steps, *step),
    )


def _persistent(trace: Trace) -> dict[str, str]:
    """States that are held all step -> the buffer that plays them (a state placed M is an ordinary buffer)."""
    playing = {}
    for state in MODEL_STATES:
        name = trace.program.gradients if state.name == "gradients" else state.name
        if not any(m.transient for p in trace.program.placed if p.state == state.name for _, m in p.modes):
            playing[state.name] = name
    return playing


def _held(
    trace: Trace, amounts: Amounts, playing: Mapping[str, str], runs: tuple[Unrolled, ...]
) -> tuple[dict[str, sympy.Expr], sympy.Expr, tuple[Reason, ...]]:
    zero = amounts.one * 0
    states = {state.name: zero for state in MODEL_STATES}
    host, steps = zero, []
    for state, name in playing.items():
        written = state == "gradients"
        for on_host in (False, True):
            placed = placed_value(trace.program, state)
            amount = amounts.bytes(placed) if placed.host is on_host and state == name else zero
            if written:
                amount = largest([*([amount] if amount != 0 else []), *_most(name, on_host, trace, amounts, runs)])
            if amount == 0:
                continue
            why = (
                _placement_text(trace.program, state, amounts.uneven)
                if state == name
                else f"`{name}` is what the update reads as gradients"
            )
            steps.append(Reason(rule=f"{state} held all step", expression=amount, why=f"{why}; in host memory" if on_host else why))
            if on_host:
                host = host + amount
            else:
                states[state] = amount
    return states, host, tuple(steps)


def _most(name: str, on_host: bool, trace: Trace, amounts: Amounts, runs: tuple[Unrolled, ...]) -> list[sympy.Expr]:
    """What a buffer that is held all step holds at its points: whatever was written last."""
    moments = moments_of(runs, trace, amounts, lambda life: life.name == name and life.value.host is on_host, lasting=True)
    return [m.total() for m in moments.points]


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


def _activations(moments: Moments, trace: Trace, amounts: Amounts) -> tuple[sympy.Expr, tuple[Reason, ...]]:
    """What forward keeps for backward: the state of that name, or the first buffer that plays it."""
    writes: dict[str, Kind] = {}
    for access in trace.accesses:
        if access.write:
            writes.setdefault(access.name, access.value.kind)
    saved = [n for n in writes if writes[n] is Kind.SAVED and not passing([a for a in trace.accesses if a.name == n])]
    name = next((n for n in (ACTIVATIONS, *saved) if n in moments.most), None)
    if name is None:
        return amounts.one * 0, ()
    amount = moments.most[name]
    copies = in_flight(name, trace, amounts)
    times = "" if copies == 1 else f", for {copies} micro-batches in flight"
    what = "each layer's input" if writes[name] is Kind.STREAM else "what forward keeps"
    return amount, (Reason(rule="activations kept for backward", expression=amount, why=f"{what}{times}"),)


def _decisive(moments: tuple[Moment, ...], transient: sympy.Expr, base: sympy.Expr) -> tuple[Moment, ...]:
    """The points at which the peak lies for some admissible values."""
    import sympy

    candidates = set(transient.args) if isinstance(transient, sympy.Max) else {transient}
    return tuple(m for m in moments if m.total() - base in candidates) or moments[:1]
