"""What came of a simulation: when each device runs what, how long it waits, and what it keeps meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, TypeAlias

from placeproof.schedules.expression import Number
from placeproof.schedules.order import Order, Slot
from placeproof.schedules.schedule import PassKind, Schedule


class Tick(NamedTuple):
    """A slot with its beginning and end in whole units of a timetable."""

    slot: Slot
    start: int
    end: int


class TimedSlot(NamedTuple):
    """A slot with the time at which it began and ended, from the beginning of the step."""

    slot: Slot
    start: Fraction
    end: Fraction


class Bubble(NamedTuple):
    """Time for which a device computes nothing: itself, as a share of the time for which it computes, and as one of both together.

    Papers print either share: Narayanan et al. 2021 the first, Huang et al. 2019 the second.
    """

    time: Fraction
    of_ideal: Fraction
    of_total: Fraction


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """A step of m micro-batches on p devices with v chunks each.

    ``ticks``: what each device ran, in its order; ``unit`` of them are one unit of time.
    """

    schedule: Schedule
    p: int
    m: int
    v: int
    unit: int
    ticks: tuple[tuple[Tick, ...], ...]

    @cached_property
    def runs(self) -> tuple[tuple[TimedSlot, ...], ...]:
        """What each device ran, in its order, with exact times."""
        unit = self.unit
        return tuple(tuple(TimedSlot(t.slot, Fraction(t.start, unit), Fraction(t.end, unit)) for t in device) for device in self.ticks)

    @property
    def step(self) -> Fraction:
        """When the last device ends; the first begins at 0."""
        return Fraction(self._end, self.unit)

    @property
    def _end(self) -> int:
        return max(device[-1].end for device in self.ticks)

    def busy(self, d: int) -> Fraction:
        """The time for which a device computes."""
        return Fraction(self._busy(d), self.unit)

    def _busy(self, d: int) -> int:
        return sum(tick.end - tick.start for tick in self.ticks[d])

    def idle(self, d: int) -> Fraction:
        """The time for which a device computes nothing, from the beginning of the step to its end."""
        return Fraction(self._end - self._busy(d), self.unit)

    def wait(self, d: int) -> Fraction:
        """The time for which a device computes nothing between the beginning of its first pass and the end of its last."""
        return Fraction(self.ticks[d][-1].end - self.ticks[d][0].start - self._busy(d), self.unit)

    def bubble(self) -> Bubble:
        """Of the device that idles longest in the step."""
        idle, d = max((self.idle(d), -d) for d in range(self.p))
        return shares(idle, self.busy(-d))

    def held(self, d: int, M_B: Number = 1, M_W: Number = 1) -> tuple[tuple[Fraction, Fraction], ...]:  # noqa: N803
        """What a device keeps of activations, and from when on. A forward allocates M_B as it begins; the end of its B leaves M_W of it,
        and that of its W nothing."""
        amounts = kept_in_turn(tuple(run.slot for run in self.runs[d]), Fraction(M_B), M_W)
        moments = (moment for run in self.runs[d] for moment in (run.start, run.end))
        return tuple((moment, Fraction(amount)) for moment, amount in zip(moments, amounts, strict=True))

    def messages(self, d: int) -> int:
        """How many activations and gradients a device sends to others in a step."""
        sent, depth = 0, self.schedule.depth(self.p, self.v)
        for each in (pass_ for tick in self.ticks[d] for pass_ in tick.slot):
            to = {PassKind.F: each.stage + 1, PassKind.W: -1}.get(each.kind, each.stage - 1)
            sent += 0 <= to < depth and self.schedule.device(to, each.microbatch, self.p, self.m) != d
        return sent


def shares(idle: Fraction, busy: Fraction) -> Bubble:
    """A bubble with its shares, which are 0 where nothing takes time."""
    return Bubble(idle, idle / busy if busy else Fraction(0), idle / (idle + busy) if idle + busy else Fraction(0))


def kept_at_most(order: Order, M_B: Number = 1, M_W: Number = 1) -> Fraction:  # noqa: N803
    """The most that a device keeps of its chunks' activations at a time, which follows from its order alone.

    M_B: what a chunk keeps from F until B, for one micro-batch; M_W: from B until W.
    """
    return Fraction(max(kept_in_turn(order, M_B, M_W), default=0))


def kept_in_turn(order: Order, m_b: Number, m_w: Number) -> Iterator[Number]:
    """What a device keeps as each slot begins, and as it ends."""
    kept: Number = 0
    change = {PassKind.F: 0, PassKind.B: m_w - m_b, PassKind.W: -m_w, PassKind.BW: -m_b}
    for slot in order:
        kept += sum(pass_.kind is PassKind.F for pass_ in slot) * m_b
        yield kept
        kept += sum(change[pass_.kind] for pass_ in slot)
        yield kept


#: Of each stage, the micro-batches of which a device keeps what B needs, and those of which it keeps only what W needs.
Kept: TypeAlias = Mapping[int, tuple[int, int]]


def kept_together(order: Order) -> tuple[Kept, ...]:
    """What a device keeps at once, at each moment at which another one does not keep as much of everything.

    It follows from the device's order alone. Stages need not be alike, so that it depends on their sizes which moment is the peak.
    """
    stages = sorted({one.stage for slot in order for one in slot})
    kept = {stage: [0, 0] for stage in stages}
    seen: dict[tuple[tuple[int, int], ...], None] = {}
    for slot in order:
        for one in slot:
            kept[one.stage][0] += one.kind is PassKind.F
        seen.setdefault(tuple((b, w) for b, w in kept.values()))
        for one in slot:
            kept[one.stage][0] -= one.kind in (PassKind.B, PassKind.BW)
            kept[one.stage][1] += {PassKind.B: 1, PassKind.W: -1}.get(one.kind, 0)
        seen.setdefault(tuple((b, w) for b, w in kept.values()))
    most = [one for one in seen if not any(other != one and _covers(other, one) for other in seen)]
    return tuple(dict(zip(stages, one, strict=True)) for one in most)


def _covers(more: Iterable[tuple[int, int]], less: Iterable[tuple[int, int]]) -> bool:
    return all(a >= c and b >= d for (a, b), (c, d) in zip(more, less, strict=True))
