"""A model under several strategies: the same figures of each, of a device of its fullest stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from placeproof.core.symbols import symbol
from placeproof.cost.closed import tidy
from placeproof.cost.model.derivation import ModelDerivation, StageCost
from placeproof.cost.model.time import StepTime

if TYPE_CHECKING:
    import sympy

#: What is compared besides traffic, in the order in which it is told; bytes, but for the counts ``devices``, ``sequences``, ``parameters``
#: and ``flops``.
FIGURES = ("devices", "sequences", "parameters", "model_states", "activations", "peak", "host", "flops")


@dataclass(frozen=True, kw_only=True)
class Member:
    """One strategy. ``values``: of symbols that are set; ``step``: on a cluster, if there is one. ``accumulated``: where that does not fit,
    the same sequences with gradients accumulated over micro-batches that do, or may, where there are such."""

    d: ModelDerivation
    values: Mapping[str, Fraction]
    step: StepTime | None = None
    accumulated: Member | None = None

    @cached_property
    def fullest(self) -> StageCost:
        """The stage with the largest peak; while a symbol of one is not set, the first stage."""
        peaks = [self.d.value(cost.peak, self.values) for cost in self.d.costs]
        known = [(peak, -i) for i, peak in enumerate(peaks) if peak is not None]
        return self.d.costs[-max(known)[1] if len(known) == len(peaks) else 0]

    @cached_property
    def figures(self) -> dict[str, sympy.Expr]:
        """Closed forms by the keys of :data:`FIGURES` and ``traffic.AXES``; ``sequences`` and ``flops`` are of a whole step."""
        import sympy

        cost, degrees = self.fullest, self.d.at.degrees
        replicas = [degrees[a.name] for a in self.d.linked.axes if a.splits.batch]
        forms = {
            "devices": sympy.Mul(*degrees.values()),
            "sequences": sympy.Mul(symbol("b"), self.d.batches, *replicas),
            "parameters": sympy.Add(*cost.parameters.values()),
            "flops": cost.flops.total * self.d.batches + cost.iterated,
            **{key: getattr(cost, key) for key in ("model_states", "activations", "peak", "host")},
            **{f"traffic.{axes}": n for axes, n in cost.traffic().items()},
        }
        return {key: tidy(sympy.sympify(expr)) for key, expr in forms.items()}

    def value(self, key: str) -> Fraction | None:
        """The number of a figure, 0 for traffic over axes that the strategy does not have; None while a symbol is not set."""
        return self.d.value(self.figures.get(key, 0), self.values)

    @property
    def tokens(self) -> Fraction | None:
        """Tokens of a second and device, where the step has a time."""
        sequences, length = self.value("sequences"), self.d.value(self.d.at.sizes["tokens"], self.values)
        if self.step is None or sequences is None or length is None or not self.step.seconds:
            return None
        return sequences * length / self.step.seconds / self.step.devices


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Strategies side by side, each against the first."""

    members: Sequence[Member]

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Every figure that one of them has, traffic behind memory; host memory where one of them uses it."""
        sent = dict.fromkeys(key for m in self.members for key in m.figures if key.startswith("traffic."))
        shown = [key for key in FIGURES[:-1] if key != "host" or any(m.figures[key] != 0 for m in self.members)]
        return (*shown, *sent, FIGURES[-1])

    def ratio(self, member: Member, key: str) -> Fraction | None:
        """A figure over that of the first strategy, where both are numbers."""
        first, own = self.members[0].value(key), member.value(key)
        return None if first is None or own is None or first == 0 else own / first

    def differs(self, key: str) -> bool:
        """Whether a figure is another number under another strategy; no difference is claimed where one is not known."""
        values = [m.value(key) for m in self.members]
        return None not in values and len(set(values)) > 1
