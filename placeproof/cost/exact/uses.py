"""What a step program does with each state, before an implementation makes calls of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Weight
from placeproof.cost.exact.setting import Setting
from placeproof.cost.exact.walk import Walk, _Where
from placeproof.semantics.values import Event, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One collective of the program: the operation, whether it is about parameters (or gradients), its weights and its phase."""

    op: str
    parameters: bool
    weights: tuple[Weight, ...]
    phase: str


@dataclass
class Uses(Walk):
    """A walk that notes collectives of states. ``found``: what blocks exchange; ``partial``: sums of their weights' gradients."""

    uses: list[Use] = field(default_factory=list)
    partial: list[Exchange] = field(default_factory=list)

    def _calls(self, event: Event, where: _Where) -> Iterator[Exchange]:
        weights = tuple(w for _, w in self._weights(event, where))
        parameters = event.operands[0].kind is Kind.PARAMETERS
        if weights and event.call.op != "part":
            self.uses.append(Use(op=event.call.op, parameters=parameters, weights=weights, phase=event.phase))
        yield from ()

    def _weight_gradient(self, made: Exchange) -> None:
        self.partial.append(made)


def walked(setting: Setting) -> Uses:
    """The walk of a setting's program, done."""
    walk = Uses(setting)
    walk.run()
    return walk


def once(uses: list[Use], *, parameters: bool, op: str) -> tuple[Weight, ...]:
    """The weights that collectives of this operation are about, in order. Raises ValueError where one occurs twice."""
    weights = tuple(w for use in uses if use.parameters is parameters and use.op == op for w in use.weights)
    if len({w.name for w in weights}) < len(weights):
        raise ValueError(f"{op} is about some weights more than once")
    return weights
