"""Program points and what is alive at them, exactly: which buffers, and how much of those that loops fill or empty.

A buffer that a loop writes part by part grows with each iteration, and one that a loop reads part by part shrinks. Where one
grows while another shrinks, what is alive is linear between the first and the last iteration, so that these two decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placeproof.core.program import Assign, For, Index, Stmt, render_head, statements, walked
from placeproof.cost.amounts import Amounts
from placeproof.semantics.liveness import Liveness, Point
from placeproof.semantics.values import Access, Kind, Trace, Value

if TYPE_CHECKING:
    import sympy

ACTIVATIONS = "activations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A buffer at one point: its bytes there, and whether that is all that it ever is."""

    name: str
    bytes: sympy.Expr
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One program point: what is alive there beyond the model states, by buffer."""

    stmt: Stmt
    phase: str
    alive: tuple[Alive, ...]

    @property
    def line(self) -> int | None:
        """The line of the program."""
        return self.stmt.place.line if self.stmt.place else None

    def text(self) -> str:
        """The statement."""
        return render_head(self.stmt)

    def total(self) -> sympy.Expr:
        """Bytes of all that is alive."""
        import sympy

        return sympy.Add(*(one.bytes for one in self.alive))

    def within(self, other: Moment) -> bool:
        """Whether all that is alive here is alive there, in no smaller an amount."""
        there = {one.name: one for one in other.alive}
        return all(one.name in there and (there[one.name].whole or there[one.name].bytes == one.bytes) for one in self.alive)


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A buffer that does not live all step: its whole value, how it is indexed, and whether each micro-batch has one.

    ``over``: of which units it holds something: "all", the "first", which is computed apart, or the "rest".
    """

    name: str
    label: str
    whole: Value
    indexed: str | None
    within: For | None
    copies: sympy.Expr
    accesses: tuple[Access, ...]
    over: str = "all"

    def first(self, amounts: Amounts) -> sympy.Expr:
        """Bytes of the first unit's parts of it, for one micro-batch."""
        return amounts.bytes(replace(self.whole, part="units", index=Index(var=None)))

    def extent(self, amounts: Amounts, part: str | None = None) -> sympy.Expr:
        """Bytes of all parts of it, for one micro-batch; or of one iteration's part."""
        value = self.whole
        if part is not None:
            value = replace(value, part=part)
        elif self.indexed is not None and self.within is not None:
            value = replace(value, part=self.within.domain)
        amount = amounts.bytes(value)
        if self.over != "all" and value.part is None:
            amount = self.first(amounts) if self.over == "first" else amount - self.first(amounts)
        if value.kind is Kind.STREAM and self.indexed is not None and value.part != self.indexed:
            amount = amount * amounts.count(self.indexed) / (amounts.count(value.part) if value.part is not None else 1)
        return amount


def stored(found: Trace, name: str) -> Value | None:
    """A buffer as a whole, with every group that is ever written; None when nothing writes it."""
    writes = [a for a in found.accesses if a.name == name and a.write]
    if not writes:
        return None
    value = writes[0].value
    for access in writes[1:]:
        for piece in access.value.pieces:
            if piece.group and all(p.group != piece.group for p in value.pieces):
                value = replace(value, pieces=(*value.pieces, piece))
    indexed = any(a.indexed for a in writes)
    named = value.index if not indexed and value.index is not None and value.index.var is None else None
    return replace(value, part=None if indexed else value.part, index=named)


def buffers_of(found: Trace, amounts: Amounts, lasting: set[str]) -> dict[str, Buffer]:
    """Every buffer that lives for a part of the step and takes room; each group of a buffer is one of its own."""
    buffers: dict[str, Buffer] = {}
    for name in dict.fromkeys(a.name for a in found.accesses):
        value = stored(found, name)
        if name in lasting or value is None or value.kind is Kind.SCALAR:
            continue
        if value.kind is Kind.STREAM and name != ACTIVATIONS:
            continue  # A counts the stream between blocks
        accesses = [a for a in found.accesses if a.name == name]
        for label, group in _groups(name, value, accesses):
            own = [a for a in accesses if group is None or a.group in (None, group)]
            buffers[label] = Buffer(
                name=name,
                label=label,
                whole=value if group is None else value.group(group),
                indexed=next((a.indexed for a in own if a.write and a.indexed), None),
                within=_private(own),
                copies=_copies(value, own, found, amounts),
                accesses=tuple(own),
                over=_over(own),
            )
    return buffers


def _over(accesses: list[Access]) -> str:
    """Of which units the parts that are written of a buffer are."""
    found = {walked(a.loops) for a in accesses if a.write and a.indexed}
    return found.pop() if len(found) == 1 else "all"


def _groups(name: str, value: Value, accesses: list[Access]) -> list[tuple[str, str | None]]:
    """The parts of a buffer with lives of their own: its groups, where they are written apart."""
    apart = any(a.group for a in accesses if a.write)
    return [(f"{name}.{p.group}", p.group) for p in value.pieces] if apart and len(value.pieces) > 1 else [(name, None)]


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


def moments_of(live: Liveness, buffers: dict[str, Buffer], found: Trace, amounts: Amounts) -> list[Moment]:
    """The points at which most can be alive: a point whose buffers all live, in no smaller amount, at another decides nothing."""
    places = {id(stmt): at for at, stmt in enumerate(statements(found.program.body), start=1)}
    phases = {id(e.stmt): e.phase for e in found.events}
    kept: list[Moment] = []
    phase = "forward"
    for point in live.points:
        phase = phases.get(id(point.stmt), phase)
        states = [_State(b, point, live, places[id(point.stmt)]) for b in buffers.values() if b.name in point.alive]
        for last in _variants(states):
            moment = Moment(stmt=point.stmt, phase=phase, alive=tuple(s.alive(last, amounts) for s in states))
            if any(moment.within(other) for other in kept):
                continue
            kept = [other for other in kept if not other.within(moment)] + [moment]
    return kept


def _variants(states: list[_State]) -> Iterator[frozenset[int]]:
    """The loops that are at their last iteration, the others being at their first: both, where buffers grow and shrink."""
    choices: dict[int, set[bool]] = {}
    for state in states:
        for loop in state.levels:
            choices.setdefault(id(loop), set()).add(state.fills)
    for chosen in itertools.product(*choices.values()):
        yield frozenset(loop for loop, last in zip(choices, chosen, strict=True) if last)


class _State:
    """A buffer at a point: the loops that fill or empty it there, and whether its part of this iteration counts."""

    def __init__(self, buffer: Buffer, point: Point, live: Liveness, at: int) -> None:
        self.buffer = buffer
        self.over = walked(point.loops) if buffer.over == "all" and buffer.within is None else "all"
        self.levels = _levels(buffer, point)
        self.fills = self.empties = self.counts = False
        if not self.levels:
            return
        outer, inner = self.levels[0], self.levels[-1]
        before, after = _apart(buffer, outer) if self.over == "rest" else (False, False)
        self.fills = (before or buffer.name not in live.entering[id(outer)]) and _writes(outer, buffer.name)
        self.empties = not self.fills and (after or buffer.name not in live.leaving[id(outer)])
        inside = [a for a in buffer.accesses if any(loop is inner for loop in a.loops)]
        if self.fills:
            self.counts = at >= min((a.at for a in inside if a.write), default=at)
        else:  # what an iteration reads of a buffer lives to its end, unless it is freed before
            freed = [a.at for a in inside if a.freed]
            over = max(freed or [a.at for a in inside], default=at)
            ahead = all(a.offset for a in inside)  # the part of this iteration was read in the one before
            self.counts = not ahead and (at <= over or (inner.domain == buffer.indexed and not freed))
        if not (self.fills or self.empties):
            self.levels = ()

    def alive(self, last: frozenset[int], amounts: Amounts) -> Alive:
        """What is alive of the buffer when these loops are at their last iteration."""
        buffer, whole = self.buffer, self.buffer.extent(amounts)
        full = self.counts and all((id(loop) in last) == self.fills for loop in self.levels)
        if not self.levels or (full and self.over != "first"):
            return Alive(name=buffer.label, bytes=whole * buffer.copies, whole=True)
        first = amounts.one * 0 if self.over == "all" else buffer.first(amounts)
        size = {"all": whole, "first": first, "rest": whole - first}[self.over]  # the first unit fills first, and empties last
        if full:
            return Alive(name=buffer.label, bytes=whole * (buffer.copies - 1) + size, whole=False)
        sizes = [size, *(buffer.extent(amounts, loop.domain) for loop in self.levels)]
        done = amounts.one * 0
        for number, loop in enumerate(self.levels):
            if id(loop) in last:
                done = done + sizes[number] - sizes[number + 1]
        part = sizes[-1] if self.counts == self.fills else amounts.one * 0
        begun, begins = (first, whole) if self.over == "rest" else (amounts.one * 0, size)
        amount = begun + done + part if self.fills else begins - done - part
        return Alive(name=buffer.label, bytes=whole * (buffer.copies - 1) + amount, whole=False)


def _apart(buffer: Buffer, outer: For) -> tuple[bool, bool]:
    """Whether all that is done to a buffer before a loop, and after it, is done to its first unit alone."""
    inside = [a.at for a in buffer.accesses if any(loop is outer for loop in a.loops)]
    if not inside:
        return False, False
    before = [a for a in buffer.accesses if a.at < min(inside)]
    after = [a for a in buffer.accesses if a.at > max(inside)]
    return all(_of_the_first(a) for a in before), all(_of_the_first(a) for a in after)


def _of_the_first(access: Access) -> bool:
    named = access.value.index is not None and access.value.index.var is None and access.value.index.offset == 0
    return named or walked(access.loops) == "first"


def _levels(buffer: Buffer, point: Point) -> tuple[For, ...]:
    """The loops around a point over whose iterations the buffer's parts are spread, outermost first."""
    if buffer.indexed is None:
        return ()
    loops = [loop for loop in point.loops if loop.domain != "microbatches"]
    if buffer.within is not None:
        inside = [n for n, loop in enumerate(loops) if loop is buffer.within]
        loops = loops[inside[0] + 1 :] if inside else []
    touched = [loop for loop in loops if any(loop is other for a in buffer.accesses if a.indexed for other in a.loops)]
    domains = [loop.domain for loop in touched]
    return tuple(touched[: domains.index(buffer.indexed) + 1] if buffer.indexed in domains else touched)


def _writes(loop: For, name: str) -> bool:
    return any(isinstance(s, Assign) and any(t.name == name for t in s.targets) for s in statements(loop.body))
