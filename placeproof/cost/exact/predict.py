"""Exact bytes: what one device exchanges in a step and holds, for given shapes, from the program that an implementation runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes
from placeproof.core.strategy import Strategy
from placeproof.cost.exact.held import allocated, held
from placeproof.cost.exact.options import Value, check_options
from placeproof.cost.exact.setting import Setting, SystemPrediction, check_beside, check_degrees, check_shapes, unclipped, with_degrees
from placeproof.cost.exact.systems import predict_system
from placeproof.cost.exact.usable import check_weights
from placeproof.cost.exact.walk import Walk
from placeproof.profiles.profile import Implementation


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What one device does in a step: ``exchanges`` in order, and ``memory``: bytes that it allocates by state.

    ``strategies``: those whose programs say so; a system may have another one for some of the weights. ``held``: of parameters and
    gradients, elements times their width; storages may have padding besides. Empty where only one of the two is known.
    """

    strategies: tuple[Strategy, ...]
    exchanges: tuple[Exchange, ...]
    memory: Mapping[str, int]
    held: Mapping[str, int] = field(default_factory=dict)

    @property
    def padded(self) -> dict[str, int]:
        """``held`` of the states that are allocated with padding."""
        return {state: amount for state, amount in self.held.items() if amount != self.memory[state]}


def of_system(prediction: SystemPrediction) -> Predicted:
    """What a whole system's own rules say, as any other prediction."""
    return Predicted(strategies=tuple(prediction.strategies.values()), exchanges=prediction.exchanges, memory=prediction.memory)


def predict(
    strategy: Strategy,
    implementations: tuple[Implementation, ...],
    shapes: Shapes,
    mesh: Mapping[str, int],
    *,
    rank: int = 0,
    options: Mapping[str, Value] | None = None,
) -> Predicted:
    """Exact bytes of one device. ``mesh``: degrees by axis, the slowest first. ``options``: some of
    :data:`placeproof.cost.exact.options.OPTIONS`, those that the implementations take.

    Raises InputError where a degree is missing or no device could use the placement, where the shapes do not say what the strategy
    exchanges, for options that the implementations do not take, and for implementations that were not measured together.
    """
    check_degrees(strategy, mesh)
    if not implementations:
        refuse("PP101", f"no implementation runs `{strategy.name}` by itself", help="compose it with what has the states, such as `ddp`")
    check_options(implementations, options or {})
    realised = reduce(lambda s, i: i.realise(s), implementations, with_degrees(unclipped(strategy), mesh))
    if implementations[0].system:
        return of_system(predict_system(realised, implementations, shapes, mesh, options or {}))
    check_beside(implementations, (part.split("(")[0] for part in realised.parts))
    setting = Setting(realised, implementations, shapes, mesh, rank, options or {})
    problems = Problems()
    check_weights(setting, problems)
    check_shapes(setting, problems)
    return Predicted(strategies=(realised,), exchanges=Walk(setting).run(), memory=allocated(setting), held=held(setting))
