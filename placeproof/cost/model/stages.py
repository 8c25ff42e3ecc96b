"""Which parts of a model each pipeline stage has, and how many micro-batches it holds.

A stage is a run of layers; the first one has what is before them, the last one what is behind. Where the number of stages is open, three
stages stand for all: the first, one in between, and the last. Where it is a number, every stage is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from placeproof.core.diagnostics import refuse
from placeproof.core.strategy import Strategy
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.parts import DeviceSegment
from placeproof.models import turns

#: Stages that are told one by one, at most: each takes some milliseconds.
MOST = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one device of a pipeline has: parts with how often each is repeated. ``index``: from 0, or None where it stands for many.

    ``first``, ``last``: whether it has what is before the layers, and what is behind them. ``end``: whether it is the last device.
    ``copies``: how often the model is held; ``held`` is then a share of what the device has, that of one copy on average. ``runs``: the
    model's stages that it has, by their numbers, where they are several and known one by one.
    """

    name: str
    index: int | None
    held: tuple[tuple[DeviceSegment, Amount], ...]
    first: bool = False
    last: bool = False
    end: bool = False
    copies: int = 1
    runs: Mapping[int, Stage] = field(default_factory=dict, hash=False)


def pipeline_axis(strategy: Strategy) -> str | None:
    """The axis that splits the layers."""
    return next((a.name for a in strategy.axes if a.splits.stages), None)


def stages(
    parts: Sequence[DeviceSegment], times: Mapping[str, Amount], degree: Amount | None, layers: Sequence[int] | None = None
) -> tuple[Stage, ...]:
    """The stages of a pipeline of so many devices; ``degree`` None: no pipeline, a symbol: open.

    ``times``: how often each part is repeated in the whole model. ``layers``: those of each stage, where they are not as many. Raises
    InputError where stages cannot have equally many layers and nothing else is said, and for more than :data:`MOST`.
    """
    repeated = [p for p in parts if p.repeats]
    before = tuple((p, times[p.name]) for p in parts if p in _ends(parts)[0])
    after = tuple((p, times[p.name]) for p in parts if p in _ends(parts)[1])
    if degree is None or degree == 1:
        every = tuple((p, times[p.name]) for p in parts)
        return (Stage(name="the only stage", index=0, held=every, first=True, last=True),)
    if not isinstance(degree, int):
        each = tuple((p, times[p.name] / degree) for p in repeated)
        if len(repeated) > 1:
            listed = " and ".join(f"`{p.name}`" for p in repeated)
            refuse("PP203", f"layers differ ({listed}), so that stages do", "say the number of stages: `pp(16)`")
        return (
            Stage(name="first stage", index=0, held=(*before, *each), first=True),
            Stage(name="each stage between", index=None, held=each),
            Stage(name="last stage", index=None, held=(*each, *after), last=True),
        )
    if degree > MOST:
        refuse("PP202", f"{degree} stages are told one by one, and at most {MOST} can be", "leave the degree open: `pp`")
    return tuple(_counted(before, after, repeated, times, _shares(repeated, times, degree, layers)))


def _ends(parts: Sequence[DeviceSegment]) -> tuple[list[DeviceSegment], list[DeviceSegment]]:
    """What is before the first layer, and what is behind the last one."""
    numbers = [i for i, p in enumerate(parts) if p.repeats]
    if not numbers:
        return list(parts), []
    return list(parts[: numbers[0]]), list(parts[numbers[-1] + 1 :])


def _shares(repeated: Sequence[DeviceSegment], times: Mapping[str, Amount], degree: int, layers: Sequence[int] | None) -> list[int]:
    """How many layers each stage has."""
    every = [times[p.name] for p in repeated]
    if any(not isinstance(n, int) for n in every):
        if layers is not None or len(repeated) > 1:
            refuse("PP203", "the number of layers is open, so that stages cannot be told", "give it: `--set L=32`")
        return []
    total = sum(every)
    if layers is not None:
        if len(layers) != degree or sum(layers) != total or min(layers) < 0:
            given = f"{len(layers)} stages with {sum(layers)} layers"
            help = f"list {degree} numbers whose sum is {total}; a stage may have 0"
            refuse("PP202", f"{given} are given, and there are {degree} stages and {total} layers", help)
        return list(layers)
    if total % degree:
        refuse(
            "PP202", f"{total} layers cannot be shared out evenly over {degree} stages", "say how many each stage has: `--stages 7,8x14,7`"
        )
    return [total // degree] * degree


def _counted(
    before: tuple[tuple[DeviceSegment, Amount], ...],
    after: tuple[tuple[DeviceSegment, Amount], ...],
    repeated: Sequence[DeviceSegment],
    times: Mapping[str, Amount],
    shares: list[int],
) -> list[Stage]:
    if not shares:
        refuse("PP203", "the number of layers is open, so that stages cannot be told", "give it: `--set L=32`")
    kinds = [p for turn in turns(repeated) for _ in range(times[turn[0].name]) for p in turn]
    stages = []
    for i, number in enumerate(shares):
        mine, kinds = kinds[:number], kinds[number:]
        members = tuple((p, mine.count(p)) for p in repeated if p in mine)
        first, last = i == 0, i == len(shares) - 1
        every = (*(before if first else ()), *members, *(after if last else ()))
        stages.append(Stage(name=f"stage {i}", index=i, held=every, first=first, last=last))
    return stages


def require_something(stages: Sequence[Stage]) -> None:
    """Raise InputError where a device would have no layer, and no end of the model either."""
    for stage in stages:
        if not stage.held:
            refuse("PP202", f"{stage.name} would have nothing: no layers, and neither embedding nor head", "give it layers: `--stages`")
