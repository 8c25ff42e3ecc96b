"""Which parts of a model each pipeline stage has, and how many micro-batches it holds.

A stage is a run of layers; the first one has what is before them, the last one what is behind. Where the number of stages is open, three
stages stand for all: the first, one in between, and the last. Where it is a number, every stage is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from placeproof.core.diagnostics import refuse
from placeproof.core.strategy import Strategy
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.model.extents import Layers, Members, Replay, Run
from placeproof.cost.model.parts import DeviceSegment
from placeproof.cost.model.recomputation import Extent

#: Stages that are told one by one, at most: each takes some milliseconds.
MOST = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one device of a pipeline has: parts with how often each is repeated. ``index``: from 0, or None where it stands for many.

    ``first``, ``last``: whether it has what is before the layers, and what is behind them. ``end``: whether it is the last device.
    ``copies``: how often the model is held; ``held`` is then a share of what the device has, that of one copy on average. ``runs``: the
    model's stages that it has, by their numbers, where they are several and known one by one; ``several``: whether they are several.
    ``replays``: what backward computes again at once of its layers, where that is not each by itself.
    """

    name: str
    index: int | None
    held: Members
    first: bool = False
    last: bool = False
    end: bool = False
    copies: int = 1
    runs: Mapping[int, Stage] = field(default_factory=dict, hash=False)
    several: bool = False
    replays: tuple[Replay, ...] = ()


def pipeline_axis(strategy: Strategy) -> str | None:
    """The axis that splits the layers."""
    return next((a.name for a in strategy.axes if a.splits.stages), None)


def stages(
    parts: Sequence[DeviceSegment],
    times: Mapping[str, Amount],
    degree: Amount | None,
    layers: Sequence[int] | None = None,
    *,
    extent: Extent | None = None,
    runs: Amount = 1,
) -> tuple[Stage, ...]:
    """The stages of a pipeline of so many devices; ``degree`` None: no pipeline, a symbol: open.

    ``times``: how often each part is repeated in the whole model. ``layers``: those of each stage, where they are not as many. ``extent``:
    of which layers of a run recomputation is; ``runs``: those of a device, where the degree is open. Raises InputError where stages cannot
    have equally many layers and nothing else is said, where recomputation is said of other stages, and for more than :data:`MOST`.
    """
    if extent is not None and extent.by_stage and len(extent.by_stage) != (1 if degree is None else degree):
        given = "no pipeline" if degree is None else f"a pipeline of {degree}" if isinstance(degree, int) else "one of an open number"
        message = f"the layers that each of {len(extent.by_stage)} stages computes again are given, and there is {given}"
        refuse("PP202", message, help="say as many numbers as stages, `full:3,1x6,0`, or one for all: `full:3`")
    repeated = [p for p in parts if p.repeats]
    kinds = Layers(kinds=repeated, extent=extent)
    before, after = (tuple((p, times[p.name]) for p in ends) for ends in _ends(parts))
    if degree is None or degree == 1:
        return (_stage(kinds.all(times), before, after, name="all layers", index=0, first=True, last=True),)
    if not isinstance(degree, int):
        if len(repeated) > 1:
            listed = " and ".join(f"`{p.name}`" for p in repeated)
            refuse("PP203", f"layers differ ({listed}), so that stages do", "say the number of stages: `pp(16)`")
        each = kinds.alike(times[repeated[0].name] / degree, runs) if repeated else Run(held=())
        return (
            _stage(each, before, after, name="first stage", index=0, first=True),
            _stage(each, before, after, name="each stage between", index=None),
            _stage(each, before, after, name="last stage", index=None, last=True),
        )
    if degree > MOST:
        refuse("PP202", f"{degree} stages are told one by one, and at most {MOST} can be", "leave the degree open: `pp`")
    return tuple(_counted(before, after, kinds, times, _shares(repeated, times, degree, layers)))


def _stage(run: Run, before: Members, after: Members, *, name: str, index: int | None, first: bool = False, last: bool = False) -> Stage:
    """A stage that has a run of layers, and the ends that it is at."""
    held = (*(before if first else ()), *run.held, *(after if last else ()))
    return Stage(name=name, index=index, held=held, first=first, last=last, replays=run.replays)


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


def _counted(before: Members, after: Members, kinds: Layers, times: Mapping[str, Amount], shares: list[int]) -> Iterator[Stage]:
    if not shares:
        refuse("PP203", "the number of layers is open, so that stages cannot be told", "give it: `--set L=32`")
    layers = kinds.in_order({p.name: n for p in kinds.kinds if isinstance(n := times[p.name], int)})
    for i, number in enumerate(shares):
        mine, layers = layers[:number], layers[number:]
        yield _numbered(kinds.of(mine, i), before, after, i, len(shares))


def _numbered(run: Run, before: Members, after: Members, number: int, degree: int) -> Stage:
    return _stage(run, before, after, name=f"stage {number}", index=number, first=number == 0, last=number == degree - 1)


def stage_of(
    parts: Sequence[DeviceSegment], times: Mapping[str, int], number: int, degree: int, layers: Sequence[str], extent: Extent | None
) -> Stage:
    """A stage of a pipeline of so many, by its number, that has these layers, by the names of their parts. Other arguments as of
    :func:`stages`."""
    of_layers = Layers(kinds=[p for p in parts if p.repeats], extent=extent)
    before, after = (tuple((p, times[p.name]) for p in ends) for ends in _ends(parts))
    return _numbered(of_layers.of(layers), before, after, number, degree)


def require_something(stages: Sequence[Stage]) -> None:
    """Raise InputError where a device would have no layer, and no end of the model either."""
    for stage in stages:
        if not stage.held:
            refuse("PP202", f"{stage.name} would have nothing: no layers, and neither embedding nor head", "give it layers: `--stages`")
