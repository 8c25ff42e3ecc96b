"""The order in which each device runs its passes, made from a schedule's phases, and whether it is one."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import NamedTuple, NoReturn, TypeAlias

from placeproof.core.diagnostics import Problems, refuse
from placeproof.schedules.expression import Expression, Number
from placeproof.schedules.schedule import PassKind, Schedule, Token
from placeproof.schedules.search import searched


class Pass(NamedTuple):
    """One pass of one micro-batch through one stage."""

    kind: PassKind
    microbatch: int
    stage: int

    def __str__(self) -> str:
        return f"{self.kind.value} of micro-batch {self.microbatch}, stage {self.stage}"


#: Forward passes of all devices of which an order is worked out: some ten seconds.
MOST = 200_000

#: What a device runs at a time: a pass, or a forward and a full backward of another micro-batch that overlap.
Slot: TypeAlias = tuple[Pass, ...]
Order: TypeAlias = tuple[Slot, ...]


@lru_cache(maxsize=1024)
def slots(schedule: Schedule, p: int, m: int, v: int | None = None) -> tuple[Order, ...]:
    """What each of p devices runs for m micro-batches, one slot after the other.

    Raises InputError: PP202 for what the schedule does not admit, and for more than :data:`MOST` forward passes; PP112 if its phases do
    not give each pass once, or no order at all.
    """
    chunks = schedule.counts(p, m, v)
    if p * m * chunks > MOST:
        message = f"{m:,} micro-batches on {p:,} devices are {p * m * chunks:,} forward passes, and at most {MOST:,} are put in order"
        refuse("PP202", message, help="take fewer micro-batches")
    if schedule.search is not None:
        every = tuple(tuple(_numbered(kinds, d)) for d, kinds in enumerate(searched(schedule, p, m)))
    else:
        every = tuple(tuple(DeviceOrder(schedule, p, m, chunks, d).slots()) for d in range(p))
    _check(schedule, p, m, chunks, every)
    return every


def orders(schedule: Schedule, p: int, m: int, v: int | None = None) -> tuple[tuple[Pass, ...], ...]:
    """The passes of each of p devices in their order; of two that overlap, the forward stands first. Raises InputError as :func:`slots`."""
    return tuple(tuple(pass_ for slot in order for pass_ in slot) for order in slots(schedule, p, m, v))


def _numbered(kinds: Iterable[PassKind], stage: int) -> Iterator[Slot]:
    """The passes of one stage, whose micro-batches come in turn."""
    numbers = {kind: count() for kind in PassKind}
    yield from ((Pass(kind, next(numbers[kind]), stage),) for kind in kinds)


@dataclass(slots=True)
class DeviceOrder:
    """One device while its order is written down: which micro-batch is next, and whose weight gradients are still to come."""

    schedule: Schedule
    p: int
    m: int
    v: int
    d: int
    done: Counter[tuple[bool, int]] = field(default_factory=Counter)
    open: deque[tuple[int, int]] = field(default_factory=deque)

    def slots(self) -> Iterator[Slot]:
        """What the device runs. Raises InputError (PP112)."""
        if self.schedule.every is not None:
            yield from self._in_time(self.schedule.every, {"p": self.p, "m": self.m, "v": self.v, "d": self.d})
            return
        made_for, turn, repeated = self.counts()
        turns = {forward: self._turns(made_for // self.schedule.copies, turn, forward) for forward in (True, False)}
        for phase, times in zip(self.schedule.phases, repeated, strict=True):
            for _ in range(times):
                for tokens in phase.run:
                    slot = tuple(self._next(token, turns, made_for) for token in tokens)
                    kept = tuple(pass_ for pass_ in slot if pass_.microbatch < self.m)
                    if kept:
                        yield kept

    def counts(self) -> tuple[int, int, tuple[int, ...]]:
        """The micro-batches that phases speak of, those of a turn, and how often each phase is repeated. Raises InputError (PP112)."""
        schedule = self.schedule
        values: dict[str, Number] = {"p": self.p, "m": self.m, "v": self.v, "d": self.d}
        made_for = self.m if schedule.made_for is None else self._count(schedule.made_for, values)
        values["m"] = made_for
        turn = made_for if schedule.turn is None else self._count(schedule.turn, values)
        self._name(values)
        return made_for, turn, tuple(self._count(phase.times, values) for phase in schedule.phases)

    def _name(self, values: dict[str, Number]) -> None:
        for name, expression in self.schedule.let:
            values[name] = expression.value(values)

    def _in_time(self, every: Expression, values: dict[str, Number]) -> Iterator[Slot]:
        """The passes of a building block that is repeated, by the units of time in which they begin."""
        self._name(values)
        interval, units = self._count(every, values), dict[int, Token]()
        for token, start in self.schedule.block:
            first = self._count(start, values)
            for unit in range(first, first + interval * self.m, interval) if interval else ():
                if unit in units:
                    self._wrong(f"{units[unit].kind.value} and {token.kind.value} begin in one unit of time, {unit}")
                units[unit] = Token(token.kind, token.chunk or 0)
        filled = all(token.kind is not PassKind.W for token, _ in self.schedule.block)
        for unit in range(max(units, default=-1) + 1):
            if unit in units:
                yield (self._next(units[unit], {}, self.m),)
            elif filled and self.open:
                yield (self._next(Token(PassKind.W, None), {}, self.m),)
        while filled and self.open:
            yield (self._next(Token(PassKind.W, None), {}, self.m),)

    def _count(self, expression: Expression, values: Mapping[str, Number]) -> int:
        number = expression.value(values)
        if not isinstance(number, int) or number < 0:
            self._wrong(f"{expression.text} = {number} is no count")
        return number

    def _turns(self, made_for: int, turn: int, forward: bool) -> Iterator[int]:
        """The chunks, as they take turns: forward from the first to the last, backward from the last to the first."""
        for start in range(0, made_for, max(1, turn)):
            for chunk in range(self.v) if forward else reversed(range(self.v)):
                yield from [chunk] * (min(start + turn, made_for) - start)

    def _next(self, token: Token, turns: dict[bool, Iterator[int]], made_for: int) -> Pass:
        if token.kind is PassKind.W:
            chunk, microbatch = self._oldest(token.chunk)
        else:
            forward = token.kind is PassKind.F
            chunk = next(turns[forward], -1) if token.chunk is None else token.chunk
            if not 0 <= chunk < self.v or self.done[forward, chunk] >= made_for:
                self._wrong(f"there is no further {token.kind.value} to run")
            microbatch = self.schedule.first(chunk, self.d, self.p, self.m) + self.done[forward, chunk]
            self.done[forward, chunk] += 1
            if token.kind is PassKind.B:
                self.open.append((chunk, microbatch))
        return Pass(token.kind, microbatch, self.schedule.stage(chunk, self.d, self.p))

    def _oldest(self, chunk: int | None) -> tuple[int, int]:
        """The B whose W is due: that which waits longest, of a chunk or of all."""
        waiting = next((pair for pair in self.open if chunk in (None, pair[0])), None)
        if waiting is None:
            self._wrong("there is no B whose W is still to run")
        self.open.remove(waiting)
        return waiting

    def _wrong(self, what: str) -> NoReturn:
        message = f"`{self.schedule.name}` with p = {self.p}, m = {self.m}, v = {self.v}: on device {self.d}, {what}"
        refuse("PP112", message, help="mend the phases: their counts and passes")


def _check(schedule: Schedule, p: int, m: int, v: int, every: tuple[Order, ...]) -> None:
    """Every pass once, on its own device, W after B after F. What one device waits for from others is seen when they run."""
    problems = Problems()
    wanted = {(microbatch, stage) for microbatch in range(m) for stage in range(schedule.depth(p, v))}
    ran: set[tuple[str, int, int]] = set()
    for d, order in enumerate(every):
        for each in (pass_ for slot in order for pass_ in slot):
            place = (each.microbatch, each.stage)
            if place not in wanted or schedule.device(each.stage, each.microbatch, p, m) != d:
                problems.add("PP112", f"`{schedule.name}`: device {d} runs {each}, which is not its own", help="mend the phases")
            for part in each.kind.value:
                if (part, *place) in ran:
                    problems.add("PP112", f"`{schedule.name}`: device {d} runs {each} a second time", help="mend the phases")
                if part != "F" and ({"B": "F", "W": "B"}[part], *place) not in ran:
                    problems.add("PP112", f"`{schedule.name}`: device {d} runs {each} too early", help="W comes after B, and B after F")
                ran.add((part, *place))
    missing = [f"{part} of micro-batch {i}, stage {s}" for part in "FBW" for i, s in sorted(wanted) if (part, i, s) not in ran]
    if missing:
        shown = f"`{schedule.name}` with p = {p}, m = {m}, v = {v}: {missing[0]} is not run by any device"
        problems.add("PP112", shown, help="mend the phases", notes=[f"{len(missing)} passes are missing"])
    problems.raise_if_any()
