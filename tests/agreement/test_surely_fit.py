"""Plans that surely fit are those of all plans that do, by the memory of each one's processes."""

from __future__ import annotations

from typing import Any

import pytest

import placeproof
from placeproof.answers.plan import Planned
from placeproof.cost.model.process import process_memory
from placeproof.planning.exact import Plan

QUESTION: dict[str, Any] = {
    "devices": 8,
    "batch": 64,
    "s": 8192,
    "only": ["data=zero1,zero3", "sp=yes", "cp=1", "pp=1", "recompute=none,full", "tp=1,2,4"],
    "most": ["b=4"],
}
ALL = 100


def found(**options: Any) -> Planned:
    return placeproof.plan("llama3-8b", "dgx-h100", **QUESTION, count=ALL, **options)


def surely(plan: Plan) -> bool:
    return all(process_memory(plan.step, cost).fits is True for cost in plan.step.d.costs)


@pytest.mark.parametrize(
    "options", [{}, {"reserve": "20GB"}, {"implementation": "megatron-te-2.11"}], ids=["ranges", "reserve", "measured"]
)
def test_what_surely_fits_is_what_the_memory_of_processes_says(options: dict[str, str]) -> None:
    usual, sure = found(**options).plans, found(**options, surely_fit=True).plans
    assert len(sure) < len(usual) < ALL
    assert {(p.expression, p.b, p.recompute) for p in sure} == {(p.expression, p.b, p.recompute) for p in usual if surely(p)}
    assert sure


def test_the_best_one_that_surely_fits_has_a_certificate() -> None:
    planned = found(surely_fit=True)
    rooms = planned.certificate()["rooms"]
    assert rooms != found().certificate()["rooms"]
