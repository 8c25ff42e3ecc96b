"""Cases for whole systems, DeepSpeed and Megatron-core, and what is predicted of them; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes
from placeproof.cost.exact import deepspeed, megatron
from placeproof.cost.exact.options import Value
from placeproof.cost.exact.setting import SystemPrediction


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCase:
    """What to measure of a ``system`` ("deepspeed" or "megatron"). ``mesh``: degrees by axis, the slowest first."""

    system: str
    shapes: Shapes
    mesh: Mapping[str, int]
    options: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMeasured:
    """What the first rank did in a step that later ones repeat, and what it holds after it: ``memory`` in bytes."""

    exchanges: tuple[Exchange, ...]
    memory: Mapping[str, int] = field(default_factory=dict)
    version: str = ""


def predicted(case: SystemCase) -> SystemPrediction:
    """The exchanges and the memory that a case should show, and the programs that they are read off."""
    if case.system == "deepspeed":
        return deepspeed.predict_step(case.shapes, case.mesh["dp"], case.options)
    return megatron.predict_step(case.shapes, case.mesh, case.options)
