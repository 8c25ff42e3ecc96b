"""What is said of the cases of ``module_cases``, and where it parts from what PyTorch did in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from module_cases import Case, build

from placeproof.answers.shapes import options_of
from placeproof.core.shapes import Shapes
from placeproof.cost.exact.predict import Predicted, predict
from placeproof.importers.shapes import render_shapes
from placeproof.profiles.profile import profile
from placeproof.strategies import parse_strategy

#: A call: its kind, the ranks of its group, and its bytes.
Call = tuple[str, tuple[int, ...], int]


def shapes_text(case: Case) -> str:
    """The shapes of a case's module as a file. Raises InputError."""
    from placeproof.measure.module import module_shapes

    built = build(case)
    return render_shapes(module_shapes(built.module, lambda: built.loss(built.module, 0).backward(), units=built.units))


def told(question: tuple[str, str, Mapping[str, str]], shapes: Shapes) -> list[Predicted]:
    """What is said of each rank: of a strategy, its implementation, and options. Raises InputError."""
    expression, name, texts = question
    strategy = parse_strategy(expression)
    mesh = {axis.name: int(str(axis.degree)) for axis in strategy.axes}
    options = options_of(f"{key}={value}" for key, value in texts.items())
    one = (profile("torch-2.13").find(name),)
    return [predict(strategy, one, shapes, mesh, rank=rank, options=options) for rank in range(prod(mesh.values()))]


def ranks_of(axes: tuple[str, ...], world: int, rank: int) -> tuple[int, ...]:
    """The ranks of a group; of two axes of two devices, neighbours differ in the second one."""
    if "dp" in axes or set(axes) == {"rep", "shard"}:
        return tuple(range(world))
    first = rank - rank % 2
    return (rank % 2, rank % 2 + 2) if axes in (("rep",), ("dp_outer",)) else (first, first + 1)


def differences(prediction: Predicted, calls: Mapping[Call, int], memory: Mapping[str, int], world: int, rank: int) -> list[str]:
    """Where what is said of a rank and what was measured part."""
    said = Counter((e.kind, ranks_of(e.axes, world, rank), e.bytes) for e in prediction.exchanges)
    measured = Counter(dict(calls))
    lines = [f"said, not measured: {call} x {n}" for call, n in (said - measured).items()]
    lines += [f"measured, not said: {call} x {n}" for call, n in (measured - said).items()]
    states = {**prediction.memory, **{f"{state}_held": amount for state, amount in prediction.held.items()}}
    return lines + [f"{k}: said {v:,}, measured {memory[k]:,}" for k, v in states.items() if v != memory[k]]
