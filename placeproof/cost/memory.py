"""Memory: what one device (and its share of the host) holds, and the most that is alive at any point of the step.

The peak is the maximum over program points of what is alive there, not a sum of worst cases. Units are taken as equal in
size where two of them are alive at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placeproof.core.modes import Mode
from placeproof.core.program import Assign, For, Program, Stmt, render_head, statements
from placeproof.core.states import MODEL_STATES
from placeproof.cost.amounts import Amounts
from placeproof.cost.closed import largest
from placeproof.cost.step import Step
from placeproof.semantics.liveness import Liveness, Point, liveness
from placeproof.semantics.values import Access, Kind, Trace, Value, placed_value

if TYPE_CHECKING:
    import sympy

ACTIVATIONS = "activations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One program point: what is alive there beyond the model states, by buffer."""

    stmt: Stmt
    phase: str
    alive: tuple[tuple[str, sympy.Expr], ...]

    @property
    def line(self) -> int | None:
        """The line of the program."""
        return self.stmt.place.line if self.stmt.place else None

    def text(self) -> str:
        """The statement."""
        return render_head(self.stmt)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Buffer:
    """A buffer that does not live all step: its whole value, how it is indexed, and whether each micro-batch has one."""

    name: str
    whole: Value
    indexed: str | None
    within: For | None
    copies: sympy.Expr


def memory(found: Trace, amounts: Amounts) -> Memory:
    """Interpret a traced program as memory."""
    held, host, steps = _held(found, amounts)
    buffers = _buffers(found, amounts)
    live = liveness(found.program, frozenset(buffers))
    device = {n: b for n, b in buffers.items() if not b.whole.host}
    activations, step = _activations(device, amounts)
    moments = _moments(live, device, found, amounts)
    base = activations
    extras = [_total(m) - base for m in moments]
    transient = largest([*extras, amounts.one * 0])
    on_host = {n: b for n, b in buffers.items() if b.whole.host}
    host_moments = _moments(live, on_host, found, amounts)
    host_kept = on_host[ACTIVATIONS].copies * _extent(on_host[ACTIVATIONS], amounts) if ACTIVATIONS in on_host else amounts.one * 0
    host_transient = largest([_total(m) - host_kept for m in host_moments] + [amounts.one * 0])
    return Memory(
        held=held,
        activations=activations,
        transient=transient,
        moments=_decisive(moments, transient, base),
        host=host + host_kept,
        host_transient=host_transient,
        steps=(*steps, *step),
    )


def _total(moment: Moment) -> sympy.Expr:
    import sympy

    return sympy.Add(*(amount for _, amount in moment.alive))


def _persistent(found: Trace) -> dict[str, str]:
    """States that are held all step -> the buffer that plays them (a state placed M is an ordinary buffer)."""
    playing = {}
    for state in MODEL_STATES:
        name = found.gradient_buffer if state.name == "gradients" else state.name
        if not any(m.transient for p in found.program.placed if p.state == state.name for _, m in p.modes):
            playing[state.name] = name
    return playing


def _held(found: Trace, amounts: Amounts) -> tuple[dict[str, sympy.Expr], sympy.Expr, tuple[Step, ...]]:
    zero = amounts.one * 0
    held = {state.name: zero for state in MODEL_STATES}
    host, steps = zero, []
    for state, name in _persistent(found).items():
        if state == name:
            value, why = placed_value(found.program, state), _placement_text(found.program, state)
        else:
            local = _stored(found, name)
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


def _placement_text(program: Program, state: str) -> str:
    mine = [p for p in program.placed if p.state == state]
    parts = []
    for axis in (a.name for a in program.axes):
        modes = {p.group: dict(p.modes)[axis] for p in mine if axis in dict(p.modes)}
        if len(set(modes.values())) == 1:
            mode = next(iter(modes.values()))
            parts.append(f"{mode} on {axis}: {_share(mode)}")
        else:
            parts += [f"{mode} on {axis} for {group}: {_share(mode)}" for group, mode in modes.items()]
    return "; ".join(parts) or "one device"


def _share(mode: Mode) -> str:
    return f"{mode.host.value} on the host" if mode.fetches else mode.device.value


def _stored(found: Trace, name: str) -> Value | None:
    writes = [a for a in found.accesses if a.name == name and a.write]
    if not writes:
        return None
    value = writes[0].value
    for access in writes[1:]:
        for piece in access.value.pieces:
            if piece.group and all(p.group != piece.group for p in value.pieces):
                value = replace(value, pieces=(*value.pieces, piece))
    indexed = any(a.indexed for a in writes)
    return replace(value, part=None if indexed else value.part, index=None)


def _buffers(found: Trace, amounts: Amounts) -> dict[str, _Buffer]:
    """Every buffer that lives for a part of the step and takes room."""
    lasting = set(_persistent(found).values())
    buffers: dict[str, _Buffer] = {}
    for name in dict.fromkeys(a.name for a in found.accesses):
        value = _stored(found, name)
        if name in lasting or value is None or value.kind is Kind.SCALAR:
            continue
        if value.kind is Kind.STREAM and name != ACTIVATIONS:
            continue  # A counts the stream between blocks
        accesses = [a for a in found.accesses if a.name == name]
        indexed = next((a.indexed for a in accesses if a.write and a.indexed), None)
        buffers[name] = _Buffer(
            name=name, whole=value, indexed=indexed, within=_private(accesses), copies=_copies(value, accesses, found, amounts)
        )
    return buffers


def _private(accesses: list[Access]) -> For | None:
    """The innermost loop over parts of the model that a buffer never leaves."""
    common = accesses[0].loops
    for access in accesses[1:]:
        shared = 0
        while shared < min(len(common), len(access.loops)) and common[shared] is access.loops[shared]:
            shared += 1
        common = common[:shared]
    inside = [loop for loop in common if loop.domain != "microbatches"]
    return inside[-1] if inside and accesses[0].write else None


def _copies(value: Value, accesses: list[Access], found: Trace, amounts: Amounts) -> sympy.Expr:
    """How many micro-batches have such a buffer at once: what is kept from forward to backward, while in flight."""
    turn = next((e for e in found.events if e.phase == "backward"), None)
    per_batch = value.kind in (Kind.SAVED, Kind.STREAM)
    spans = turn is not None and accesses[0].at < _at(found, turn.stmt) < accesses[-1].at + 1
    loop = next((lp for lp in accesses[0].loops if lp.in_flight is not None), None)
    if not (per_batch and spans and loop is not None and loop.in_flight is not None):
        return amounts.one
    return amounts.scalar(loop.in_flight)


def _at(found: Trace, stmt: Stmt) -> int:
    for position, other in enumerate(statements(found.program.body), start=1):
        if other is stmt:
            return position
    return 0


def _extent(buffer: _Buffer, amounts: Amounts, *, one: bool = False) -> sympy.Expr:
    """Bytes of a buffer: all parts of it, or one."""
    value = buffer.whole
    if buffer.indexed is not None:
        if one:
            value = replace(value, part=buffer.indexed)
        elif buffer.within is not None:
            value = replace(value, part=buffer.within.domain)
    amount = amounts.bytes(value)
    if value.kind is Kind.STREAM and value.part is None and buffer.indexed is not None:
        amount = amount * amounts.count(buffer.indexed)
    return amount


def _activations(buffers: dict[str, _Buffer], amounts: Amounts) -> tuple[sympy.Expr, tuple[Step, ...]]:
    buffer = buffers.get(ACTIVATIONS) or next((b for b in buffers.values() if b.whole.kind is Kind.SAVED and b.within is None), None)
    if buffer is None:
        return amounts.one * 0, ()
    amount = _extent(buffer, amounts) * buffer.copies
    times = "" if buffer.copies == 1 else f", for {buffer.copies} micro-batches in flight"
    kept = "each layer's input" if buffer.whole.kind is Kind.STREAM else "what forward keeps"
    return amount, (Step(rule="activations kept for backward", expression=amount, why=f"{kept}{times}"),)


def _moments(live: Liveness, buffers: dict[str, _Buffer], found: Trace, amounts: Amounts) -> list[Moment]:
    """The points with a maximal set of living buffers: a point whose buffers all live at another one decides nothing."""
    phases = {id(e.stmt): e.phase for e in found.events}
    moments: list[Moment] = []
    seen: set[frozenset[tuple[str, bool]]] = set()
    phase = "forward"
    for point in live.points:
        phase = phases.get(id(point.stmt), phase)
        for small in _variants(point, live, buffers):
            key = frozenset((name, name in small) for name in point.alive if name in buffers)
            if key in seen:
                continue
            seen.add(key)
            alive = tuple(
                (name, _extent(buffers[name], amounts, one=name in small) * (1 if name in small else buffers[name].copies))
                for name in sorted(point.alive)
                if name in buffers
            )
            moments.append(Moment(stmt=point.stmt, phase=phase, alive=alive))
    return _maximal(moments)


def _variants(point: Point, live: Liveness, buffers: dict[str, _Buffer]) -> list[frozenset[str]]:
    """Which buffers have one part alone: at the first and the last iteration of a loop that fills some and empties others."""
    loops = [loop for loop in point.loops if loop.domain != "microbatches"]
    if not loops:
        return [frozenset()]
    loop = loops[0]
    crossing = {n for n in point.alive if n in buffers and buffers[n].indexed is not None and buffers[n].within is None}
    fills = {n for n in crossing if n not in live.entering[id(loop)] and _writes(loop, n)}
    empties = {n for n in crossing if n not in live.leaving[id(loop)] and n not in fills}
    if fills and empties:
        return [frozenset(fills), frozenset(empties)]
    return [frozenset()]


def _writes(loop: For, name: str) -> bool:
    return any(isinstance(s, Assign) and any(t.name == name for t in s.targets) for s in statements(loop.body))


def _maximal(moments: list[Moment]) -> list[Moment]:
    kept: list[Moment] = []
    for moment in moments:
        own = set(moment.alive)
        if any(own <= set(other.alive) for other in kept):
            continue
        kept = [other for other in kept if not set(other.alive) < own]
        kept.append(moment)
    return kept


def _decisive(moments: list[Moment], transient: sympy.Expr, base: sympy.Expr) -> tuple[Moment, ...]:
    """The points at which the peak lies for some admissible values."""
    import sympy

    candidates = set(transient.args) if isinstance(transient, sympy.Max) else {transient}
    return tuple(m for m in moments if _total(m) - base in candidates) or tuple(moments[:1])
