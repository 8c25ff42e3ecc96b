"""What is told beside the best plans of a small grid, held against every point of it tried by itself: where a strategy stands, which point
needs the least memory where nothing fits, and why nothing does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, replace
from itertools import product
from math import prod
from random import Random
from unittest.mock import patch

from plan_oracle import UNSHARDED, Alone, Instance, Key, key_of, keys_of, of_plan, points, tried, written

from placeproof.core.diagnostics import InputError
from placeproof.planning import choices
from placeproof.planning.choices import Pins, space_of
from placeproof.planning.exact import Placed
from placeproof.planning.reasons import beside, reasons
from placeproof.planning.search import Search
from placeproof.planning.space import Space

Truth = dict[Key, Alone]
MEMORY = "the memory of a device"


def told(asked: Instance, truth: Truth, strategies: int = 2) -> list[str]:
    """What is wrong with what is told of some strategies of a grid, and of the point that needs the least memory."""
    return [*_besides(asked, truth, Random(asked.name), strategies), *_least(asked, truth)]


def _besides(asked: Instance, truth: Truth, draw: Random, strategies: int) -> Iterator[str]:
    for _ in range(strategies):
        mesh, _, option = draw.choice(list(points(asked.space)))
        if prod(astuple(mesh)) != asked.devices or key_of(mesh, option, 1, mesh.replicas) == UNSHARDED:
            continue
        others = product(asked.space.recompute, asked.space.fp8, asked.space.orders)
        like = (replace(option, recompute=words, fp8=fp8, order=order) for words, fp8, order in others)
        keys = {key_of(mesh, one, b, asked.batch) for one in like for b in asked.space.b}
        own = [truth[key] for key in keys if isinstance(key, Key)]
        yield from _told_of(beside(asked.task, asked.space, text := written(mesh, option, 1)).plan, own, text)


def _told_of(plan: Placed | None, own: Iterable[Alone], what: str) -> Iterator[str]:
    """What is wrong with a plan that is the fastest of some points that fits, or else needs the least memory."""
    can = [one for one in own if not one.refused]
    fit = [one.seconds for one in can if one.fits]
    if plan is None or not can:
        if plan is not None or can:
            yield f"{what}: {plan}, and {len(can)} points can be"
    elif plan.fits != bool(fit) or (fit and plan.seconds != min(fit)):
        yield f"{what}: {float(plan.seconds)} s, fits: {plan.fits}, and best are {[*map(float, sorted(fit)[:3])]}"
    elif not fit and plan.peak - plan.room != (least := min(one.beyond for one in can)):
        yield f"{what}: {float(plan.peak - plan.room)} bytes too many, and {float(least)} are the least"


def _least(asked: Instance, truth: Truth) -> Iterator[str]:
    if not any(one.fits for one in truth.values()):
        yield from _told_of(Search(asked.task, asked.space).run(1).least, truth.values(), "least memory")


def why_nothing_fits(asked: Instance, pins: Pins) -> tuple[list[str], list[str]]:
    """What is wrong with the reasons why nothing fits of a grid that pins leave, and those reasons; none where nothing can be.

    There is less memory than anything takes that the pins leave, and more than is taken without them, if that is less. The cluster has to
    join no more devices than are asked for. Fewer options are tried than for users, since leaving out pins makes a grid large.
    """
    with patch.multiple(choices, DATA=("ddp", "zero1", "zero3"), ATTENTION=("ring",), AGAIN=("none", "full"), SCHEDULES=("1f1b",)):
        return _why_nothing_fits(asked, pins)


def _why_nothing_fits(asked: Instance, pins: Pins) -> tuple[list[str], list[str]]:
    def grid(own: Pins) -> Space:
        return space_of(asked.model, (asked.devices,), asked.batch, own, asked.task.joined, fp8=asked.fp8)

    def left(own: Pins) -> list[Alone]:
        try:
            return [truth[key] for key in keys_of(grid(own), asked.batch) if not truth[key].refused]
        except InputError:
            return []

    def fits(own: Pins) -> bool:
        return any(one.fits for one in left(own))

    try:
        grid(pins)
    except InputError:  # no grid is left, which is an error and no answer
        return [], []
    truth, _ = tried(replace(asked, space=grid(Pins())))
    most = [min((one.most for one in left(own)), default=None) for own in (Pins(), pins)]
    if most[0] is None:
        return [], []
    room = most[0] - 1 if most[1] in (None, most[0]) else (most[0] + most[1]) / 2
    truth = {key: replace(one, beyond=one.most - room, fits=one.most <= room) for key, one in truth.items()}
    asked = replace(asked, reserve=asked.cluster.device.capacity - room)
    found = reasons(asked.task, pins)
    named = [one.of for one in found if one.of != MEMORY]
    wrong = []
    if fits(pins.left(named)):
        wrong.append(f"something fits though all of these hold: {named}")
    for one in found:
        if one.of == MEMORY:
            wrong += _told_of(one.plan, left(pins.left(named)), MEMORY)
        elif not fits(pins.left([other for other in named if other != one.of])):
            wrong.append(f"nothing fits without {one.of} either")
        elif one.plan is None or not one.plan.fits or of_plan(one.plan) not in truth or not truth[of_plan(one.plan)].fits:
            wrong.append(f"without {one.of} no such thing fits: {one.plan}")
    if MEMORY not in [one.of for one in found] and left(pins.left(named)):
        wrong.append("more memory would help")
    return wrong, [one.of for one in found]
