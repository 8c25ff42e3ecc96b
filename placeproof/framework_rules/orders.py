"""Orders of a pipeline's work: whether devices can follow them, and how long they wait.

A stage computes each micro-batch forward after the stage before it, and backward after the stage behind it. A device runs its stages'
passes in the order that a schedule writes down; each pass takes one slot. Which order that is changes nothing in what is trained, as
long as it can be followed at all: it decides who waits for how long. Times are slots, messages take none; a whole model's pass has as
many slots as stages.

Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of one micro-batch through one stage."""

    forward: bool
    microbatch: int
    stage: int

    def after(self, stages: int) -> Pass | None:
        """The pass whose result it needs."""
        if self.forward:
            return Pass(True, self.microbatch, self.stage - 1) if self.stage else None
        last = self.stage == stages - 1
        return Pass(True, self.microbatch, self.stage) if last else Pass(False, self.microbatch, self.stage + 1)


@dataclass(frozen=True, slots=True)
class Timetable:
    """What came of an order. ``slots``: how long the step takes; ``idle``: slots in which devices wait, added over the devices.

    Both are infinite where devices wait for one another for ever. ``stages``: of the model; ``devices``: of the pipeline.
    """

    slots: float
    idle: float
    stages: int
    devices: int


Order = Sequence[Pass]


@lru_cache(maxsize=4096)
def one_f_one_b(devices: int, microbatches: int) -> Timetable:
    """1F1B: one stage on a device; after its first forward passes a device alternates, so that few micro-batches are in flight."""
    return _run([_alternating([(i, d) for i in range(microbatches)], devices - d - 1) for d in range(devices)], devices)


@lru_cache(maxsize=4096)
def interleaved(devices: int, microbatches: int, group: int, chunks: int = 2) -> Timetable:
    """Interleaved 1F1B: ``chunks`` stages on a device, each taking ``group`` micro-batches in a row before the next has its turn."""
    return _run(_interleaved(devices, microbatches, group, chunks), devices * chunks)


@lru_cache(maxsize=4096)
def zero_bubble(devices: int, microbatches: int, group: int, chunks: int = 2) -> Timetable:
    """The interleaved order with backward in two parts: weight gradients, which nobody waits for, are computed in slots left idle."""
    return _run(_interleaved(devices, microbatches, group, chunks), devices * chunks, weights=True)


@lru_cache(maxsize=4096)
def v_shaped(devices: int, microbatches: int) -> Timetable:
    """Two stages on a device, the second ones in reverse, so that the first device has the last stage too. Devices run whatever they
    can, backward passes first; weight gradients fill idle slots. Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"."""
    stages = [(d, 2 * devices - 1 - d) for d in range(devices)]
    own = [[Pass(f, i, s) for f in (False, True) for i in range(microbatches) for s in reversed(two)] for two in stages]
    return _run(own, 2 * devices, weights=True, eager=True)


def idle(table: Timetable) -> float:
    """Slots in which devices wait, added over the devices."""
    return table.idle


def share(table: Timetable) -> Fraction:
    """The idle part of all slots of all devices, between 0 and 1; 1 where the step never ends."""
    return Fraction(1) if table.idle == inf else Fraction(int(table.idle), int(table.slots) * table.devices)


def stages_on(table: Timetable) -> int:
    """How many stages a device has in this order."""
    return table.stages // table.devices


def _alternating(forwards: Sequence[tuple[int, int]], first: int, backwards: Sequence[tuple[int, int]] = ()) -> Order:
    """``first`` forward passes, then one forward and one backward in turn, then the rest of the backward passes."""
    ahead = min(first, len(forwards))
    order = [Pass(True, *f) for f in forwards[:ahead]]
    for n, back in enumerate(backwards or forwards):
        order += [Pass(True, *f) for f in forwards[ahead + n : ahead + n + 1]]
        order.append(Pass(False, *back))
    return order


def _interleaved(devices: int, microbatches: int, group: int, chunks: int) -> list[Order]:
    turns = [range(i, min(i + group, microbatches)) for i in range(0, microbatches, group)]
    orders = []
    for d in range(devices):
        forwards = [(i, c * devices + d) for turn in turns for c in range(chunks) for i in turn]
        backwards = [(i, c * devices + d) for turn in turns for c in reversed(range(chunks)) for i in turn]
        orders.append(_alternating(forwards, 2 * (devices - d - 1) + (chunks - 1) * group, backwards))
    return orders


@dataclass(slots=True)
class _Device:
    left: list[Pass]
    weights: int = 0  # weight gradients that could be computed now

    def take(self, ended: dict[Pass, int], now: int, stages: int, eager: bool) -> Pass | None:
        """The next pass of its order, if what it needs has ended; with ``eager`` the first that can run at all."""
        for one in self.left if eager else self.left[:1]:
            needs = one.after(stages)
            if needs is None or ended.get(needs, now) < now:
                self.left.remove(one)
                return one
        return None


def _run(orders: Sequence[Order], stages: int, *, weights: bool = False, eager: bool = False) -> Timetable:
    """Slot by slot. A slot in which nobody has anything to do is the last, or the first of for ever."""
    devices = [_Device(list(order)) for order in orders]
    ended: dict[Pass, int] = {}
    now = idle_slots = 0
    while any(d.left or d.weights for d in devices):
        busy = 0
        for device in devices:
            done = device.take(ended, now, stages, eager)
            if done is not None:
                ended[done] = now
                device.weights += weights and not done.forward
            elif device.weights:
                device.weights -= 1
            else:
                continue
            busy += 1
        if not busy:
            return Timetable(inf, inf, stages, len(devices))
        now, idle_slots = now + 1, idle_slots + len(devices) - busy
    return Timetable(now, idle_slots, stages, len(devices))
