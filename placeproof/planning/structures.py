"""What is derived once for many points of a grid: blocks under options, stages, and what they have of states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from placeproof.cost.model.parts import DeviceSegment
from placeproof.cost.model.vocabulary import MULTIPLE
from placeproof.planning.arrays import Array
from placeproof.planning.pool import inside
from placeproof.planning.space import Flow, Option, Space, strategy_text
from placeproof.planning.tables import Blocks, Stages, States
from placeproof.planning.task import Task
from placeproof.schedules import StageLayout, load


@dataclass(kw_only=True)
class Derived:
    """What was derived for some options and axes, whatever the number of devices and the batch."""

    segments: dict[tuple[tuple[bool, str, str, bool], tuple[bool, ...]], tuple[DeviceSegment, ...]] = field(default_factory=dict)
    blocks: dict[tuple[tuple[str, ...], bool, str, str, bool], Blocks] = field(default_factory=dict)
    states: dict[tuple[tuple[str, ...], str, bool, bool, tuple[int, Flow] | StageLayout, bool], States] = field(default_factory=dict)
    stages: dict[tuple[bool, tuple[int, Flow] | StageLayout], Stages] = field(default_factory=dict)


class Structures:
    """What is derived of a task for the points of a space. ``known``: what was derived of the same model on the same cluster."""

    def __init__(self, task: Task, space: Space, known: Derived) -> None:
        self.task, self.space, self.known = task, space, known
        self.tasks = {fp8: task.narrow(fp8) for fp8 in space.fp8}

    @property
    def alike(self) -> bool:
        """Whether all layers are of one kind: then stages differ in their ends alone."""
        return sum(str(segment.times) != "1" for segment in self.task.model.segments) < 2

    @cached_property
    def layers(self) -> int:
        """All of them."""
        model = self.task.model
        return sum(int(n) for segment, n in zip(model.segments, model.times().values(), strict=True) if str(segment.times) != "1")

    def vocabulary(self, tp: Array) -> Array:
        """Its size as it is padded, None of a model without one."""
        size = self.task.model.sizes.get("V")
        if size is None:
            return None
        unit = (self.task.padding or MULTIPLE) * tp
        whole = np.ceil(size / unit) * unit
        if self.task.padding == 0:
            return np.full(len(tp), float(size))
        return whole if self.task.padding else np.where(size % tp == 0, size, whole)

    def blocks_of(self, option: Option, axes: Sequence[str]) -> Blocks:
        """The blocks of a model, on meshes with several devices along these axes. Raises InputError."""
        key = (inside(axes), *option.key)
        if key not in self.known.blocks:
            self.known.blocks[key] = Blocks(self.tasks[option.fp8], replace(option, data="ddp"), inside(axes))
        return self.known.blocks[key]

    def stages_of(self, option: Option, blocks: Blocks, stages: int) -> Stages:
        """The stages of pipelines. ``stages``: how many, where layers differ. Raises InputError."""
        key = (stages > 1, self._laid(option, stages))
        if key not in self.known.stages:
            text = strategy_text(None, self._any(option, stages), ("pp",) if stages > 1 else ())
            self.known.stages[key] = Stages(blocks.task, text, blocks, self._several(stages))
        return self.known.stages[key]

    def states_of(self, axes: tuple[str, ...], option: Option, blocks: Blocks, stages: int, *, sums: bool) -> States:
        """What stages have of states. ``stages``: how many, where layers differ; ``sums``: whether gradients are added up by a loop
        of their own. Raises InputError."""
        key = (axes, option.data, option.sp, option.fp8, self._laid(option, stages), sums)
        if key not in self.known.states:
            of_any = replace(self._any(option, stages), attention="ring")
            text = strategy_text(None, of_any, axes, accumulate=sums)
            self.known.states[key] = States(blocks.task, text, blocks, self._several(stages))
        return self.known.states[key]

    def _several(self, stages: int) -> int | None:
        """How many stages there are, where that has to be known."""
        return stages if stages > 1 and not self.alike else None

    def _laid(self, option: Option, stages: int) -> tuple[int, Flow] | StageLayout:
        """What it depends on which layers stages have."""
        return (stages, option.flow) if self._several(stages) else load(option.flow.schedule).layout

    def _any(self, option: Option, stages: int) -> Option:
        """The same with a flow that stands for all that lay their stages so."""
        return replace(option, flow=Flow(schedule="1f1b")) if self._laid(option, stages) is StageLayout.LOOP else option
