"""Orders that are searched for under a limit of memory: the heuristic of Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 3.1.

Devices run as many forwards as fit until their first gradient comes, and then one forward and one backward in turn. A weight gradient is
run where a device would wait as long, where it would become the one that has waited longest, and where memory is full. Two things are open,
and each way is tried: whether a device that begins runs one forward more than ends before its first gradient is there, and whether a device
that is ahead leaves a forward out where nobody waits for it.

What is found is an order of passes like any other: it is checked, and run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import lcm

from placeproof.core.diagnostics import refuse
from placeproof.schedules.expression import Number
from placeproof.schedules.schedule import PassKind, Schedule, Search


def searched(schedule: Schedule, p: int, m: int) -> tuple[tuple[PassKind, ...], ...]:
    """The kinds of passes that each of p devices runs, one after the other; those of a kind are of micro-batches in turn.

    Of all that is tried, the order in which the device that takes longest from its first pass to its last takes least. Raises InputError
    (PP112) where the limit leaves no room for one micro-batch, or is no number.
    """
    assert schedule.search is not None
    task = _Task.of(schedule, schedule.search, p, m)
    tried = [_Attempt(task, p, m, late=late, ahead=ahead) for late, ahead in product((False, True), repeat=2)]
    for attempt in tried:
        attempt.run()
    best = min(tried, key=lambda attempt: max(device.clock - device.began for device in attempt.devices))
    return tuple(tuple(device.order) for device in best.devices)


@dataclass(frozen=True, slots=True)
class _Task:
    """What a search is for, in whole units: how long passes last, and a message; what is kept until B and until W; and the limits."""

    last: dict[PassKind, int]
    send: int
    kept: int
    late: int
    most: tuple[int, ...]

    @staticmethod
    def of(schedule: Schedule, search: Search, p: int, m: int) -> _Task:
        """That of a search. Where W needs more than F kept, room for it is taken from the beginning."""
        profile = search.profile
        forward, backward, weight, send = _whole((profile.forward, profile.backward, profile.weight, profile.send))
        values = {"p": p, "m": m, "v": 1, "M_B": profile.kept, "M_W": profile.late}
        limits = [search.most.value({**values, "d": d}) for d in range(p)]
        kept, late, *most = _whole((max(profile.kept, profile.late), profile.late, *limits))
        if min(most) < kept:
            message = f"`{schedule.name}` with p = {p}, m = {m}: a limit of {search.most.text} leaves no room for one micro-batch"
            sizes = f"M_B = {float(profile.kept):.6g}, M_W = {float(profile.late):.6g}"
            refuse("PP112", message, help=f"a limit of at least {float(max(profile.kept, profile.late)):.6g}: {sizes}")
        return _Task({PassKind.F: forward, PassKind.B: backward, PassKind.W: weight}, send, kept, late, tuple(most))


def _whole(numbers: Sequence[Number]) -> list[int]:
    unit = lcm(*(Fraction(n).denominator for n in numbers))
    return [int(n * unit) for n in numbers]


@dataclass(slots=True)
class _Device:
    """A device while its order is found: what it has run, when passes of each kind ended, how long it has waited, and what it keeps."""

    order: list[PassKind] = field(default_factory=list)
    ended: dict[PassKind, list[int]] = field(default_factory=lambda: {PassKind.F: [], PassKind.B: [], PassKind.W: []})
    began: int = 0
    clock: int = 0
    waited: int = 0
    kept: int = 0

    @property
    def forwards(self) -> int:
        return len(self.ended[PassKind.F])

    @property
    def put_off(self) -> int:
        """Weight gradients that can be run."""
        return len(self.ended[PassKind.B]) - len(self.ended[PassKind.W])


class _Attempt:
    """One order of m micro-batches on p devices. ``late``, ``ahead``: what is open, as the module says."""

    def __init__(self, task: _Task, p: int, m: int, *, late: bool, ahead: bool) -> None:
        self.task, self.m, self.late, self.ahead = task, m, late, ahead
        self.devices = [_Device() for _ in range(p)]
        self.longest = 0  # that a device has waited

    def run(self) -> None:
        """Find the order."""
        count = len(self.devices)
        for d, forwards in enumerate(self._first_forwards()):
            for _ in range(forwards):
                self._pass(d, PassKind.F)
        for i in range(self.m):
            if i:
                for d in range(count):
                    self._forward(d, i)
            for d in reversed(range(count)):
                self._fill(d, PassKind.B)
                self._pass(d, PassKind.B)
        for d, device in enumerate(self.devices):
            while device.put_off:
                self._pass(d, PassKind.W)

    def _first_forwards(self) -> list[int]:
        """How many forwards each device runs before its first backward: as many as end, or begin, before that can run, and as fit."""
        last, send = self.task.last, self.task.send
        counts, gradient = [1] * len(self.devices), 0
        for d in reversed(range(len(self.devices))):
            forward = last[PassKind.F]
            clock = d * (forward + send) + forward
            while counts[d] < self.m and (counts[d] + 1) * self.task.kept <= self.task.most[d]:
                if (clock if self.late else clock + forward - 1) >= gradient:
                    break
                counts[d], clock = counts[d] + 1, clock + forward
            gradient = max(clock, gradient) + last[PassKind.B] + send
        for d in range(1, len(counts)):
            counts[d] = max(1, min(counts[d], self._most_behind(counts[d - 1])))
        return counts

    def _most_behind(self, forwards: int) -> int:
        """The most forwards that a device may have run when the one before it has run so many: one less, until there are no more."""
        return forwards - (forwards < self.m)

    def _forward(self, d: int, i: int) -> None:
        """A forward before backward i, unless the device has run all, may not overtake, has no room, or leaves it out."""
        device = self.devices[d]
        if device.forwards == self.m:
            return
        needed = device.forwards == i  # of the micro-batch whose backward comes next
        if not needed and d and device.forwards >= self._most_behind(self.devices[d - 1].forwards):
            return
        if not needed and self.ahead and self._can_wait(d):
            return
        while device.kept + self.task.kept > self.task.most[d] and device.put_off:
            self._pass(d, PassKind.W)
        if device.kept + self.task.kept <= self.task.most[d]:
            self._fill(d, PassKind.F)
            self._pass(d, PassKind.F)

    def _can_wait(self, d: int) -> bool:
        """Whether a device that is ahead by more than one forward may leave one out: if that would end behind its next gradient, and
        without it no device waits longer than one does already."""
        device, last = self.devices[d], self.task.last
        if d + 1 == len(self.devices) or device.forwards - self.devices[d + 1].forwards <= 1:
            return False
        gradient = self.devices[d + 1].clock + last[PassKind.F] + last[PassKind.B] + self.task.send
        over = device.kept + self.task.kept - self.task.most[d]
        freeing = min(device.put_off, -(-over // self.task.late)) if over > 0 and self.task.late else 0
        ends = device.clock + freeing * last[PassKind.W] + last[PassKind.F]
        return ends > gradient and device.waited + gradient - device.clock <= self.longest

    def _fill(self, d: int, kind: PassKind) -> None:
        """Weight gradients while a device waits for what its next pass of a kind needs."""
        device, ready, weight = self.devices[d], self._ready(d, kind), self.task.last[PassKind.W]
        while device.put_off and device.clock + weight <= ready:
            self._pass(d, PassKind.W)
        if device.put_off and device.clock < ready and device.waited + ready - device.clock > self.longest:
            self._pass(d, PassKind.W)

    def _ready(self, d: int, kind: PassKind) -> int:
        """When there is what the next pass of a kind needs from another device."""
        sender = {PassKind.F: d - 1, PassKind.B: d + 1}.get(kind, -1)
        if not 0 <= sender < len(self.devices):
            return 0
        return self.devices[sender].ended[kind][len(self.devices[d].ended[kind])] + self.task.send

    def _pass(self, d: int, kind: PassKind) -> None:
        device = self.devices[d]
        start = max(device.clock, self._ready(d, kind))
        if device.order:
            device.waited += start - device.clock
            self.longest = max(self.longest, device.waited)
        else:
            device.began = start
        device.clock = start + self.task.last[kind]
        device.ended[kind].append(device.clock)
        device.order.append(kind)
        kept, late = self.task.kept, self.task.late
        device.kept += {PassKind.F: kept, PassKind.B: late - kept}.get(kind, -late)
