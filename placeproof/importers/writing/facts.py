"""What a strategy says, as facts that formulas of ``writing.toml`` speak of. Placements are asked, and no strategy's name.

``tp``, ``pp``, ``cp``, ``ep``: devices that split matrices, layers, sequences, and of those with whole samples that share experts;
``expert_devices``: all that do; ``etp``: devices that an expert is split over;
``rep``, ``shard``: data-parallel devices with copies of the optimizer state and with parts of it; ``dp``:
both; 1 where there is no such axis; ``world``: all devices. ``parameters``,
``optimizer``, ``gradients``: modes on the axes of samples, those of parts where some hold parts. ``sp``: activations are split outside of
parallel regions, ``saved``: so are checkpoints. ``m``: micro-batches, ``loops``: whether the strategy has them. ``precision``: its name,
empty for none; ``half``: the type of 16-bit weights, empty where either will do. Fields of the schedule by their names; what nobody says is
as :data:`placeproof.core.strategy.NEUTRAL` has it. Symbols by their names, None where they are not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod

from placeproof.core.mesh import Axis, axis_order
from placeproof.core.states import MODEL_STATES, OPTIMIZER, PARAMETERS
from placeproof.core.strategy import DENSE, EXPERT, NEUTRAL, SCHEDULE_FIELDS, SYMBOLIC, Strategy
from placeproof.core.symbols import SYMBOLS
from placeproof.framework_rules.formula import Fact
from placeproof.programs import Program
from placeproof.semantics.lower import lower
from placeproof.semantics.lower.facts import Facts


def facts(strategy: Strategy, numbers: Mapping[str, Fraction], precision: str | None, half: str | None) -> dict[str, Fact]:
    """The facts of a strategy whose degrees are numbers."""
    asked = Facts(strategy)
    parts = [a for a in asked.samples if strategy.mode(OPTIMIZER, a, DENSE).split]
    copies = [a for a in asked.samples if a not in parts]
    data = {kind: [a for a in names if _is_data(strategy.axis(a), asked.experts)] for kind, names in (("rep", copies), ("shard", parts))}
    degrees = {name: _degree(strategy, [axis] if axis else []) for name, axis in _axes(strategy, asked).items()}
    degrees["tp"] = _degree(strategy, [*asked.hidden])
    split = [a for a in asked.hidden if a not in asked.experts and strategy.mode(PARAMETERS, a, EXPERT).split]
    degrees |= {kind: _degree(strategy, names) for kind, names in data.items()}
    placed = next(iter((*data["shard"], *parts, *asked.samples)), None)
    return {
        **dict.fromkeys(SYMBOLS),
        **{name: int(value) for name, value in numbers.items() if value.denominator == 1},
        **{name: _said(getattr(strategy.schedule, name), name) for name in SCHEDULE_FIELDS},
        **({"experts": "split" if split else "whole"} if asked.hidden and asked.experts else {}),
        **degrees,
        "etp": _degree(strategy, split) if asked.experts else degrees["tp"],
        "expert_devices": _degree(strategy, [*asked.experts]),
        **{str(state): "R" if placed is None else str(strategy.mode(state, placed, DENSE)) for state in MODEL_STATES},
        "dp": degrees["rep"] * degrees["shard"],
        "world": prod(axis.degree or 1 for axis in strategy.axes),
        "sp": asked.sequence_parallel,
        "saved": asked.split_checkpoints,
        "loops": asked.microbatches,
        "m": strategy.schedule.microbatches or 1,
        "precision": precision or "",
        "half": half or "",
    }


def step(strategy: Strategy) -> Program:
    """The step of a strategy; where several axes split the hidden dimension, one whose layers are a model's."""
    return lower(strategy, linked=len(Facts(strategy).hidden) > 1)


def _said(value: Fact, name: str) -> Fact:
    return NEUTRAL.get(name) if value is None else value  # type: ignore[return-value]


def _axes(strategy: Strategy, asked: Facts) -> dict[str, str | None]:
    """The axes that configurations know, by the names that they give them."""
    tokens = next((a.name for a in strategy.axes if a.splits.tokens), None)
    samples = next((a for a in asked.experts if strategy.axis(a).splits.batch), None)
    hidden = next((a for a in asked.hidden if a in asked.experts), next(iter(asked.hidden), None))
    return {"tp": hidden, "pp": asked.stages, "cp": tokens, "ep": samples}


def _is_data(axis: Axis, experts: tuple[str, ...]) -> bool:
    return axis.splits.batch and axis.name not in experts


def _degree(strategy: Strategy, names: list[str]) -> int:
    return prod(strategy.axis(name).degree or 1 for name in names)


def fixed(strategy: Strategy, numbers: Mapping[str, Fraction]) -> Strategy:
    """The strategy with the degrees and micro-batches that numbers say, where it leaves them open."""
    only = len(strategy.axes) == 1

    def number(name: object) -> int | None:
        return int(numbers[str(name)]) if str(name) in numbers else None

    axes = tuple(
        replace(
            axis,
            degree=axis.degree or number(f"N_{axis.name}") or (number("N") if only else None),
            inner=axis.inner if isinstance(axis.inner, int) or axis.inner is None else number(axis.inner) or axis.inner,
        )
        for axis in strategy.axes
    )
    schedule, open_ = strategy.schedule, strategy.schedule.microbatches == SYMBOLIC
    reshard = number(schedule.reshard) if isinstance(schedule.reshard, str) else None
    schedule = replace(
        schedule,
        microbatches=(number("m") or SYMBOLIC) if open_ else schedule.microbatches,
        reshard=schedule.reshard if reshard is None else reshard,
    )
    return replace(strategy, axes=axes, schedule=schedule)


def usual(strategy: Strategy) -> Strategy:
    """The strategy with its axes called as configurations call them, where that leaves their order as it is."""
    asked = Facts(strategy)
    names = {axis: name for name, axis in _axes(strategy, asked).items() if axis is not None}
    data = [a for a in strategy.axes if _is_data(a, asked.experts)]
    parts = [strategy.mode(OPTIMIZER, a.name, DENSE).split for a in data]
    names |= {data[0].name: "dp"} if len(data) == 1 else {}
    names |= dict(zip((a.name for a in data), ("rep", "shard"), strict=False)) if parts == [False, True] else {}
    axes = tuple(replace(a, name=names.get(a.name, a.name)) for a in strategy.axes)
    if len({a.name for a in axes}) < len(axes) or tuple(sorted(axes, key=axis_order)) != axes:
        return strategy
    return replace(
        strategy,
        axes=axes,
        entries=tuple(replace(e, axis=names.get(e.axis, e.axis)) for e in strategy.entries),
        needs=tuple((names.get(axis, axis), state) for axis, state in strategy.needs),
        schedule=replace(strategy.schedule, experts=names.get(strategy.schedule.experts or "", strategy.schedule.experts)),
    )
