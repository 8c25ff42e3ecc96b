"""Layers of a plan's stages that are shared out otherwise, against working out every way to share them out, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from placeproof.answers.models import Clock, ModelRun
from placeproof.answers.numbers import Settings
from placeproof.answers.plan import question
from placeproof.clusters import find
from placeproof.core.stages import stages_text
from placeproof.cost.model.parts import DeviceSegment
from placeproof.models import load
from placeproof.planning import uneven as module
from placeproof.planning.exact import Placed, Plan, worked_out
from placeproof.planning.space import AGAIN, Flow, Mesh, Option, Point
from placeproof.planning.task import Task
from placeproof.planning.uneven import Uneven, uneven, unmoved
from placeproof.report.document import Document
from placeproof.report.stages import sections
from placeproof.report.text import text
from placeproof.report.units import seconds_text

LAYERS = 3


@cache
def task() -> Task:
    sizes = Settings(given=[f"L={LAYERS}", "V=8192", "a=8", "h=512", "s=1024"], precision=None).numbers()
    return question(load("gpt"), ModelRun(), sizes, Clock(cluster=find("dgx-h100")), 4, batch=6)


POINT = Point(
    mesh=Mesh(dp=2, pp=2),
    option=Option(data="zero1", sp=False, attention="ring", recompute="none", fp8=False, flow=Flow(schedule="1f1b")),
    b=1,
    m=3,
)


def most(placed: Placed) -> Fraction:
    return max(placed.step.price.amount(cost.peak) for cost in placed.step.d.costs)


@cache
def every() -> tuple[Placed, ...]:
    """All assignments of the layers to two stages, with all numbers of them that are computed again, or with what is selected."""
    return tuple(_every())


def _every() -> Iterator[Placed]:
    segments: dict[str, tuple[DeviceSegment, ...]] = {}  # they are the same whatever layers a stage has
    for first in range(LAYERS + 1):
        layers = (first, LAYERS - first)
        numbers = product(*(range(n + 1) for n in layers))
        for words in ("selective", *(f"full:{stages_text(again)}" if any(again) else "none" for again in numbers)):
            known = segments.get(words[:4])
            placed = worked_out(task(), POINT.expression, recompute=words, b=POINT.b, m=POINT.m, layers=layers, segments=known)
            segments[words[:4]] = placed.step.d.parts
            yield placed


def asked(room: Fraction) -> tuple[Task, Plan]:
    """The question where so many bytes are there, and a plan, of which the last stage has one layer."""
    own = replace(task(), reserve=task().cluster.device.capacity - room)
    placed = worked_out(own, POINT.expression, recompute="none", b=POINT.b, m=POINT.m, layers=(2, 1))
    return own, Plan(**{f.name: getattr(placed, f.name) for f in fields(placed)}, point=POINT)


def best(room: Fraction) -> Placed | None:
    """The fastest of all that so many bytes are enough for."""
    return min((one for one in every() if most(one) <= room), key=lambda one: one.seconds, default=None)


@cache
def rooms() -> list[Fraction]:
    """Too few bytes for all; enough for some, of which one is best that computes some layers again; enough for all."""
    needs = sorted(most(one) for one in every())
    some = next(room for room in needs if (one := best(room)) and one.recompute.startswith("full:"))
    return [needs[0] - 1, some, needs[-1]]


@pytest.mark.parametrize("number", range(3))
def test_the_best_layers_are_those_of_all_that_are_worked_out(number: int) -> None:
    room = rooms()[number]
    own, plan = asked(room)
    fastest = best(room)
    found = uneven(own, plan, AGAIN)
    assert found.optimal
    if fastest is None:
        assert found.best is None
        assert found.least is None
    elif plan.fits and plan.seconds == fastest.seconds:
        assert found.best is None
        assert found.least == fastest.seconds
    else:
        assert found.best is not None
        assert found.best.fits
        assert found.best.seconds == found.least == fastest.seconds
        assert not plan.fits or fastest.seconds < plan.seconds


def test_what_is_pinned_holds() -> None:
    """Where nothing may be computed again, or what is cannot be chosen."""
    own, plan = asked(rooms()[1])
    found = uneven(own, plan, ["none"])
    kept = [one for one in every() if one.recompute == "none" and most(one) <= rooms()[1]]
    assert (found.least is None) == (kept == [])
    assert found.best is None or found.best.recompute == "none"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda found: lambda *args: found(*args) * 10, "each stage fits"),
        (lambda found: lambda *args: found(*args)._replace(tail=Fraction(0)), "a step takes what its stages say"),
    ],
)
def test_what_is_wrong_of_a_stage_is_noticed(fault: Callable[..., Any], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = (module, "room") if "fits" in says else (module._Sharing, "_seconds")
    own, plan = asked(rooms()[1 if "fits" in says else 2])
    monkeypatch.setattr(owner, name, fault(getattr(owner, name)))
    with pytest.raises(AssertionError, match=says):
        uneven(own, replace(plan, room=Fraction(0)), AGAIN)


@pytest.mark.parametrize(
    ("mesh", "flow", "says"),
    [
        (Mesh(dp=4), "1f1b", "no pipeline"),
        (Mesh(pp=4), "interleaved:2", "several runs"),
        (Mesh(pp=4), "zb-v:2", "several runs"),
        (Mesh(pp=4), "1f1b", ""),
    ],
)
def test_plans_are_left_as_they_are_for_a_reason(mesh: Mesh, flow: str, says: str) -> None:
    schedule, _, chunks = flow.partition(":")
    option = replace(POINT.option, flow=Flow(schedule=schedule, chunks=int(chunks or 1)))
    said = unmoved(replace(POINT, mesh=mesh, option=option))
    assert says in said if says else said == ""


def told(*every: Uneven) -> str:
    """What is told of some plans."""
    found = SimpleNamespace(task=task(), plans=[every[0].of], verdicts={POINT.structure: "proved"}, uneven=every)
    return text(Document(name="", sections=lambda: sections(found), data=dict))


def test_what_was_not_ruled_out_is_told() -> None:
    """A gap, where some way may be better; and for which reason there is none that is better."""
    _, plan = asked(rooms()[2])
    best = Uneven(of=plan, best=plan, least=plan.seconds)
    assert not Uneven(of=plan, best=plan, least=plan.seconds * Fraction(9, 10)).optimal
    assert "  1     1  " in told(best)
    assert "gap" not in told(best)
    assert "10 %" in told(Uneven(of=plan, best=plan, least=plan.seconds * Fraction(9, 10)))
    for one, says in (
        (Uneven(of=plan), "1: no way to share out its layers fits"),
        (Uneven(of=plan, least=plan.seconds), "1: no way to share out its layers is better"),
        (Uneven(of=plan, least=plan.seconds / 2), f"and none takes less than {seconds_text(plan.seconds / 2)}"),
        (Uneven(of=plan, because="no pipeline"), "1: no pipeline"),
    ):
        assert says in told(one)
        assert "nothing is better" in told(one)
