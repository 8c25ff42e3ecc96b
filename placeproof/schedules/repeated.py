"""How long a step of very many micro-batches takes, where devices repeat what they do in its middle: exact, without running all of it.

A step of few micro-batches is simulated, and cut twice in the phase that more of them would make longer. If all that is waited for, and
every device, is later at the second cut by one and the same time, then whatever follows the first cut can follow the second one as well,
for later micro-batches, and takes as long. So a step with more of these blocks takes that time longer for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from placeproof.core.diagnostics import InputError
from placeproof.schedules.order import DeviceOrder, Pass
from placeproof.schedules.schedule import PassKind, Schedule, StageLayout
from placeproof.schedules.simulation import Times, jobs_of, simulate
from placeproof.schedules.timetable import Tick, Timetable

#: Passes of the steps that are simulated, from few to many: it takes long until devices that compute almost equally long repeat themselves.
PASSES = (2_000, 8_000, 32_000)

#: How many of its slots each device has run at a cut.
Cut: TypeAlias = tuple[int, ...]


def step_of_many(schedule: Schedule, *, p: int, m: int, v: int | None, times: Times | Sequence[Times]) -> Fraction | None:
    """How long a step takes, as :func:`placeproof.schedules.simulate` says; None where devices do not repeat themselves, or not soon.

    Raises InputError (PP202) for counts that cannot be.
    """
    chunks = schedule.counts(p, m, v)
    turns = schedule.turn is None and chunks > 1 and any(t.chunk is None and t.kind is not PassKind.W for t in schedule.tokens)
    if turns or schedule.layout is StageLayout.BOTH:  # the order of its passes is another one for each m
        return None
    each = 1 if schedule.turn is None else DeviceOrder(schedule, p, m, chunks, 0).counts()[1]
    for passes in PASSES:
        few = m - max(0, m - passes // (p * chunks)) // each * each
        with suppress(InputError):  # what is wrong with fewer micro-batches need not be wrong with m
            if few < m and (found := _extended(schedule, p, m, chunks, times, few, each)) is not None:
                return found
    return None


def _extended(schedule: Schedule, p: int, m: int, v: int, times: Times | Sequence[Times], few: int, each: int) -> Fraction | None:
    """The time of m micro-batches, from that of few. ``each``: so many micro-batches are the least that a block can have."""
    if _middles(schedule, p, few, v, m, each) is None:
        return None
    table = simulate(schedule, p=p, m=few, v=v, times=times)
    for count in range(1, 2 * p + 1):
        block = count * each
        fewer = few - (few - m) % block
        if fewer <= block or _later(table, m - (m - few) % block, block) is None:
            continue
        again = simulate(schedule, p=p, m=fewer, v=v, times=times)
        if (later := _later(again, m, block)) is not None:
            return again.step + Fraction(later, again.unit) * ((m - fewer) // block)
    return None


def _later(table: Timetable, m: int, block: int) -> int | None:
    """By how many units each further block of micro-batches makes a step longer, up to m of them; None where that is not shown."""
    known = _middles(table.schedule, table.p, table.m, table.v, m, block)
    if known is None:
        return None
    shortest = min(one.repeated - one.more for one in known)
    for half in (0, 1, 2):  # as far from the end of the phase, between, and as far from its beginning
        skipped = ((one.repeated - one.more - shortest) * half // 2 for one in known)
        ends = tuple(one.end - count * one.slots for one, count in zip(known, skipped, strict=True))
        begins = tuple(end - one.more * one.slots for one, end in zip(known, ends, strict=True))
        late = _late(table, begins, ends) if min(begins) > 0 else set()
        if len(late) == 1 and _alike(table, begins, ends, block) and _waits(table, begins, ends, block, *late):
            return late.pop()
    return None


def _late(table: Timetable, begins: Cut, ends: Cut) -> set[int]:
    """By how many units devices are later at the second cut."""
    return {ticks[end - 1].end - ticks[begin - 1].end for ticks, begin, end in zip(table.ticks, begins, ends, strict=True)}


@dataclass(frozen=True, slots=True)
class _Middle:
    """The phase of a device that more micro-batches make longer: the ``slots`` of one repetition, how often it is ``repeated``, how many
    ``more`` times for a block, and the slot behind it."""

    slots: int
    repeated: int
    more: int
    end: int


def _middles(schedule: Schedule, p: int, few: int, v: int, m: int, block: int) -> list[_Middle] | None:
    """Those of all devices, with few micro-batches; None where a device has none."""
    middles = [_middle(DeviceOrder(schedule, p, few, v, d), m, block) for d in range(p)]
    known = [middle for middle in middles if middle is not None]
    return known if len(known) == p else None


def _middle(few: DeviceOrder, m: int, block: int) -> _Middle | None:
    """That of a device's order; None if not exactly one phase grows, and in step with the micro-batches up to m."""
    counted = [(n, DeviceOrder(few.schedule, few.p, n, few.v, few.d).counts()) for n in (few.m, few.m + block, m)]
    if any(made_for != n for n, (made_for, _, _) in counted):
        return None
    little, more, much = (repeated for _, (_, _, repeated) in counted)
    growth = [b - a for a, b in zip(little, more, strict=True)]
    grown = [k for k, by in enumerate(growth) if by]
    blocks = (m - few.m) // block
    if len(grown) != 1 or any(c - a != by * blocks for a, c, by in zip(little, much, growth, strict=True)):
        return None
    (at,) = grown
    lengths = [len(phase.run) for phase in few.schedule.phases]
    end = sum(times * length for times, length in zip(little[: at + 1], lengths, strict=False))
    return _Middle(lengths[at], little[at], growth[at], end) if 0 < growth[at] <= little[at] else None


def _alike(table: Timetable, begins: Cut, ends: Cut, block: int) -> bool:
    """Whether each device has run as many passes of each kind and stage more at the second cut as a block has micro-batches, and has put
    off the same weight gradients, of later micro-batches: then it goes on in the same way."""
    for ticks, begin, end in zip(table.ticks, begins, ends, strict=True):
        ran = Counter((each.kind is PassKind.F, each.stage) for each in _passes(ticks[begin:end]) if each.kind is not PassKind.W)
        stages = {each.stage for each in _passes(ticks)}
        if ran != {(forward, stage): block for forward in (True, False) for stage in stages}:
            return False
        if [(n + block, stage) for n, stage in _put_off(ticks[:begin])] != _put_off(ticks[:end]):
            return False
    return True


def _passes(ticks: Sequence[Tick]) -> Iterator[Pass]:
    return (each for tick in ticks for each in tick.slot)


def _put_off(ticks: Sequence[Tick]) -> list[tuple[int, int]]:
    """The micro-batches and stages whose weight gradients wait, the oldest first."""
    waiting: dict[tuple[int, int], None] = {}
    for each in _passes(ticks):
        if each.kind is PassKind.B:
            waiting[each.microbatch, each.stage] = None
        elif each.kind is PassKind.W:
            del waiting[each.microbatch, each.stage]
    return list(waiting)


def _waits(table: Timetable, begins: Cut, ends: Cut, block: int, late: int) -> bool:
    """Whether all that was made before the first cut and is waited for behind it has its like before the second one, so many units later;
    and nothing before a cut waits for what is behind it."""
    jobs = jobs_of(table.schedule, table.p, table.m, table.v)
    depth = table.schedule.depth(table.p, table.v)
    made = {number: (d, i) for d, own in enumerate(jobs) for i, job in enumerate(own) for number in job.makes}

    def before(number: int, cut: Cut) -> bool:
        d, i = made[number]
        return i < cut[d]

    def when(number: int) -> int:
        d, i = made[number]
        return table.ticks[d][i].end

    def again(need: int) -> bool:
        like = need + block * depth
        return need // depth % table.m + block < table.m and before(like, ends) and when(like) - when(need) == late

    return all(
        again(need) if i >= begins[d] and before(need, begins) else all(i >= cut[d] or before(need, cut) for cut in (begins, ends))
        for d, own in enumerate(jobs)
        for i, job in enumerate(own)
        for need, _ in job.needs
    )
