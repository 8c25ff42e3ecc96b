"""A whole pass of the flat model: the gradient of an element is what the sample gives, plus the sum of all parameters that the pass sees.

The devices of the axes that split the computation take part together: what one of them does not have it sees in another one's memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from placeproof.core.program import Call
from placeproof.measure.replay_file import Coordinates
from placeproof.measure.replay_mesh import Group
from placeproof.measure.replay_model import Element, Model
from placeproof.measure.replay_numbers import Numbers, stacked, zeros
from placeproof.measure.replay_values import Here, Part, Scalar

#: What :meth:`placeproof.measure.replay_mesh.Mesh.meet` is told of a pass.
PASS = 5


def axes_together(model: Model) -> tuple[str, ...]:
    """The axes whose devices compute one pass together."""
    axes = {a.name for a in model.program.axes if a.splits.compute} | {g.experts for g in model.program.groups if g.experts}
    return tuple(a.name for a in model.program.axes if a.name in axes)


def shares(model: Model, e: Element, at: Coordinates | None) -> tuple[str, ...]:
    """The shares in which an element's gradient is computed: by all devices, or those of one. The empty name is the whole."""
    declared = next((g for g in model.program.groups if g.name == e.group), None)
    if declared is not None and declared.tied:
        ends = (("first", 0), ("last", model.last_stage))
        return tuple(share for share, stage in ends if at is None or at[declared.tied] == stage)
    if declared is not None and declared.partial:
        axes = (declared.partial,)
        return tuple(str(i) for i in (range(model.degree(axes)) if at is None else (model.place(at, axes),)))
    return ("",)


def gives(
    model: Model, chosen: Sequence[bool], sample: Sequence[int], step: int, at: Coordinates | None
) -> tuple[list[Fraction], list[int]]:
    """Of each chosen element: what the sample gives alone, and how often the sum of the parameters is added."""
    own, seen = [], []
    for e, wanted in zip(model.elements, chosen, strict=True):
        of = shares(model, e, at) if wanted else ()
        own.append(sum((model.own_gradient(e, sample, step, share) for share in of), Fraction(0)))
        seen.append(sum(share in ("", "0", "first") for share in of))
    return own, seen


@dataclass(frozen=True, slots=True, eq=False)
class _Memories:
    """What every device of the group has, with what is found in its memory where it holds nothing."""

    here: Here
    model: Model
    group: Group
    extents: list[Tensor]
    numbers: Numbers

    def seen_by(self, i: int) -> Numbers:
        """The sum of all parameters as the i-th device sees them."""
        model, at = self.model, self.group.at[i]
        source = [self._source(i, n, e) for n, e in enumerate(model.elements)]
        found = self.numbers[torch.tensor([max(s, 0) for s in source]), torch.arange(len(source))]
        here = model.mask([s >= 0 for s in source])
        return (found if bool(here.all()) else found.where(here, self.here.nothing_at(at))).sum()

    def _source(self, i: int, n: int, e: Element) -> int:
        """Whose copy of an element the i-th device sees: its own, or that of the device which is apart by stage and slice alone."""
        if self.extents[i][n]:
            return i
        axes = self.model.slice_axes(e.group)
        apart = {*self.model.factors(axes), *self.model.factors((self.model.stages,) if self.model.stages else ())}
        for other, at in enumerate(self.group.at):
            if self.extents[other][n] and all(at[f] == c for f, c in self.group.at[i].items() if f not in apart):
                return other
        return -1


def gradient(here: Here, call: Call, w: Part, batch: int, statistic: Scalar) -> Part:
    """The gradient that this device finds in a pass over its samples of a micro-batch."""
    model, mesh = here.model, here.mesh
    group = mesh.group(model.factors(axes_together(model)))
    mesh.meet(group, call, PASS)
    mine = w.numbers if bool(w.held.all()) else w.numbers.where(w.held, here.nothing_at(here.at))
    extents = [m.to(torch.bool) for m in mesh.collect(group, w.extent.to(torch.int64), call)]
    memories = _Memories(here, model, group, extents, stacked(mesh.collected(group, mine, call)))
    weight = statistic if isinstance(statistic, Numbers) else Numbers.make(here.of, [statistic])[0]
    weights = mesh.collected(group, weight[None], call)
    total = zeros(here.of, len(w.held))
    for i, at in enumerate(group.at):
        reached = [there and _reaches(model, e, at, here.at) for there, e in zip(w.extent.tolist(), model.elements, strict=True)]
        if any(reached):
            own, seen = gives(model, reached, model.sample(at, batch), here.number, here.at)
            total = total + total.like(own, len(own)) * weights[i][0] + total.like(seen, len(seen)) * memories.seen_by(i)
    return w.with_numbers(total, w.extent)


def _reaches(model: Model, e: Element, sender: Coordinates, at: Coordinates) -> bool:
    """Whether a device's samples reach an element: its own, and for experts those of all that send tokens over the axis."""
    experts = next(g.experts for g in model.program.groups if g.name == e.group)
    if not experts:
        return sender == at
    along = model.factors((experts,))
    return all(sender[f] == n for f, n in at.items() if f not in along or f not in model.sample_factors)
