"""Single points of a schedule's closed forms, and what its order gives there, by simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache

from placeproof.core.diagnostics import InputError
from placeproof.schedules.expression import Number
from placeproof.schedules.order import slots
from placeproof.schedules.schedule import Schedule
from placeproof.schedules.simulation import Times, simulate
from placeproof.schedules.timetable import Timetable, kept_at_most

#: Times of F, B, W, a message and an overlapping pair with which orders are run.
TIMES = ((1, 1, 1, 0, 3), (2, 3, 1, 0, 5), (3, 1, 2, 0, 5), (1, 2, 4, 0, 6), (4, 5, 3, 1, 10), (2, 2, 1, 3, 5), (1, 2, 1, 0, 6))
#: M_B and M_W with which peaks are taken.
SIZES = ((1, 0), (2, 1), (1, 1), (2, 3), (1, 4))
#: Chunks on a device, where their number is open.
CHUNKS = (1, 2, 3)


def admitted(schedule: Schedule, devices: Iterable[int], batches: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """The devices, micro-batches and chunks among some that a schedule admits."""
    counts = tuple(batches)
    for p in devices:
        for v in CHUNKS if schedule.chunks is None else (schedule.chunks,):
            for m in counts:
                try:
                    schedule.counts(p, m, v)
                except InputError:
                    continue
                yield p, m, v


def points(schedule: Schedule, what: str, p: int, m: int, v: int) -> Iterator[tuple[dict[str, Number], Fraction]]:
    """What a form of a quantity speaks of, at several times or sizes, and what the order gives there. Raises InputError as
    :func:`placeproof.schedules.simulate`."""
    counts: dict[str, Number] = {"p": p, "m": m, "v": v}
    if what == "peak":
        for d, order in enumerate(slots(schedule, p, m, v)):
            for size, later in SIZES:
                yield {**counts, "d": d, "M_B": size, "M_W": later}, kept_at_most(order, size, later)
        return
    for times in TIMES if what != "messages" else TIMES[:1]:
        spent = dict(zip(("T_F", "T_B", "T_W", "T_send", "T_FB"), times, strict=True))
        yield {**counts, **spent}, simulated(schedule, what, p, m, v, times)


def simulated(schedule: Schedule, what: str, p: int, m: int, v: int, times: tuple[int, ...]) -> Fraction:
    """What the order gives for a quantity that is no peak, with such times. Raises InputError as :func:`points`."""
    table = _run(schedule, p, m, v, times)
    devices = range(p)
    if what == "messages":
        return Fraction(sum(table.messages(d) for d in devices))
    if what == "busy":
        return table.busy(max(devices, key=lambda d: (table.idle(d), -d)))
    return max((table.idle if what == "idle" else table.wait)(d) for d in devices)


@lru_cache(maxsize=4096)
def _run(schedule: Schedule, p: int, m: int, v: int, times: tuple[int, ...]) -> Timetable:
    forward, backward, weight, send, pair = times
    spent = Times(forward=forward, backward=backward, weight=weight, send=send, overlapped=pair)
    return simulate(schedule, p=p, m=m, v=v, times=spent)
