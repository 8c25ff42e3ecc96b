"""Layers of a model shared out over the stages of a pipeline so that a step is as short as can be: exactly, in whole numbers.

A step's time is the longest path through its passes: what a device runs, it runs in its order, and a pass waits for those of other
stages. Each path is a bound from below, also where it is not the longest one. The paths that are taken here go to a stage, stay there, and
go back to the first one; on the way they may go on to the last stage and come back, several times. What they take depends on the stage, and
on the sum of what the stages behind it take. So the least bound of all assignments follows stage by stage, from the last one on: of those
that have as many layers behind, what counts is that sum, the bound, and what comes once a step, and all is kept that nothing beats in
these.

Assignments are then tried by their bounds, the least first, each exactly, until no other one has a bound below the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, TypeAlias

from placeproof.schedules import Pass, PassKind, Schedule, orders

#: Assignments that are tried exactly, at most: where bounds leave more, the answer has a gap.
MOST_TRIED = 400


class Share(NamedTuple):
    """What a stage may have: so many layers, the first ``again`` of which are computed again; its passes of one micro-batch, gradients by
    weights apart; and what comes once a step, all in any one unit."""

    layers: int
    again: int
    forward: int
    backward: int
    weight: int
    tail: int


#: What stages may have: of a stage, behind so many layers of the model, so many of them; none where that cannot be.
Shares: TypeAlias = Callable[[int, int, int], Sequence[Share]]


class Bound(NamedTuple):
    """Of stages from one to the last: what one micro-batch takes to go through them and back, without messages; a step, at least, from its
    first pass of the first of them; and the most that comes once a step."""

    through: int
    passes: int
    tail: int


@dataclass(frozen=True, slots=True)
class Path:
    """A path through a stage: how often it goes on to the last stage and back, and how many passes of each kind, and messages, it has
    besides."""

    rounds: int
    forward: int
    backward: int
    weight: int
    messages: int

    def takes(self, share: Share, behind: int, send: int) -> int:
        """With the stages ``behind``."""
        own = self.forward * share.forward + self.backward * share.backward + self.weight * share.weight
        return own + self.rounds * behind + self.messages * send


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A schedule of devices with one stage each, of m micro-batches. ``send``: a message, in the unit of shares."""

    schedule: Schedule
    devices: int
    batches: int
    send: int

    @cached_property
    def paths(self) -> tuple[tuple[Path, ...], ...]:
        """Those through each stage."""
        return _all_paths(self.schedule, self.devices, self.batches)

    @cached_property
    def full(self) -> bool:
        """Whether a backward goes on to the stage before only when gradients by weights are there, too."""
        return orders(self.schedule, self.devices, self.batches, 1)[0][-1].kind is PassKind.BW

    def back(self, share: Share) -> int:
        """What a micro-batch takes to come back through a stage."""
        return share.backward + share.weight * self.full

    def before(self, share: Share, stage: int, bound: Bound) -> Bound:
        """The bound of a stage and those behind it, of which there is one already."""
        both = share.forward + self.back(share)
        passes = max(path.takes(share, bound.through, self.send) for path in self.paths[stage])
        if stage < self.devices - 1:
            passes = max(passes, bound.passes + both + 2 * self.send)
        return Bound(bound.through + both, passes, max(bound.tail, share.tail))


@lru_cache(maxsize=16)
def _all_paths(schedule: Schedule, devices: int, batches: int) -> tuple[tuple[Path, ...], ...]:
    return tuple(_paths(order, devices - 1 - stage) for stage, order in enumerate(orders(schedule, devices, batches, 1)))


def _paths(order: Sequence[Pass], behind: int) -> tuple[Path, ...]:
    """Those through a stage that has so many ``behind`` it, from its first forward to its last backward. ``order``: of its passes."""
    there = {one.microbatch: place for place, one in enumerate(order) if one.kind is PassKind.F}
    back = {one.microbatch: place for place, one in enumerate(order) if one.kind in (PassKind.B, PassKind.BW)}
    every = sorted(there, key=there.__getitem__)
    first, last = every[0], every[-1]
    sets = [[], [first], [last], _in_turn([first, last], there, back), _in_turn(every, there, back), _in_turn(every, there, back, last)]
    if not behind:
        del sets[1:]
    return tuple(dict.fromkeys(_path([one.kind for one in order], own, there, back, behind) for own in sets))


def _in_turn(batches: Iterable[int], there: Mapping[int, int], back: Mapping[int, int], last: int | None = None) -> list[int]:
    """Micro-batches, the first ones first, that can go on to the last stage and come back one after the other; and then a last one."""
    kept: list[int] = []
    for j in batches:
        if (not kept or there[j] > back[kept[-1]]) and (last is None or back[j] < there[last]):
            kept.append(j)
    return kept if last is None else [*kept, last]


def _path(order: Sequence[PassKind], rounds: Sequence[int], there: Mapping[int, int], back: Mapping[int, int], behind: int) -> Path:
    inside = {place for j in rounds for place in range(there[j] + 1, back[j])}
    left = [kind for place, kind in enumerate(order[: max(back.values()) + 1]) if place not in inside]
    full = left.count(PassKind.BW)
    return Path(
        rounds=len(rounds),
        forward=left.count(PassKind.F),
        backward=left.count(PassKind.B) + full,
        weight=left.count(PassKind.W) + full,
        messages=2 * behind * len(rounds),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The best assignment of layers to stages, in the order of the stages. ``seconds``: of its step; ``least``: no assignment takes less,
    both in the unit of shares. ``tried``: how many were worked out exactly."""

    shares: tuple[Share, ...]
    seconds: int
    least: int
    tried: int

    @property
    def optimal(self) -> bool:
        """Whether no assignment is better."""
        return self.least == self.seconds


def assigned(
    pipeline: Pipeline, layers: int, shares: Shares, step: Callable[[Sequence[Share]], int], below: int | None = None
) -> Assigned | int | None:
    """The best assignment. ``step``: how long the passes of one take, exactly. ``below``: of those that take less than that alone; where
    none is found, the least that one takes, None where none is possible."""
    table = _table(pipeline, layers, shares)
    best: tuple[Share, ...] = ()
    seconds, tried, numbers = below, 0, count()
    heap: list[tuple[int, int, int, tuple[Share, ...]]] = []

    def push(prefix: tuple[Share, ...], used: int) -> None:
        if ends := table[len(prefix)].get(layers - used):
            heappush(heap, (min(_seconds(pipeline, prefix, end) for end in ends), -len(prefix), next(numbers), prefix))

    push((), 0)
    if not heap:
        return None
    while heap and (seconds is None or heap[0][0] < seconds) and tried < MOST_TRIED:
        _, _, _, prefix = heappop(heap)
        if len(prefix) == pipeline.devices:
            tried += 1
            exact = step(prefix) + max(share.tail for share in prefix)
            best, seconds = (prefix, exact) if seconds is None or exact < seconds else (best, seconds)
            continue
        used = sum(share.layers for share in prefix)
        for number in range(layers - used + 1):
            for share in shares(len(prefix), used, number):
                push((*prefix, share), used + number)
    least = min([n for n in (seconds, heap[0][0] if heap else None) if n is not None])
    return Assigned(shares=best, seconds=seconds or 0, least=least, tried=tried) if best else least


def _seconds(pipeline: Pipeline, prefix: Sequence[Share], bound: Bound) -> int:
    """What an assignment takes at least, of which the first shares are known, and the others have a bound."""
    for stage in reversed(range(len(prefix))):
        bound = pipeline.before(prefix[stage], stage, bound)
    return bound.passes + bound.tail


def _table(pipeline: Pipeline, layers: int, shares: Shares) -> list[dict[int, tuple[Bound, ...]]]:
    """The bounds that nothing beats, of the stages from each on, by how many layers these have; and of none at all."""
    table: list[dict[int, tuple[Bound, ...]]] = [{0: (Bound(0, 0, 0),)}]
    for stage in reversed(range(pipeline.devices)):
        behind, own = table[0], dict[int, tuple[Bound, ...]]()
        for used in range(layers + 1) if stage else (layers,):
            every = (
                pipeline.before(share, stage, bound)
                for number in range(used + 1)
                for bound in behind.get(used - number, ())
                for share in shares(stage, layers - used, number)
            )
            if kept := tuple(_unbeaten(every)):
                own[used] = kept
        table.insert(0, own)
    return table


def _unbeaten(bounds: Iterable[Bound]) -> Iterator[Bound]:
    kept: list[Bound] = []
    for bound in sorted(set(bounds)):
        if not any(other.passes <= bound.passes and other.tail <= bound.tail for other in kept):
            kept.append(bound)
            yield bound
