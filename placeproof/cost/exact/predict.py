"""Exact bytes: what one device exchanges in a step and holds, for given shapes, from the program that an implementation runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from placeproof.core.exchange import Exchange
from placeproof.core.mesh import Axis
from placeproof.core.program import Program
from placeproof.core.shapes import Shapes
from placeproof.core.strategy import Strategy
from placeproof.cost.exact.held import held
from placeproof.cost.exact.setting import Setting, Value, check_beside, check_degrees, check_shapes
from placeproof.cost.exact.walk import Walk
from placeproof.profiles.profile import Implementation


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What one device does in a step: ``exchanges`` in order, ``memory`` in bytes by state, and the ``program`` that says so.

    ``programs``: all of them, where a system has another one for some of the weights.
    """

    strategy: Strategy
    program: Program
    exchanges: tuple[Exchange, ...]
    memory: Mapping[str, int]
    programs: tuple[Program, ...] = ()


def predict(
    strategy: Strategy,
    implementations: tuple[Implementation, ...],
    shapes: Shapes,
    mesh: Mapping[str, int],
    *,
    rank: int = 0,
    options: Mapping[str, Value] | None = None,
) -> Predicted:
    """Exact bytes of one device. ``mesh``: degrees by axis, the slowest first. ``options``: element types (``dtype``,
    ``param_dtype``, ``reduce_dtype``), ``optimizer``, ``microbatches``, ``virtual``, ``bucket_cap_mb``, ``bucket_view``.

    Implementations of a whole system have their own options: those of its module in this package.

    Raises InputError where a degree is missing or no device could use the placement, where the shapes do not say what the strategy
    exchanges, and for implementations that were not measured together.
    """
    check_degrees(strategy, mesh)
    realised = reduce(lambda s, i: i.realise(s), implementations, with_degrees(strategy, mesh))
    if implementations and implementations[0].system:
        from placeproof.cost.exact.systems import told

        exchanges, memory, programs = told(realised, implementations, shapes, mesh, options or {})
        every = tuple(programs.values())
        return Predicted(strategy=realised, program=every[0], exchanges=exchanges, memory=memory, programs=every)
    check_beside(implementations, (part.split("(")[0] for part in strategy.parts))
    setting = Setting(realised, implementations, shapes, mesh, rank, options or {})
    check_shapes(setting)
    found, program = Walk(setting).run(), setting.program
    return Predicted(strategy=realised, program=program, exchanges=found, memory=held(setting), programs=(program,))


def with_degrees(strategy: Strategy, mesh: Mapping[str, int]) -> Strategy:
    """The strategy with the mesh's degrees on its axes."""

    def sized(axis: Axis) -> Axis:
        return replace(axis, degree=mesh[axis.name])

    return replace(strategy, axes=tuple(sized(a) for a in strategy.axes))
