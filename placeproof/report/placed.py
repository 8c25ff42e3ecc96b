"""One placement, as all that speak of placements tell it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from placeproof.planning.exact import Placed, Plan
from placeproof.planning.space import AXES
from placeproof.planning.task import Task
from placeproof.report.models.fit import fits_all

#: Whether a plan fits, as it is told.
FITS = {True: "yes", False: "no", None: "?"}


def in_words(plan: Placed) -> str:
    """All that was chosen."""
    return f"{plan.expression}, {numbers_of(plan)}"


def numbers_of(plan: Placed) -> str:
    """What was chosen besides the strategy."""
    return f"b = {plan.b}, m = {plan.m}, recompute {plan.recompute}" + (", fp8" if plan.fp8 else "") + order_of(plan)


def order_of(plan: Placed) -> str:
    """How its axes lie, where that is not as usual."""
    return "" if plan.order is None else f", order {','.join(plan.order)}"


def speed(task: Task, plan: Placed) -> Fraction:
    """Tokens a second and device."""
    return task.batch * task.model.sizes["s"] / plan.seconds / plan.devices


def fits(plan: Placed) -> bool | None:
    """Whether a plan's fullest device holds it, by the ranges of what else is there; None where these cannot tell."""
    return fits_all(plan.step)


def shares(plan: Placed) -> dict[str, Fraction]:
    """What a step's time is, as shares."""
    return {name: n / plan.seconds for name, n in plan.step.terms.items()}


def layers_of(plan: Placed) -> tuple[int, ...]:
    """Layers of each stage."""
    return tuple(int(sum(n for part, n in cost.stage.held if part.repeats)) for cost in plan.step.d.costs)


def plan_data(task: Task, plan: Plan, verdicts: Mapping[str, str]) -> dict[str, Any]:
    """A point of a grid in JSON."""
    degrees = {axis: getattr(plan.point.mesh, axis) for axis in AXES}
    return {**placed_data(task, plan), "verdict": verdicts.get(plan.point.structure), "degrees": degrees}


def placed_data(task: Task, plan: Placed) -> dict[str, Any]:
    """A plan in JSON, whatever it was chosen from."""
    return {
        "strategy": plan.expression,
        "devices": plan.devices,
        "b": plan.b,
        "m": plan.m,
        "recompute": plan.recompute,
        "fp8": plan.fp8,
        "order": plan.order,
        "seconds": plan.seconds,
        "tokens": speed(task, plan) if task.model.sizes.get("s") else None,
        "mfu": plan.step.utilisation[0],
        "peak": plan.peak,
        "room": plan.room,
        "most": plan.most,
        "fits": fits(plan),
        "time": shares(plan),
    }
