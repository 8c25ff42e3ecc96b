"""A step as one kind of device runs it, with its loops written out: every buffer from its write to its end, and every operation.

Lifetimes are those of ``docs/reference/step-programs.md``. Loops that are long, or whose length is open, are written out as
:mod:`placeproof.cost.step.parts` says. A loop that finds what it has found before, in an earlier micro-batch or on another kind of device,
does the same again: that is copied (:class:`_Pass`) instead of run.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

from placeproof.collectives import COLLECTIVES, AxisLayout
from placeproof.core.diagnostics import refuse
from placeproof.core.states import STATES
from placeproof.cost.step.devices import Condition, Holds, condition
from placeproof.cost.step.parts import ONE, Count, Parts, Portion, total
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Ref, Stmt, assigned, statements
from placeproof.programs.ir import FIRST_UNIT, references
from placeproof.semantics.results import result_of, second_of, sum_of
from placeproof.semantics.values import Kind, Piece, Trace, Value, placed_value

#: A value as a device has it, and of which parts; None is nothing at all.
HeldValue: TypeAlias = tuple[Value, int] | None

#: How often something is sent: by its value, the extent of its part, and whether that is of the first unit (None: also).
Sent: TypeAlias = dict[tuple[Value, Count, bool | None], Count]
#: What is sent at once, and for how many iterations: the call's and the value's ``id``, and the parts.
_Sending: TypeAlias = tuple[int, int, int, Count]

_NUMBER = Value(kind=Kind.SCALAR)
#: The end of what has not ended.
_OPEN = sys.maxsize


@dataclass(slots=True, eq=False)
class Life:
    """What one write put into a buffer, or what is left of it: of which group, micro-batch and parts, and from when until when it lives.

    ``written``: the parts as they were written. ``stands``: for how many such writes, of parts that are alike. ``sends``: what a collective
    in flight sends, of which this is the handle.
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
    sends: tuple[Life, ...] = ()


@dataclass(slots=True)
class _Frame:
    """A loop that is being run: at which of its domain's positions it is, how often, and what this iteration has read."""

    stmt: For
    number: int
    part: Portion
    batch: int | None
    times: Count
    between: bool
    read: list[Life] = field(default_factory=list)


class _Spot(NamedTuple):
    """What a reference always means: in which domain it names a part, whether that is not a micro-batch, or one of a buffer that is kept
    for each, and how many there are."""

    domain: str | None
    by_parts: bool
    by_batch: bool
    among: int


class _Mentions(NamedTuple):
    """What a loop's body speaks of: buffers, variables of indices, and conditions on ranks."""

    names: tuple[str, ...]
    variables: frozenset[str | None]
    conditions: tuple[Condition, ...]


class _Pass(NamedTuple):
    """What a loop did. Lives are numbered: those that there were before, then its own."""

    began: int
    took: int
    points: tuple[tuple[Stmt, int], ...]
    sent: dict[_Sending, tuple[Value, int]]
    #: Of each life that there was before: its value, and its new ends, where they are others.
    before: tuple[tuple[Value, int | None, int | None], ...]
    own: tuple[Life, ...]
    sends: dict[int, tuple[int, ...]]
    open: tuple[tuple[str, tuple[int, ...]], ...]
    filled: tuple[tuple[str, list[For]], ...]
    read: tuple[tuple[int, ...], ...]


class Known:
    """What the runs of a step have in common: what its text says, values that were made before, and what loops did.

    Values come from here only, so that equal ones are the same object.
    """

    def __init__(self, trace: Trace, parts: Parts) -> None:
        self.program, self.parts = trace.program, parts
        self.received = _received(trace)
        written = tuple(assigned(trace.program.body))
        self.written, self.apart = {t.name for t in written}, {t.name for t in written if t.group is not None}
        self.started = {
            s.targets[0].name: [ref.name for ref in _sent_by(s.value)] for s in statements(trace.program.body) if isinstance(s, Assign)
        }
        self.passes: dict[object, _Pass] = {}
        self._domains = {s.var: s.domain for s in statements(trace.program.body) if isinstance(s, For)}
        self.conditions = {id(s): condition(s) for s in statements(trace.program.body) if isinstance(s, If)}
        self.states = tuple(Ref(name=name) for name in ("parameters", "optimizer", "gradients"))
        refs = itertools.chain(self.states, *map(references, statements(trace.program.body)))
        self.spots = {id(ref): self._spot(ref) for ref in refs}
        self._mentions: dict[int, _Mentions] = {}
        self._walks: dict[tuple[int, Portion], list[tuple[int, Portion, None, Count, bool]]] = {}
        self._values: dict[Value, Value] = {}
        self._made: dict[tuple[object, ...], tuple[Value, tuple[object, ...]]] = {}

    def value(self, make: Callable[..., Value], *of: object) -> Value:
        """What a function makes of these very objects (which are held, so that no other gets their ``id``)."""
        key = (make, *map(id, of))
        if key not in self._made:
            value = make(*of)
            self._made[key] = self._values.setdefault(value, value), of
        return self._made[key][0]

    def placed(self, state: str) -> Value:
        """A state as it lies between steps."""
        return self.value(placed_value, self.program, sys.intern(state))

    def result(self, call: Call, *operands: Value) -> Value:
        """What an operation makes."""
        return self.value(self._result, call, *operands)

    def _result(self, call: Call, *operands: Value) -> Value:
        return self.received.get(id(call)) or result_of(call, operands, self.program)

    def second(self, call: Call, target: Ref, result: Value, *operands: Value) -> Value:
        """What an operation gives to its second target."""
        return self.value(self._second, call, target, result, *operands)

    def _second(self, call: Call, target: Ref, result: Value, *operands: Value) -> Value:
        return second_of(call, operands, result, target, self.program)

    def _spot(self, ref: Ref) -> _Spot:
        domain = None
        if ref.index is not None:
            domain = self._domains.get(ref.index.var or "", "microbatches" if ref.name in self.parts.kept else "units")
        by_parts = domain not in (None, "microbatches")
        among = len(self.parts.in_order[domain]) if domain is not None and by_parts else len(self.parts.batches.weights)
        return _Spot(domain, by_parts, domain == "microbatches" and ref.name in self.parts.kept, among)

    def mentions(self, loop: For) -> _Mentions:
        """What a loop's body speaks of."""
        if id(loop) not in self._mentions:
            inside = tuple(statements(loop.body))
            refs = [r for s in inside for r in references(s)]
            names = dict.fromkeys(n for r in refs for n in (r.name, *self.started.get(r.name, ())))
            variables = frozenset(r.index.var for r in refs if r.index is not None)
            conditions = tuple(self.conditions[id(s)] for s in inside if isinstance(s, If))
            self._mentions[id(loop)] = _Mentions(tuple(names), variables, conditions)
        return self._mentions[id(loop)]

    def walked(self, loop: For, around: Portion) -> list[tuple[int, Portion, None, Count, bool]]:
        """The iterations of a loop over parts, each with the position of its part among all."""
        if (id(loop), around) not in self._walks:
            every, parts = [p for p, _ in self.parts.in_order[loop.domain]], self.parts
            own = parts.every(loop.domain, around)[loop.start :]
            self._walks[id(loop), around] = [(every.index(p), p, None, parts.times(p, around), parts.between(p)) for p in own]
        return self._walks[id(loop), around]


class Unrolled:
    """The run of a step by devices on which conditions hold, or do not."""

    def __init__(self, known: Known, taken: Holds) -> None:
        self.program, self.parts, self.known, self.taken = known.program, known.parts, known, taken
        self.time = 0
        #: What an assignment gives to a buffer, as it is.
        self._named: Expr | None = None
        self.lives: list[Life] = []
        self.points: list[tuple[Stmt, int]] = []
        self._sent: dict[_Sending, tuple[Value, int]] = {}
        self._open: dict[str, list[Life]] = {}
        self._filled: dict[str, list[For]] = {}
        self._frames: list[_Frame] = []
        self._times, self._between = ONE, False
        for ref in known.states:
            self._open_life(ref, known.placed(ref.name), self.parts.everything)
        self._body(self.program.body)

    @cached_property
    def sent(self) -> dict[int, Sent]:
        """What each operation has sent, by the call's ``id``."""
        root, extents = self.parts.first_unit, self.parts.extent
        often: dict[tuple[int, int, Count, bool | None], tuple[Value, list[Count]]] = {}
        for (call, _, bits, times), (sample, number) in self._sent.items():
            first = None if bits & root and bits & ~root else bool(bits & root)
            value = self.known.value(settled, sample)
            often.setdefault((call, id(value), extents(bits, bits), first), (value, []))[1].extend((times,) * number)
        totals: dict[int, Sent] = {}
        for (call, _, extent, first), (value, each) in often.items():
            totals.setdefault(call, {})[value, extent, first] = total(each)
        return totals

    @cached_property
    def places(self) -> list[int]:
        """Of each point, the place of its statement in the program."""
        place = {id(s): n for n, s in enumerate(statements(self.program.body))}
        return [place[id(stmt)] for stmt, _ in self.points]

    @cached_property
    def alike(self) -> dict[tuple[object, ...], tuple[Life, list[Life]]]:
        """Lives by all but when they are: one, and all."""
        lives: dict[tuple[object, ...], tuple[Life, list[Life]]] = {}
        for life in self.lives:
            key = (life.name, life.group, life.batch, id(life.value), life.bits, life.written, life.by_parts, life.stands.terms)
            lives.setdefault(key, (life, []))[1].append(life)
        return lives

    # Statements.

    def _body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            match stmt:
                case For():
                    self._loop(stmt)
                case If():
                    self._body(stmt.then if self.taken[self.known.conditions[id(stmt)]] else stmt.orelse)
                case _:
                    self._plain(stmt)

    def _loop(self, stmt: For) -> None:
        """A loop over parts that is in none itself, but in loops over micro-batches, may have done all this before."""
        if stmt.domain == "microbatches" or any(f.batch is None for f in self._frames) or not (self._frames or self.taken):
            self._iterate(stmt)
            return
        names, variables, conditions = self.known.mentions(stmt)
        before = [life for name in names for life in self._open.get(name, ())]
        at = {id(life): n for n, life in enumerate(before)}
        key = (
            id(stmt),
            tuple(self.taken[c] for c in conditions),
            self._between,
            tuple(f.number if f.stmt.var in variables else None for f in self._frames),
            tuple(tuple(map(id, self._filled.get(name, ()))) for name in names),
            tuple(
                (x.name, x.group, x.batch, id(x.value), x.bits, x.by_parts, x.end == self.time, x.closed == self.time, x.closed == _OPEN)
                for x in before
            ),
            tuple((n, tuple(at.get(id(y)) for y in x.sends)) for n, x in enumerate(before) if x.sends),
        )
        sent, times = self._sent, self._times
        if key in self.known.passes:
            done = self.known.passes[key]
            self._again(done, before)
        else:
            self._sent, self._times = {}, ONE
            done = self._first(stmt, names, before)
            self._sent, self._times = sent, times
            if all(life.start > done.began for life in done.own):  # none is what was cut off of a life that there was before
                self.known.passes[key] = done
        for (call, value_id, bits, inner), (value, number) in done.sent.items():
            self._count(call, value, value_id, bits, inner * times, number)

    def _first(self, stmt: For, names: tuple[str, ...], before: list[Life]) -> _Pass:
        began, lives, points, read = self.time, len(self.lives), len(self.points), [len(f.read) for f in self._frames]
        ends = [(life.end, life.closed) for life in before]
        self._iterate(stmt)
        own = self.lives[lives:]
        number = {id(life): n for n, life in enumerate((*before, *own))}
        return _Pass(
            began=began,
            took=self.time - began,
            points=tuple(self.points[points:]),
            sent=self._sent,
            before=tuple(
                (x.value, x.end if x.end != end else None, x.closed if x.closed != closed else None)
                for x, (end, closed) in zip(before, ends, strict=True)
            ),
            own=tuple(_later(life, 0) for life in own),
            sends={number[id(life)]: tuple(number[id(x)] for x in life.sends if id(x) in number) for life in own if life.sends},
            open=tuple((name, tuple(number[id(life)] for life in self._open[name])) for name in names if name in self._open),
            filled=tuple((name, self._filled[name]) for name in names if name in self._filled),
            read=tuple(tuple(number[id(life)] for life in f.read[n:]) for f, n in zip(self._frames, read, strict=True)),
        )

    def _again(self, done: _Pass, before: list[Life]) -> None:
        shift = self.time - done.began
        for life, (value, end, closed) in zip(before, done.before, strict=True):
            life.value = value
            life.end = life.end if end is None else end + shift
            life.closed = life.closed if closed is None else closed + shift
        own = [_later(life, shift) for life in done.own]
        every = (*before, *own)
        for at, numbers in done.sends.items():
            every[at].sends = tuple(every[n] for n in numbers)
        self.lives += own
        self.points += [(stmt, time + shift) for stmt, time in done.points]
        self._open.update((name, [every[n] for n in numbers]) for name, numbers in done.open)
        self._filled.update(done.filled)
        for frame, numbers in zip(self._frames, done.read, strict=True):
            frame.read += [every[n] for n in numbers]
        self.time += done.took

    def _iterate(self, stmt: For) -> None:
        times, between = self._times, self._between
        around = next((f.part for f in reversed(self._frames) if f.stmt.var == stmt.within), Portion())
        around = Portion(unit=0) if stmt.within == FIRST_UNIT else around
        frames = self._batches(stmt) if stmt.domain == "microbatches" else [_Frame(stmt, *at) for at in self.known.walked(stmt, around)]
        for frame in reversed(frames) if stmt.reverse else frames:
            self._frames.append(frame)
            self._times, self._between = times * frame.times, between or frame.between
            self._body(stmt.body)
            self._frames.pop()
            for life in frame.read:  # what an iteration reads of a buffer lives to its end
                life.end = self.time if life.closed == _OPEN else life.end
        self._times, self._between = times, between

    def _batches(self, stmt: For) -> list[_Frame]:
        level = self.parts.batches
        return [_Frame(stmt, n, Portion(), n, times, bool(self.parts.kept) and level.between(n)) for n, times in enumerate(level.weights)]

    def _plain(self, stmt: Stmt) -> None:
        if not all(self._exists(ref) for ref in self.program.elsewhere.get(id(stmt), ())):
            return
        self.time += 1
        if not self._between:
            self.points.append((stmt, self.time))
        if isinstance(stmt, Assign):
            self._assign(stmt)
        elif isinstance(stmt, Do):
            self._do(stmt.call)

    def _do(self, call: Call) -> None:
        if call.op not in ("free", "zero") or not isinstance(call.args[0], Ref):
            self._value(call)
            return
        ref = call.args[0]
        content = self._found(ref)
        for life in self._part_of(ref, self._bits(ref)):
            self._close(life, self.time if call.op == "free" else self.time - 1)
            if call.op == "free":
                life.end = self.time
        if call.op == "zero" and content is not None:
            self._open_life(ref, *content)

    def _assign(self, stmt: Assign) -> None:
        self._named = None if stmt.accumulate else stmt.value
        operands = self._operands(stmt.value) if isinstance(stmt.value, Call) else []
        content = self._call(stmt.value, operands) if isinstance(stmt.value, Call) else self._value(stmt.value)
        if content is None:
            return
        if stmt.accumulate:
            self._accumulate(stmt.targets[0], content)
            return
        sends = [life for ref in _sent_by(stmt.value) for life in self._at(ref, self._bits(ref), ref.group)]
        self._write(stmt.targets[0], content, tuple(sends))
        if len(stmt.targets) > 1 and isinstance(stmt.value, Call):
            given = [h or (_NUMBER, 0) for h in operands]
            second = self.known.second(stmt.value, stmt.targets[1], content[0], *(v for v, _ in given))
            self._write(stmt.targets[1], (second, given[0][1]))

    def _accumulate(self, target: Ref, content: tuple[Value, int]) -> None:
        bits = self._bits(target) if self.known.spots[id(target)].by_parts else content[1]
        there = self._at(target, bits or None, target.group)
        number = content[0].kind is Kind.SCALAR
        if number and there:
            bits = 0
        self._touch(there, target)
        for life in there:
            if life.value.kind is Kind.SCALAR:
                if not number:
                    self._close(life, self.time - 1)
            else:
                life.value = self.known.value(sum_of, life.value, content[0])
                bits &= ~life.bits
        if bits or not there:
            self._open_life(target, content[0], bits)

    # Buffers.

    def _write(self, target: Ref, content: tuple[Value, int], sends: tuple[Life, ...] = ()) -> None:
        bits = self._bits(target) if self.known.spots[id(target)].by_parts else content[1]
        for life in self._part_of(target, bits if self.known.spots[id(target)].by_parts else None):
            self._close(life, self.time - 1)
        self._open_life(target, content[0], bits, sends)

    def _open_life(self, target: Ref, value: Value, bits: int, sends: tuple[Life, ...] = ()) -> None:
        groups: list[tuple[str | None, Value]] = [(None, value)]
        if target.group is not None:
            groups = [(target.group, self.known.value(Value.group, value, target.group))]
        elif target.name in self.known.apart:
            groups = [(piece.group, self.known.value(_alone, value, piece)) for piece in value.pieces]
        by_parts = self.known.spots[id(target)].by_parts
        if by_parts:
            self._filled[target.name] = [f.stmt for f in self._frames if f.batch is None]
        stands = self.parts.times(self._part(target)[0], Portion()) if by_parts else ONE
        for group, own in groups:
            life = Life(target.name, group, self._batch(target), own, bits, bits, by_parts, stands, self.time, self.time, sends=sends)
            self._open.setdefault(target.name, []).append(life)
            self.lives.append(life)

    def _close(self, life: Life, end: int) -> None:
        life.end, life.closed = min(life.end, end), end
        self._open[life.name].remove(life)

    def _at(self, ref: Ref, bits: int | None, group: str | None) -> list[Life]:
        """What lives of a buffer (or of one group), as far as a reference is about it."""
        lives = [x for x in self._open.get(ref.name, ()) if bits is None or x.bits & bits or not x.bits]
        if lives and group is not None:
            lives = [x for x in lives if x.group is None or x.group == group]
        if lives and (batch := self._batch(ref)) is not None:
            lives = [x for x in lives if x.batch is None or x.batch == batch]
        return lives

    def _part_of(self, ref: Ref, bits: int | None) -> list[Life]:
        """As :meth:`_at`, with what lies beyond those parts cut off as lives of their own."""
        lives = self._at(ref, bits, ref.group)
        for life in lives:
            if bits is not None and life.bits & ~bits:
                rest = replace(life, bits=life.bits & ~bits)
                life.bits &= bits
                self._open[life.name].append(rest)
                self.lives.append(rest)
                for frame in self._frames:
                    frame.read += [rest] if any(life is other for other in frame.read) else []
        return lives

    def _touch(self, lives: list[Life], ref: Ref) -> None:
        domain = self.known.spots[id(ref)].domain if lives and ref.index is not None else None
        frame = next((f for f in reversed(self._frames) if f.stmt.domain == domain), None) if domain is not None else None
        for life in lives:
            life.end = self.time
            if frame is not None and life.by_parts:
                frame.read.append(life)

    # What references mean.

    def _batch(self, ref: Ref) -> int | None:
        return self._number(ref) if ref.index is not None and self.known.spots[id(ref)].by_batch else None

    def _number(self, ref: Ref) -> int:
        """Which part it names, of all in order."""
        index = ref.index
        assert index is not None
        for frame in reversed(self._frames):
            if frame.stmt.var == index.var:
                return frame.number + index.offset
        return index.offset if index.offset >= 0 else self.known.spots[id(ref)].among + index.offset

    def _exists(self, ref: Ref) -> bool:
        return ref.index is None or 0 <= self._number(ref) < self.known.spots[id(ref)].among

    def _part(self, ref: Ref) -> tuple[Portion, int]:
        """A part, and the smallest parts that it has."""
        if ref.index is not None and (spot := self.known.spots[id(ref)]).by_parts and spot.domain is not None:
            return self.parts.in_order[spot.domain][self._number(ref)]
        part = self._filled_part(ref) if ref.name in self._filled else None
        return (part, self.parts.bits(part)) if part is not None else (Portion(), self.parts.everything)

    def _filled_part(self, ref: Ref) -> Portion | None:
        """A buffer that an inner loop fills part by part is, as a whole, the part of the loop around both."""
        filled = self._filled.get(ref.name, []) if ref.index is None and ref.name not in STATES else []
        frames = [f for f in self._frames if f.batch is None]
        shared = [f for f, loop in zip(frames, filled, strict=False) if f.stmt is loop]
        return shared[-1].part if len(filled) > len(shared) > 0 else None

    def _bits(self, ref: Ref) -> int:
        return self._part(ref)[1]

    # Values.

    def _found(self, ref: Ref, *, read: bool = False) -> HeldValue:
        """What a reference gives; ``read``: it is read, all groups of it, as a buffer lives with all of them."""
        none = ref.name in self.known.written and ref.name not in STATES
        if not none and ref.name not in STATES:
            return _NUMBER, 0
        bits = self._bits(ref)
        lives = self._at(ref, bits, None)
        if read:
            self._touch(lives, ref)
        if ref.group is not None:
            lives = [life for life in lives if life.group is None or life.group == ref.group]
        if not lives:
            return None if none else (self.known.placed(ref.name), bits)
        value, own = self.known.value(_merged, ref, *(life.value for life in lives)), 0
        for life in lives:
            own |= life.bits
        parted = value.kind not in (Kind.STREAM, Kind.SCALAR)
        return value if ref.group is None else self.known.value(Value.group, value, ref.group), own & bits if parted else 0

    def _value(self, expr: Expr) -> HeldValue:
        """The value of an expression."""
        match expr:
            case Ref():
                return self._found(expr, read=True)
            case Binary():
                left, right = self._value(expr.left), self._value(expr.right)
                if left is None or right is None:
                    return left or right
                return self.known.value(sum_of, left[0], right[0]), left[1] or right[1]
            case Call():
                return self._call(expr, self._operands(expr))
        return _NUMBER, 0

    def _operands(self, call: Call) -> list[HeldValue]:
        return [self._value(a) for a in call.operands]

    def _call(self, call: Call, operands: list[HeldValue]) -> HeldValue:
        if operands and operands[0] is None:
            return None
        contents = [h or (_NUMBER, 0) for h in operands]
        if call.op == "wait" and isinstance(call.args[0], Ref):
            last = self.time - 1 if call is self._named else self.time  # its buffer is that of the name, or is read in this line
            for life in self._at(call.args[0], self._bits(call.args[0]), call.args[0].group):
                life.end = life.closed = last
                self._touch([x for x in life.sends if x.closed == _OPEN], call.args[0])
        if contents and (call.op in COLLECTIVES or call.op in ("to_host", "to_device")):
            self._count(id(call), contents[0][0], id(contents[0][0]), contents[0][1], self._times, 1)
        value = self.known.result(call, *(v for v, _ in contents))
        return value, next((bits for _, bits in contents if bits), 0) if value.kind not in (Kind.SCALAR, Kind.STREAM) else 0

    def _count(self, call: int, value: Value, value_id: int, bits: int, times: Count, number: int) -> None:
        key = (call, value_id, bits, times)
        self._sent[key] = value, self._sent.get(key, (value, 0))[1] + number


def _later(life: Life, by: int) -> Life:
    """Another life like this one, so much later."""
    closed = life.closed if life.closed == _OPEN else life.closed + by
    return Life(
        life.name,
        life.group,
        life.batch,
        life.value,
        life.bits,
        life.written,
        life.by_parts,
        life.stands,
        life.start + by,
        life.end + by,
        closed,
    )


def _sent_by(expr: Expr) -> list[Ref]:
    """What a collective sends that is only started: it is alive until the wait. What is computed for it in that line has no name."""
    started = expr.args[0] if isinstance(expr, Call) and expr.op == "start" else None
    return [arg for arg in started.args if isinstance(arg, Ref)] if isinstance(started, Call) else []


def _alone(value: Value, piece: Piece) -> Value:
    return replace(value, pieces=(piece,))


def _received(trace: Trace) -> dict[int, Value]:
    """What operations receive lies as what the devices before sent, by the call's ``id``."""
    sent = {(e.call.axes, e.call.steps): e.operands[0] for e in trace.events if e.call.op == "send"}
    received = ((e.call, sent.get((e.call.axes, -e.call.steps))) for e in trace.events if e.call.op == "recv")
    return {id(call): value for call, value in received if value is not None}


@lru_cache(maxsize=4096)
def settled(value: Value) -> Value:
    """A value as far as its size goes: whether it is a partial sum does not matter."""
    pieces = tuple(p.laid(p.axes(AxisLayout.PARTIAL), AxisLayout.REPLICATE) for p in value.pieces)
    return replace(value, pieces=pieces, part=None, index=None)


def _merged(ref: Ref, *values: Value) -> Value:
    """The value of what lives of a buffer: its groups together, which have to lie alike in all parts."""
    pieces = {p.group: p for value in values for p in value.pieces}
    for value in values:
        for piece in value.pieces:
            other = pieces[piece.group]
            if (piece.axes(AxisLayout.SHARD), piece.width) != (other.axes(AxisLayout.SHARD), other.width):
                message = (
                    f"parts of `{ref.name}` that are read here lie in different ways, or have other widths: what it costs is not derived"
                )
                refuse("PP310", message, place=ref.place, help="read them one by one")
    return replace(values[0], pieces=tuple(pieces[g] for g in sorted(pieces)))
