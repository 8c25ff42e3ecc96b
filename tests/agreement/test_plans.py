"""The search for placements against single derivations of every point, on small random grids; more of them: `nightly/plans.py`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import plan_answers
import pytest
from plan_answers import MEMORY, told, why_nothing_fits
from plan_instances import FOLDED, all_meshes, instance, pinned
from plan_lines import differences, listed
from plan_oracle import Alone, Instance, Key, held_against, tried

from placeproof.clusters import find
from placeproof.planning import bounding
from placeproof.planning import frontier as frontiers
from placeproof.planning.reasons import beside
from placeproof.planning.space import AXES, Flow, Mesh, divisors, meshes
from placeproof.planning.tables import Blocks
from placeproof.planning.task import Task
from placeproof.schedules import load as load_schedule

#: Grids in which something was wrong once: experts with an axis, states that one device has, kernels that no exchange comes between.
SEEDS = (0, 2, 23)
#: One of them that is small.
SMALL = 2
#: A grid of one device on which nothing fits, because of a pin, too.
PINNED = 43
#: A question that has plans: products in fp8, bytes that are kept free, and several schedules.
LISTED = 4


@cache
def truth(seed: int) -> tuple[dict[Key, Alone], Counter[str]]:
    return tried(instance(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_finds_what_trying_all_finds(seed: int) -> None:
    compared = held_against(instance(seed), 2, *truth(seed))
    assert compared.why == []
    assert compared.derived
    assert told(instance(seed), truth(seed)[0]) == []


def test_a_strategy_that_could_be_better_than_what_is_told_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_answers, "beside", lambda task, space, text: beside(task, replace(space, recompute=("full",)), text))
    assert told(instance(SMALL), truth(SMALL)[0])


def test_a_plan_that_is_listed_is_what_derive_and_prove_say_of_its_line() -> None:
    alike, plans, wrong = listed(LISTED)
    assert plans
    assert wrong == differences(alike, plans) == []
    for other in ({"seconds": plans[0]["seconds"] / 2}, {"most": plans[0]["most"] + 1}, {"strategy": "tp(2)"}):
        assert differences(alike, [plans[0] | other], proofs=0)


def test_reasons_are_those_that_trying_all_gives() -> None:
    wrong, named = why_nothing_fits(*pinned(PINNED))
    assert wrong == []
    assert MEMORY in named


def folded(seed: int, b: tuple[int, ...], **more: int) -> Instance:
    """Pipelines of four devices that have several stages of the model each, or stages of two copies."""
    asked = instance(seed)
    space = replace(
        asked.space, meshes=(Mesh(pp=4),), b=b, flows=FOLDED, data=("ddp",), recompute=("none",), sp=(False,), attention=("ring",)
    )
    return replace(asked, model=asked.model.resized({"L": 8, **more}), devices=4, batch=8, space=space, reserve=None)


@pytest.mark.parametrize("asked", [folded(342, (1, 4)), folded(328, (1,), L_dense=1)], ids=["llama", "glm4_moe"])
def test_devices_that_have_both_ends_of_a_model(asked: Instance) -> None:
    compared = held_against(asked, 2, *tried(asked))
    assert compared.why == []
    assert {schedule for schedule, _, _ in compared.ratios} == {flow.schedule for flow in FOLDED}


def test_of_two_copies_each_device_has_one_run_of_layers() -> None:
    """So there are half as many runs as each device has."""
    asked = folded(342, (1,), L=4)
    compared = held_against(asked, 2, *tried(asked))
    assert compared.why == []
    assert {schedule for schedule, _, _ in compared.ratios} == {
        flow.schedule for flow in FOLDED if load_schedule(flow.schedule).copies == 2
    }


def test_recomputation_that_changes_nothing_makes_no_point_of_a_certificate() -> None:
    asked = instance(40000)
    space = replace(asked.space, meshes=(Mesh(pp=2),), flows=asked.space.flows[:1], recompute=("none", "selective"), fp8=(False,))
    asked = replace(asked, space=space)
    assert held_against(asked, 1000, *tried(asked)).why == []


def test_stages_may_lie_inside_of_data_parallelism() -> None:
    """On nodes of four devices."""
    asked = instance(SMALL)
    level = replace(asked.cluster.levels[0], joins=4)
    space = replace(
        asked.space, meshes=(Mesh(pp=2, dp=4), Mesh(pp=4, dp=2), Mesh(tp=2, pp=2, dp=2)), b=(1, 2), flows=(Flow(schedule="1f1b"),),
        data=("ddp", "zero3"), recompute=("none",), sp=(False,), attention=("ring",), orders=("dp-pp", "pp-dp"),
    )  # fmt: skip
    cluster = replace(find("dgx-h100"), levels=(level, find("dgx-h100").levels[-1]))
    asked = replace(asked, cluster=cluster, devices=8, batch=16, space=space, reserve=None, eta=Fraction(1, 2), overlap="none")
    found, cut = tried(asked)
    assert held_against(asked, 3, found, cut).why == []
    pairs = [(one.seconds, found[key._replace(order=None)].seconds) for key, one in found.items() if key.order is not None]
    assert any(a < b for a, b in pairs)
    assert any(a > b for a, b in pairs)


def broken(monkeypatch: pytest.MonkeyPatch, **more: float) -> list[str]:
    """What is said of a search whose bounds are higher, or of one that leaves points out."""
    bounds = bounding.bounds

    def higher(*given: Any, **said: Any) -> Any:
        own = bounds(*given, **said)
        seconds, peak = own.seconds * more.get("times", 1.0), own.peak * more.get("held", 1.0)
        return type(own)(seconds=seconds, beyond=own.beyond + more.get("plus", 0.0), peak=peak)

    monkeypatch.setattr(bounding, "bounds", higher)
    return held_against(instance(SMALL), 2, *truth(SMALL)).why


def test_a_bound_that_is_too_high_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all("s are said" in why for why in broken(monkeypatch, times=1.001))
    assert broken(monkeypatch, times=1.001)


def test_a_bound_on_what_blocks_alone_take_that_is_too_high_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    least = bounding.Bounding._least
    more = lambda self, one: {flow: 3 * own for flow, own in least(self, one).items()}  # noqa: E731
    monkeypatch.setattr(bounding.Bounding, "_least", more)
    assert any("blocks alone" in why for why in held_against(instance(SMALL), 2, *truth(SMALL)).why)


def test_a_bound_of_memory_that_is_too_high_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("bytes are said" in why for why in broken(monkeypatch, held=1.001))
    assert any("nothing beats" in why or why.startswith("memory: the best have") for why in broken(monkeypatch, held=1e3))


@pytest.mark.parametrize("beats", [lambda a, b: a.seconds <= b.seconds, lambda a, b: a.most <= b.most])
def test_a_wrong_frontier_is_noticed(monkeypatch: pytest.MonkeyPatch, beats: Any) -> None:
    """Of plans that are better in one thing, whatever the other."""
    monkeypatch.setattr(frontiers, "beats", beats)
    assert any(why.startswith("nothing beats") for why in held_against(instance(SMALL), 2, *truth(SMALL)).why)


def test_a_plan_that_is_said_not_to_fit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    why = broken(monkeypatch, plus=1e12)
    assert any("bytes too many" in one for one in why)
    assert any("the best have" in one for one in why)


def test_a_rule_that_nothing_breaks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Blocks, "uneven", lambda self, points: [("wrong", np.ones(len(points), dtype=bool))])
    assert any("cut, and derived alone" in why for why in broken(monkeypatch))


def test_room_that_is_not_there_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "room", lambda self, communicators: self.cluster.device.capacity / 100)
    assert broken(monkeypatch)


@pytest.mark.parametrize("devices", [1, 6, 16])
def test_every_mesh_is_listed_once(devices: int) -> None:
    listed = list(meshes(devices, dict.fromkeys(AXES, divisors(devices))))
    assert sorted(map(str, listed)) == sorted(map(str, all_meshes(devices)))
