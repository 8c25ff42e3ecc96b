"""Uneven shards of a model: what a device with its own fraction holds and sends, for every pipeline stage.

Model states follow the step program of data parallelism, in the symbols of fractions (:mod:`placeproof.cost.uneven`); activations, and what
is computed, are those of equal parts: micro-batches are equal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.strategy import Strategy
from placeproof.cost.model.derivation import MODEL_STATES, ModelDerivation, StageCost, passing
from placeproof.cost.model.step import StepCosts
from placeproof.cost.model.traffic import ParameterShare, synchronised
from placeproof.cost.uneven import Shards, fitted, require_parts

if TYPE_CHECKING:
    import sympy


def fitted_strategy(strategy: Strategy, shards: Shards) -> Strategy:
    """The strategy with the degrees that were open, as many as there are parts. Raises InputError with every axis that does not fit."""
    problems = Problems()
    known, _ = fitted(strategy, shards, problems)
    problems.raise_if_any()
    assert isinstance(known, Strategy)
    return known


def uneven_stages(d: ModelDerivation, shards: Shards) -> tuple[StageCost, ...]:
    """The stages of a model whose strategy is :func:`fitted_strategy`, with formulas in the fractions' symbols.

    Raises InputError for an axis along which nothing lies in parts, and for a schedule that holds the model twice.
    """
    step = StepCosts(d.linked, uneven=shards.axes)
    require_parts((e for cost in d.costs for e in step.formulas(cost.stage)), shards.axes, d.linked.name)
    if any(cost.stage.copies > 1 for cost in d.costs):
        message = f"`{d.schedule}` holds two copies of each stage: what they send one another of uneven parts is not derived"
        refuse("PP104", message, help="choose another schedule")
    return tuple(_uneven(cost, d, step) for cost in d.costs)


def _uneven(cost: StageCost, d: ModelDerivation, step: StepCosts) -> StageCost:
    import sympy

    shares = _shares(cost, d, step)
    even = set(synchronised(cost.stage, _shares(cost, d, d.step), d.linked))

    def formula(key: str) -> sympy.Expr:
        return sympy.Add(*(s.of(s.costs.memory[key]) for s in shares))

    return replace(
        cost,
        states={state: formula(state) for state in MODEL_STATES},
        transient=passing(shares, "transient"),
        updating=passing(shares, "update"),
        offloaded=formula("host"),
        sent=(*(transfer for transfer in cost.sent if transfer not in even), *synchronised(cost.stage, shares, d.linked)),
    )


def _shares(cost: StageCost, d: ModelDerivation, step: StepCosts) -> list[ParameterShare]:
    return [ParameterShare(costs, cost.parameters, cost.stage, d.at, d.linked) for costs in step.at(cost.stage)]
