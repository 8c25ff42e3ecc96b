"""Plans that were run, beside the best ones of the grid for the same question."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from placeproof.core.strategy import Strategy
from placeproof.planning.exact import Placed, Plan
from placeproof.planning.space import AXES, Flow, Option, Space, strategy_text
from placeproof.planning.structures import Derived
from placeproof.planning.task import Task
from placeproof.schedules import load
from placeproof.strategies import parse_strategy

#: Steps whose times differ by less are not explained.
NEAR = Fraction(3, 100)
#: What a term makes of a difference at least, to explain it.
MOST_OF = Fraction(1, 2)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A plan that was run. ``names``: of the rows that have it; ``theirs``: what is derived of it; ``ours``: the best plan of the grid,
    None where nothing fits; ``lacks``: what of theirs the grid has not."""

    names: tuple[str, ...]
    task: Task
    theirs: Placed
    ours: Plan | None
    lacks: tuple[str, ...]

    @property
    def beyond(self) -> Fraction:
        """Bytes of tensors alone beyond what their fullest device has; none of it is below 0."""
        return max(Fraction(0), self.theirs.peak - self.task.cluster.device.capacity)

    @property
    def more(self) -> Fraction | None:
        """What ours takes beyond theirs, as a share of theirs."""
        return None if self.ours is None else self.ours.seconds / self.theirs.seconds - 1

    @property
    def differences(self) -> dict[str, Fraction]:
        """What ours takes beyond theirs, term by term, as shares of theirs; empty where there is none."""
        if self.ours is None:
            return {}
        own, others = self.ours.step.terms, self.theirs.step.terms
        return {name: (own[name] - others[name]) / self.theirs.seconds for name in own}

    @property
    def cause(self) -> str:
        """The term that makes most of the difference; empty where these are near, or no term alone does."""
        if self.more is None or abs(self.more) <= NEAR:
            return ""
        sign = 1 if self.more > 0 else -1
        name, most = max(self.differences.items(), key=lambda item: sign * item[1])
        return name if sign * most >= MOST_OF * abs(self.more) else ""


def lacking(space: Space, strategy: Strategy, recompute: str, stages: Sequence[int]) -> tuple[str, ...]:
    """What of a strategy with all degrees a grid has not, whatever its schedule and what is ``recompute``d; ``stages``: layers of each run,
    where these are told."""
    degrees = {axis.name: axis.degree for axis in strategy.axes}
    chunks, schedule = strategy.schedule.chunks, strategy.schedule.in_flight or "1f1b"
    flow = Flow(schedule=schedule, chunks=int(chunks or load(schedule).chunks or 1))
    said = {
        "stages with different numbers of layers": len(set(stages)) > 1,
        f"recompute {recompute}": recompute not in space.recompute,
        f"schedule {flow.text}": "pp" in degrees and flow not in space.flows,
        "its placements": not any(_same(strategy, parse_strategy(text)) for text in _texts(space, degrees, flow)),
    }
    return tuple(what for what, is_so in said.items() if is_so)


def _texts(space: Space, degrees: dict[str, int | None], flow: Flow) -> list[str]:
    """Strategies of the grid's options on the mesh of these degrees."""
    meshes = [mesh for mesh in space.meshes if all(getattr(mesh, axis) == degrees.get(axis, 1) for axis in AXES)]
    options = [
        Option(data=data, sp=sp, attention=attention, recompute="none", fp8=False, flow=flow)
        for data, sp, attention in product(space.data, space.sp, space.attention)
    ]
    return [strategy_text(mesh, option, accumulate=mesh.pp == 1) for mesh in meshes for option in options]


def _same(one: Strategy, other: Strategy) -> bool:
    """Whether they place alike, whatever they are called and however many micro-batches there are."""
    schedules = [replace(s.schedule, microbatches=None) for s in (one, other)]
    placed = [{replace(entry, owner="") for entry in s.entries} for s in (one, other)]
    return one.axes == other.axes and schedules[0] == schedules[1] and placed[0] == placed[1]


def carried(known: Derived, task: Task) -> Derived:
    """What was derived of the same model, for a cluster whose devices are of the same architecture: seconds alone are others there."""
    blocks = {key: copy(one) for key, one in known.blocks.items()}
    states = {key: copy(one) for key, one in known.states.items()}
    for block in blocks.values():
        block.task = task.narrow(block.task.fp8)
    for state in states.values():
        state.task = task.narrow(state.task.fp8)
    return Derived(segments=dict(known.segments), blocks=blocks, states=states, stages=dict(known.stages))
