"""A step as one kind of device runs it, with its loops written out: every buffer from its write to its end, and every operation.

Lifetimes are those of ``docs/reference/step-programs.md``. Loops that are long, or whose length is open, are written out as
:mod:`placeproof.cost.parts` says.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeAlias

from placeproof.collectives import COLLECTIVES, Layout
from placeproof.core.diagnostics import Diagnostic, InputError
from placeproof.core.program import Assign, Binary, Call, Do, Expr, For, If, Index, Ref, Stmt, assigned
from placeproof.core.program.ir import FIRST_UNIT
from placeproof.core.states import STATES
from placeproof.cost.devices import Holds, condition
from placeproof.cost.parts import ONE, Count, Part, Parts
from placeproof.semantics.results import result_of, second_of, sum_of
from placeproof.semantics.values import Kind, Trace, Value, placed_value

#: A value as a device has it, and of which parts; None is nothing at all.
Held: TypeAlias = tuple[Value, int] | None

#: How often something is sent: by its value, the extent of its part, and whether that is of the first unit (None: also).
Sent: TypeAlias = dict[tuple[Value, Count, bool | None], Count]

_NUMBER = Value(kind=Kind.SCALAR)
#: The end of what has not ended.
_OPEN = sys.maxsize


@dataclass(slots=True, eq=False)
class Life:
    """What one write put into a buffer, or what is left of it: of which group, micro-batch and parts, and from when until when it lives.

    ``written``: the parts as they were written. ``stands``: for how many such writes, of parts that are alike.
    """

    name: str
    group: str | None
    batch: int | None
    value: Value
    bits: int
    written: int
    by_parts: bool
    stands: Count
    start: int
    end: int
    closed: int = _OPEN


@dataclass(slots=True)
class _Frame:
    """A loop that is being run: where it is, and what this iteration has read."""

    stmt: For
    part: Part
    batch: int | None
    times: Count
    between: bool
    read: list[Life] = field(default_factory=list)


@dataclass(slots=True)
class Point:
    """A statement that was run, and when."""

    stmt: Stmt
    time: int


class Unrolled:
    """The run of a step by devices on which conditions hold, or do not."""

    def __init__(self, found: Trace, parts: Parts, taken: Holds) -> None:
        program = found.program
        self.program, self.parts, self.taken = program, parts, taken
        self._received = _received(found)
        self.time = 0
        self.lives: list[Life] = []
        self.points: list[Point] = []
        #: What each operation has sent, by the call's ``id``.
        self.sent: dict[int, Sent] = {}
        self._open: dict[str, list[Life]] = {}
        self._filled: dict[str, list[For]] = {}
        self._frames: list[_Frame] = []
        self._written = {t.name for t in assigned(program.body)}
        self._apart = {t.name for t in assigned(program.body) if t.group is not None}
        for state in ("parameters", "optimizer", "gradients"):
            self._open_life(Ref(name=state), placed_value(program, state), parts.everything)
        self._body(program.body)

    # Statements.

    def _body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            match stmt:
                case For():
                    self._loop(stmt)
                case If():
                    self._body(stmt.then if self.taken[condition(stmt)] else stmt.orelse)
                case _:
                    self._plain(stmt)

    def _loop(self, stmt: For) -> None:
        around = next((f.part for f in reversed(self._frames) if f.stmt.var == stmt.within), Part())
        around = Part(unit=0) if stmt.within == FIRST_UNIT else around
        frames = self._batches(stmt) if stmt.domain == "microbatches" else self._walked(stmt, around)
        for frame in reversed(frames) if stmt.reverse else frames:
            self._frames.append(frame)
            self._body(stmt.body)
            self._frames.pop()
            for life in frame.read:  # what an iteration reads of a buffer lives to its end
                life.end = self.time if life.closed == _OPEN else life.end

    def _batches(self, stmt: For) -> list[_Frame]:
        level = self.parts.batches
        return [_Frame(stmt, Part(), n, times, bool(self.parts.kept) and level.between(n)) for n, times in enumerate(level.weights)]

    def _walked(self, stmt: For, around: Part) -> list[_Frame]:
        parts, own = self.parts, self.parts.every(stmt.domain, around)[stmt.start :]
        return [_Frame(stmt, p, None, parts.times(p, around), parts.between(p)) for p in own]

    def _plain(self, stmt: Stmt) -> None:
        if not all(self._exists(ref) for ref in self.program.elsewhere.get(id(stmt), ())):
            return
        self.time += 1
        if not any(frame.between for frame in self._frames):
            self.points.append(Point(stmt, self.time))
        if isinstance(stmt, Assign):
            self._assign(stmt)
        elif isinstance(stmt, Do):
            self._do(stmt.call)

    def _do(self, call: Call) -> None:
        if call.op not in ("free", "zero") or not isinstance(call.args[0], Ref):
            self._value(call)
            return
        ref = call.args[0]
        held = self._found(ref)
        for life in self._part_of(ref, self._bits(ref)):
            self._close(life, self.time if call.op == "free" else self.time - 1)
            if call.op == "free":
                life.end = self.time
        if call.op == "zero" and held is not None:
            self._open_life(ref, *held)

    def _assign(self, stmt: Assign) -> None:
        held = self._value(stmt.value)
        if held is None:
            return
        if stmt.accumulate:
            self._accumulate(stmt.targets[0], held)
            return
        written = [(stmt.targets[0], held)]
        if len(stmt.targets) > 1 and isinstance(stmt.value, Call):
            operands = [self._value(a, quietly=True) or (_NUMBER, 0) for a in stmt.value.args]
            second = second_of(stmt.value, tuple(v for v, _ in operands), held[0], stmt.targets[1], self.program)
            written.append((stmt.targets[1], (second, operands[0][1])))
        for target, own in written:
            self._write(target, own)

    def _accumulate(self, target: Ref, held: tuple[Value, int]) -> None:
        bits = self._bits(target) if self._by_parts(target) else held[1]
        there = self._at(target, bits or None)
        if held[0].kind is Kind.SCALAR and there:
            bits = 0
        for life in there:
            self._touch(life, target)
            if life.value.kind is Kind.SCALAR:
                self._close(life, self.time - 1)
            else:
                life.value = sum_of(life.value, held[0])
                bits &= ~life.bits
        if bits or not there:
            self._open_life(target, held[0], bits)

    # Buffers.

    def _write(self, target: Ref, held: tuple[Value, int]) -> None:
        bits = self._bits(target) if self._by_parts(target) else held[1]
        for life in self._part_of(target, bits if self._by_parts(target) else None):
            self._close(life, self.time - 1)
        self._open_life(target, held[0], bits)

    def _open_life(self, target: Ref, value: Value, bits: int) -> None:
        groups: list[tuple[str | None, Value]] = [(None, value)]
        if target.group is not None:
            groups = [(target.group, value.group(target.group))]
        elif target.name in self._apart:
            groups = [(piece.group, replace(value, pieces=(piece,))) for piece in value.pieces]
        by_parts = self._by_parts(target)
        if by_parts:
            self._filled[target.name] = [f.stmt for f in self._frames if f.batch is None]
        stands = self.parts.times(self._part(target), Part()) if by_parts else ONE
        for group, own in groups:
            life = Life(target.name, group, self._batch(target), own, bits, bits, by_parts, stands, self.time, self.time)
            self._open.setdefault(target.name, []).append(life)
            self.lives.append(life)

    def _close(self, life: Life, end: int) -> None:
        life.end, life.closed = min(life.end, end), end
        self._open[life.name].remove(life)

    def _at(self, ref: Ref, bits: int | None) -> list[Life]:
        """What lives of a buffer, as far as a reference is about it."""
        batch, found = self._batch(ref), []
        for life in self._open.get(ref.name, ()):
            same = (batch is None or life.batch in (None, batch)) and (ref.group is None or life.group in (None, ref.group))
            if same and (bits is None or not life.bits or life.bits & bits):
                found.append(life)
        return found

    def _part_of(self, ref: Ref, bits: int | None) -> list[Life]:
        """As :meth:`_at`, with what lies beyond those parts cut off as lives of their own."""
        found = self._at(ref, bits)
        for life in found:
            if bits is not None and life.bits & ~bits:
                rest = replace(life, bits=life.bits & ~bits)
                life.bits &= bits
                self._open[life.name].append(rest)
                self.lives.append(rest)
                for frame in self._frames:
                    frame.read += [rest] if any(life is other for other in frame.read) else []
        return found

    def _touch(self, life: Life, ref: Ref) -> None:
        life.end = max(life.end, self.time)
        if life.by_parts and ref.index is not None:
            domain = self._domain(ref)
            frame = next((f for f in reversed(self._frames) if f.stmt.domain == domain), None)
            if frame is not None:
                frame.read.append(life)

    # What references mean.

    def _domain(self, ref: Ref) -> str | None:
        if ref.index is None:
            return None
        own = next((f.stmt.domain for f in reversed(self._frames) if f.stmt.var == ref.index.var), None)
        return own or ("microbatches" if ref.name in self.parts.kept else "units")

    def _by_parts(self, ref: Ref) -> bool:
        return ref.index is not None and self._domain(ref) != "microbatches"

    def _batch(self, ref: Ref) -> int | None:
        if self._domain(ref) != "microbatches" or ref.index is None or ref.name not in self.parts.kept:
            return None
        return self._number(ref.index, len(self.parts.batches.weights))

    def _number(self, index: Index, among: int) -> int:
        frame = next((f for f in reversed(self._frames) if f.stmt.var == index.var), None)
        if frame is None:
            return index.offset if index.offset >= 0 else among + index.offset
        if frame.batch is not None:
            return frame.batch + index.offset
        return self.parts.every(frame.stmt.domain).index(frame.part) + index.offset

    def _exists(self, ref: Ref) -> bool:
        domain = self._domain(ref)
        if domain is None or ref.index is None:
            return True
        among = len(self.parts.batches.weights) if domain == "microbatches" else len(self.parts.every(domain))
        return 0 <= self._number(ref.index, among) < among

    def _part(self, ref: Ref) -> Part:
        domain = self._domain(ref)
        if domain in (None, "microbatches") or ref.index is None:
            return self._filled_part(ref)
        every = self.parts.every(domain)
        return every[self._number(ref.index, len(every))]

    def _filled_part(self, ref: Ref) -> Part:
        """A buffer that an inner loop fills part by part is, as a whole, the part of the loop around both."""
        filled = self._filled.get(ref.name, []) if ref.index is None and ref.name not in STATES else []
        frames = [f for f in self._frames if f.batch is None]
        shared = [f for f, loop in zip(frames, filled, strict=False) if f.stmt is loop]
        return shared[-1].part if len(filled) > len(shared) > 0 else Part()

    def _bits(self, ref: Ref) -> int:
        return self.parts.bits(self._part(ref))

    # Values.

    def _found(self, ref: Ref) -> Held:
        """What a reference gives, without reading it."""
        if ref.name not in self._written and ref.name not in STATES:
            return _NUMBER, 0
        bits = self._bits(ref)
        lives = self._at(ref, bits)
        if not lives:
            none = ref.name in self._written and ref.name not in STATES
            return None if none else (placed_value(self.program, ref.name), bits)
        value, own = _merged(lives, ref), 0
        for life in lives:
            own |= life.bits
        parted = value.kind not in (Kind.STREAM, Kind.SCALAR)
        return value if ref.group is None else value.group(ref.group), own & bits if parted else 0

    def _value(self, expr: Expr, quietly: bool = False) -> Held:
        """The value of an expression; ``quietly``: without performing its operations again."""
        match expr:
            case Ref():
                whole = replace(expr, group=None)  # a buffer lives with all its groups
                for life in self._at(whole, self._bits(expr)) if not quietly and expr.name in self._open else ():
                    self._touch(life, expr)
                return self._found(expr)
            case Binary():
                left, right = self._value(expr.left, quietly), self._value(expr.right, quietly)
                if left is None or right is None:
                    return left or right
                return sum_of(left[0], right[0]), left[1] or right[1]
            case Call():
                return self._call(expr, quietly)
        return _NUMBER, 0

    def _call(self, call: Call, quietly: bool) -> Held:
        args = call.args[:1] if call.op in ("quantize", "cast") else call.args[1 if call.op == "elementwise" else 0 :]
        operands = [self._value(a, quietly) for a in args]
        if operands and operands[0] is None:
            return None
        held = [h or (_NUMBER, 0) for h in operands]
        if call.op == "wait" and isinstance(call.args[0], Ref) and not quietly:
            for life in self._at(call.args[0], self._bits(call.args[0])):  # its buffer is the result's from now on
                life.end = life.closed = self.time - 1
        if held and not quietly and (call.op in COLLECTIVES or call.op in ("to_host", "to_device")):
            self._send(call, *held[0])
        value = self._received.get(id(call)) or result_of(call, tuple(v for v, _ in held), self.program)
        return value, next((bits for _, bits in held if bits), 0) if value.kind not in (Kind.SCALAR, Kind.STREAM) else 0

    def _send(self, call: Call, value: Value, bits: int) -> None:
        times = ONE
        for frame in self._frames:
            times = times * frame.times
        first = None if bits & self.parts.first_unit and bits & ~self.parts.first_unit else bool(bits & self.parts.first_unit)
        key = (settled(value), self.parts.extent(bits, bits), first)
        sent = self.sent.setdefault(id(call), {})
        sent[key] = sent[key] + times if key in sent else times


def _received(found: Trace) -> dict[int, Value]:
    """What operations receive lies as what the devices before sent, by the call's ``id``."""
    sent = {(e.call.axes, e.call.steps): e.operands[0] for e in found.events if e.call.op == "send"}
    received = ((e.call, sent.get((e.call.axes, -e.call.steps))) for e in found.events if e.call.op == "recv")
    return {id(call): value for call, value in received if value is not None}


@lru_cache(maxsize=4096)
def settled(value: Value) -> Value:
    """A value as far as its size goes: whether it is a partial sum does not matter."""
    return replace(value, pieces=tuple(p.laid(p.axes(Layout.PARTIAL), Layout.REPLICATE) for p in value.pieces), part=None, index=None)


def _merged(lives: list[Life], ref: Ref) -> Value:
    """The value of what lives of a buffer: its groups together, which have to lie alike in all parts."""
    pieces = {p.group: p for life in lives for p in life.value.pieces}
    for life in lives:
        for piece in life.value.pieces:
            other = pieces[piece.group]
            if (piece.axes(Layout.SHARD), piece.width) != (other.axes(Layout.SHARD), other.width):
                message = (
                    f"parts of `{ref.name}` that are read here lie in different ways, or have other widths: what it costs is not derived"
                )
                raise InputError([Diagnostic(code="PP310", message=message, place=ref.place, help="read them one by one")])
    return replace(lives[0].value, pieces=tuple(pieces[g] for g in sorted(pieces)))
