"""Layers shared out over stages, against every way to share them out: each is simulated, and its bound is none above that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, pairwise, product
from random import Random
from typing import NamedTuple

import pytest

from placeproof.planning import partition
from placeproof.planning.partition import Bound, Pipeline, Share, assigned
from placeproof.schedules import Times, load, simulate
from tests.helpers.samples import sample

SCHEDULES = ("1f1b", "zb-h1", "gpipe")


class Small(NamedTuple):
    """A few layers on a few devices. ``kept``: of what a stage keeps, a layer that is computed again keeps a third."""

    pipeline: Pipeline
    layers: int
    passes: tuple[int, int, int]
    ends: tuple[int, int]
    kept: tuple[int, ...]
    tails: tuple[int, ...]

    def shares(self, stage: int, first: int, number: int) -> tuple[Share, ...]:
        """What a stage may have: an end may have no layer."""
        if not number and 0 < stage < self.pipeline.devices - 1:
            return ()
        f, b, w = self.passes
        here = (self.ends[0] if first == 0 and stage == 0 else 0) + (self.ends[1] if stage == self.pipeline.devices - 1 else 0)
        return tuple(
            Share(number, k, number * f + here, number * b + k * f + 2 * here, number * w, max(0, self.tails[stage] + number - 3 * k))
            for k in range(number + 1)
            if 3 * (number - k) + k <= self.kept[stage]
        )

    def step(self, assignment: Sequence[Share]) -> int:
        """How long the passes take."""
        pipeline = self.pipeline
        rows = [Times(forward=s.forward, backward=s.backward, weight=s.weight, send=pipeline.send) for s in assignment]
        return int(simulate(pipeline.schedule, p=pipeline.devices, m=pipeline.batches, v=1, times=rows).step)

    def every(self) -> Iterator[tuple[tuple[Share, ...], int]]:
        """All assignments with the time of a step."""
        for cuts in combinations_with_replacement(range(self.layers + 1), self.pipeline.devices - 1):
            ends = (0, *cuts, self.layers)
            for shares in product(*(self.shares(stage, a, b - a) for stage, (a, b) in enumerate(pairwise(ends)))):
                yield shares, self.step(shares) + max(share.tail for share in shares)


def small(seed: int) -> Small:
    draw = Random(seed)
    devices = draw.choice((2, 2, 3))
    layers = draw.randint(devices, 6 if devices == 2 else 5)
    room = [3 * layers, 3 * layers, draw.randint(1, 2 * layers)]
    return Small(
        pipeline=Pipeline(
            schedule=load(SCHEDULES[seed % 3]), devices=devices, batches=draw.randint(devices, 3 * devices), send=draw.choice((0, 0, 1, 7))
        ),
        layers=layers,
        passes=(draw.randint(5, 20), draw.randint(5, 40), draw.randint(0, 20)),
        ends=(draw.randint(0, 30), draw.randint(0, 60)),
        kept=tuple(draw.choice(room) for _ in range(devices)),
        tails=tuple(draw.randint(0, 20) for _ in range(devices)),
    )


def problems(seed: int) -> list[str]:
    """What is wrong with the answer of a seed."""
    one = small(seed)
    every = list(one.every())
    best = min((seconds for _, seconds in every), default=None)
    said = [
        f"{[tuple(s[:2]) for s in shares]} takes {seconds}, and is said to take {bound} at least"
        for shares, seconds in every
        if (bound := partition._seconds(one.pipeline, shares, Bound(0, 0, 0))) > seconds
    ]
    found = assigned(one.pipeline, one.layers, one.shares, one.step)
    if not isinstance(found, partition.Assigned):
        return said + ([f"nothing is found, and {best} is best"] if best is not None or found is not None else [])
    again = one.step(found.shares) + max(share.tail for share in found.shares)
    if not found.seconds == again == best or not found.optimal or sum(s.layers for s in found.shares) != one.layers:
        said.append(f"{found.seconds} is found, {again} simulated, {best} is best")
    better = assigned(one.pipeline, one.layers, one.shares, one.step, below=best)
    return said + ([] if better == best else [f"{better} is said to be better than the best"])


@pytest.mark.parametrize("seed", sample(range(240), lambda seed: {seed % 3}))
def test_the_best_of_all_assignments_is_found(seed: int) -> None:
    assert problems(seed) == []


@pytest.mark.parametrize("fault", ["higher", "forgotten"])
def test_what_is_wrong_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are too high, and some that are forgotten."""
    before, unbeaten = Pipeline.before, partition._unbeaten
    if fault == "higher":
        monkeypatch.setattr(Pipeline, "before", lambda *args: before(*args)._replace(passes=before(*args).passes * 11 // 10))
    else:
        monkeypatch.setattr(partition, "_unbeaten", lambda bounds: list(unbeaten(bounds))[1:])
    assert any(problems(seed) for seed in range(6))


def test_a_gap_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no more may be tried, no assignment takes less than what is said."""
    seed = next(n for n in range(2, 240, 3) if len(list(small(n).every())) > 60)
    one = small(seed)
    best = min(seconds for _, seconds in one.every())
    monkeypatch.setattr(partition, "MOST_TRIED", 1)
    found = assigned(one.pipeline, one.layers, one.shares, one.step)
    assert isinstance(found, partition.Assigned)
    assert found.tried == 1
    assert found.least <= best <= found.seconds


@pytest.mark.parametrize("send", [0, 5])
def test_messages_and_rounds_are_in_the_bounds(send: int) -> None:
    """Of stages that are alike the bound is what the schedule takes: with messages, a micro-batch goes to the end and comes back again and
    again, here 4 times."""
    pipeline = Pipeline(schedule=load("1f1b"), devices=4, batches=13, send=send)
    rows = Times(forward=10, backward=13, weight=7, send=send)
    exact = simulate(pipeline.schedule, p=4, m=13, v=1, times=rows).step
    assert partition._seconds(pipeline, [Share(1, 0, 10, 13, 7, 0)] * 4, Bound(0, 0, 0)) == exact == 16 * 30 + 4 * 6 * send
