"""A discrete-event simulation of a schedule: when each pass begins and ends, exactly, or who waits for whom for ever.

A device runs its slots in their order, each as soon as its inputs are there. A forward needs the forward of the stage before, a B that of
the stage behind, on the last stage its own forward. A result that goes to another device arrives ``send`` after the pass has ended; the
sender goes on at once, and links are never full. Two passes that overlap begin when both have their inputs, and end together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import NamedTuple, TypeAlias

from placeproof.core.diagnostics import Problems, refuse
from placeproof.schedules.order import Pass, Slot, slots
from placeproof.schedules.schedule import PassKind, Schedule
from placeproof.schedules.timetable import Tick, Timetable

Exact: TypeAlias = int | float | Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long the passes of one stage take, in any one unit; a float counts as the binary fraction that it is.

    ``backward``: B, the gradient of the input alone. ``weight``: W. A full backward takes both. ``send``: from the end of a pass until its
    result is on another device. ``overlapped``: a forward and a full backward that overlap; None for as long as one after the other.
    """

    forward: Exact
    backward: Exact
    weight: Exact = 0
    send: Exact = 0
    overlapped: Exact | None = None

    def fractions(self) -> tuple[Fraction, ...]:
        """F, B, W, send, and the overlapped pair. Raises InputError (PP202) for a time that is negative or not finite."""
        problems = Problems()
        single = [_time(name, getattr(self, name), problems) for name in ("forward", "backward", "weight", "send")]
        pair = sum(single[:3], Fraction(0)) if self.overlapped is None else _time("overlapped", self.overlapped, problems)
        problems.raise_if_any()
        return (*single, pair)


def _time(name: str, value: Exact, problems: Problems) -> Fraction:
    try:
        exact = Fraction(-1 if isinstance(value, bool) else value)
    except (ValueError, OverflowError, TypeError):
        exact = Fraction(-1)
    if exact < 0:
        problems.add("PP202", f"{name} = {value!r} is no time", help="give a number that is not negative: 3 or Fraction(3, 2)")
    return exact


#: All passes take one unit of time, and messages none.
UNIT = Times(forward=1, backward=1, weight=1)


def simulate(schedule: Schedule, *, p: int, m: int, v: int | None = None, times: Times | Sequence[Times] = UNIT) -> Timetable:
    """A step of m micro-batches on p devices with v chunks each.

    ``times``: of all stages, or of each. Raises InputError: PP202 for counts or times that cannot be, PP112 for phases that give no order,
    PP308 if devices wait for one another for ever.
    """
    chunks = schedule.counts(p, m, v)
    depth = schedule.depth(p, chunks)
    each = [times] * depth if isinstance(times, Times) else list(times)
    if len(each) != depth:
        refuse("PP202", f"times of {len(each)} stages, and the model has {depth}", help="give one `Times`, or one for each stage")
    durations, unit = _whole(each)
    ticks = _run(schedule, p, m, chunks, durations)
    return Timetable(schedule=schedule, p=p, m=m, v=chunks, unit=unit, ticks=ticks)


class _Lasts(NamedTuple):
    """How long the slots of one stage last, in whole units: by the kind of a single pass, an overlapping pair, None for as long as its
    passes one after the other, and a message."""

    single: dict[PassKind, int]
    pair: int | None
    send: int


def _whole(given: Sequence[Times]) -> tuple[list[_Lasts], int]:
    """The times as whole numbers, and how many of their unit make one: integers are added much faster than fractions."""
    exact = [times_of.fractions() for times_of in given]
    unit = lcm(*(part.denominator for row in exact for part in row))
    durations = []
    for times_of, row in zip(given, exact, strict=True):
        f, b, w, send, pair = (int(part * unit) for part in row)
        single = {PassKind.F: f, PassKind.B: b, PassKind.W: w, PassKind.BW: b + w}
        durations.append(_Lasts(single, None if times_of.overlapped is None else pair, send))
    return durations, unit


def _lasting(slot: Slot, lasts: Sequence[_Lasts]) -> int:
    """How long a slot lasts. Where the stages of two passes that overlap say it otherwise, the longer one counts."""
    if len(slot) == 1:
        return lasts[slot[0].stage].single[slot[0].kind]
    pairs = [pair for each in slot if (pair := lasts[each.stage].pair) is not None]
    return max(pairs) if len(pairs) == len(slot) else sum(lasts[each.stage].single[each.kind] for each in slot)


class Job(NamedTuple):
    """A slot, with the numbers of the results that it needs and makes. Beside a need: the stage that sends it, or -1 if none does."""

    slot: Slot
    needs: tuple[tuple[int, int], ...]
    makes: tuple[int, ...]


@lru_cache(maxsize=64)
def jobs_of(schedule: Schedule, p: int, m: int, v: int) -> tuple[tuple[Job, ...], ...]:
    """What each device has to do, in its order. Results are numbered: forwards first, then gradients, by micro-batch and stage."""
    depth = schedule.depth(p, v)
    devices = []
    for d, order in enumerate(slots(schedule, p, m, v)):
        jobs = []
        for slot in order:
            needs = [need for pass_ in slot if (need := _need(pass_, depth)) is not None]
            sent = [(need, schedule.device(need.stage, need.microbatch, p, m) != d) for need in needs]
            numbered = tuple((_number(need, m, depth), need.stage if crosses else -1) for need, crosses in sent)
            makes = tuple(_number(pass_, m, depth) for pass_ in slot if pass_.kind is not PassKind.W)
            jobs.append(Job(slot, numbered, makes))
        devices.append(tuple(jobs))
    return tuple(devices)


def _need(pass_: Pass, depth: int) -> Pass | None:
    """What a pass needs from another one; what its own device has run before is checked with the order."""
    if pass_.kind is PassKind.F:
        return Pass(PassKind.F, pass_.microbatch, pass_.stage - 1) if pass_.stage else None
    if pass_.kind is PassKind.W or pass_.stage == depth - 1:
        return None
    return Pass(PassKind.B, pass_.microbatch, pass_.stage + 1)


def _number(pass_: Pass, m: int, depth: int) -> int:
    return ((pass_.kind is not PassKind.F) * m + pass_.microbatch) * depth + pass_.stage


def _run(schedule: Schedule, p: int, m: int, v: int, lasts: list[_Lasts]) -> tuple[tuple[Tick, ...], ...]:
    """Each device runs until it has to wait; whoever makes what it waits for wakes it."""
    jobs = jobs_of(schedule, p, m, v)
    ended = [-1] * (2 * m * len(lasts))
    waiting: dict[int, int] = {}
    history: list[list[Tick]] = [[] for _ in jobs]
    awake = list(range(p))
    while awake:
        d = awake.pop()
        ticks, own = history[d], jobs[d]
        while len(ticks) < len(own):
            slot, needs, makes = own[len(ticks)]
            start = ticks[-1].end if ticks else 0
            missing = next((need for need, _ in needs if ended[need] < 0), None)
            if missing is not None:
                waiting[missing] = d
                break
            for need, sender in needs:
                start = max(start, ended[need] + (lasts[sender].send if sender >= 0 else 0))
            end = start + _lasting(slot, lasts)
            ticks.append(Tick(slot, start, end))
            for made in makes:
                ended[made] = end
                if made in waiting:
                    awake.append(waiting.pop(made))
    if waiting:
        _stuck(schedule, p, m, jobs, history)
    return tuple(map(tuple, history))


def _stuck(schedule: Schedule, p: int, m: int, jobs: Sequence[Sequence[Job]], history: list[list[Tick]]) -> None:
    """Say who waits for whom. Raises InputError (PP308)."""
    notes = []
    for d, (own, ran) in enumerate(zip(jobs, history, strict=True)):
        if len(ran) < len(own):
            slot = own[len(ran)].slot
            needs = [need for pass_ in slot if (need := _need(pass_, len(own))) is not None]
            others = sorted({schedule.device(need.stage, need.microbatch, p, m) for need in needs})
            notes.append(f"device {d} waits with {' and '.join(map(str, slot))} for device {' and '.join(map(str, others))}")
    message = f"`{schedule.name}` with p = {p}, m = {m}: the devices wait for one another for ever"
    refuse("PP308", message, help="change the order of one of these passes", notes=notes)
