"""What makes a plan the best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placeproof.planning.exact import Plan


@dataclass(frozen=True, kw_only=True)
class Objective:
    """An order of plans: their ``value`` is least for the best one; among equals its seconds decide, then its bytes.

    ``memory``: whether it is of the bytes of tensors on the fullest device, and not of the seconds of a step; ``by_device``: whether times
    the number of devices. ``text``: what is wanted; ``worse``: what is true of plans that come later.
    """

    text: str
    worse: str
    memory: bool = False
    by_device: bool = False

    def value(self, plan: Plan) -> Fraction:
        """What of a plan is to be least."""
        return (plan.most if self.memory else plan.seconds) * (plan.devices if self.by_device else 1)

    def key(self, plan: Plan) -> tuple[Fraction, Fraction, Fraction, str, int, str, bool, tuple[str, ...]]:
        """The place of a plan among others; no two have the same."""
        return self.value(plan), plan.seconds, plan.most, plan.expression, plan.b, plan.recompute, plan.fp8, plan.order or ()


#: By their names.
OBJECTIVES: Mapping[str, Objective] = {
    "time": Objective(text="the shortest step", worse="slower, by a lower bound on their steps"),
    "memory": Objective(
        text="the least bytes of tensors on the fullest device", worse="fuller, by a lower bound on their fullest devices", memory=True
    ),
    "tokens-per-device": Objective(
        text="the most tokens a second and device", worse="fewer tokens a second and device, by a lower bound", by_device=True
    ),
}
