"""What layers that are split over an axis exchange: in forward where a block ends, in backward where one begins."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

from placeproof.measure.record.axes import Grid
from placeproof.measure.record.chain import Axes, refuse_lines
from placeproof.measure.record.recording import Recording, Seen
from placeproof.measure.record.treatment import ParameterSet


@dataclass(frozen=True, slots=True)
class Layers:
    """``forward`` and ``backward``: whether blocks exchange there at all; ``sequence``: by gathering and reducing to parts, so that what is
    between blocks is split too. ``lines``: of the script, for both."""

    axis: str
    forward: bool
    backward: bool
    sequence: bool
    lines: tuple[int, int]


@dataclass(slots=True)
class _Block:
    """Parameters between two exchanges of forward: what is used before those that are split, and those."""

    before: set[int]
    split: set[int]


def read_layers(recording: Recording, grid: Grid, hidden: Axes, split: Mapping[int, Axes]) -> Layers:
    """The exchanges within layers. Raises InputError where blocks do not do all the same."""
    if len(hidden) != 1:
        refuse_lines(recording.script, recording.source, [(f"the axes {', '.join(hidden)} split layers: one can be said", 0)])
    axis = hidden[0]
    inside = [
        e for e in recording.events if e.group and e.phase in ("forward", "backward") and e.turn <= 1 and grid.axes(e.group) == (axis,)
    ]
    inside = [e for e in inside if e.kind in ("all_reduce", "reduce_scatter", "all_gather")]
    sequence = any(e.kind == "reduce_scatter" for e in inside)
    ends = "reduce_scatter" if sequence else "all_reduce"
    forward = [e for e in inside if e.phase == "forward" and e.kind == ends and e.turn == 0]
    backward = [e for e in inside if e.phase == "backward" and e.kind == ends]
    blocks = _blocks(recording, [id(e) for e in forward], split)
    if forward:
        _ends(recording, [id(e) for e in inside if e.kind != "reduce_scatter"], split, forward[-1])
    back = _begins(recording, blocks, [id(e) for e in backward])
    if len(set(back)) > 1:
        refuse_lines(recording.script, recording.source, [("some blocks exchange in backward and some do not", backward[0].line)])
    if backward and back and not any(back):
        refuse_lines(recording.script, recording.source, [("what is exchanged in backward stands where no block begins", backward[0].line)])
    lines = (forward[0].line if forward else 0, backward[0].line if backward else 0)
    exchanged = back[0] if back else bool(forward)  # before the only block nothing gets a gradient, which would need one
    return Layers(axis, bool(forward), exchanged, sequence, lines)


def _blocks(recording: Recording, ends: list[int], split: Mapping[int, Axes]) -> list[_Block]:
    """The blocks of the first micro-batch, in the order of forward. Without any exchange, each run of parameters that are split is one."""
    blocks = [_Block(set(), set())]
    for event in recording.events:
        if event.turn > 0:
            break
        if id(event) in ends or (not ends and event.kind == "use" and blocks[-1].split and not event.states & set(split)):
            blocks.append(_Block(set(), set()))
        if event.kind == "use":
            own = event.states & set(split)
            blocks[-1].split |= own
            if not blocks[-1].split:
                blocks[-1].before |= event.states
    split_blocks = [b for b in blocks if b.split]
    alike = [sorted((re.sub(r"\d+", "", recording.states[i].name), recording.states[i].part) for i in b.split) for b in split_blocks]
    if any(a == sorted(b * 2) for a in alike for b in alike):
        refuse_lines(recording.script, recording.source, [("some blocks end with an exchange and some do not", 0)])
    return split_blocks


def _ends(recording: Recording, exchanges: list[int], split: Mapping[int, Axes], last: Seen) -> None:
    """What the last layer that is split computes is put together, also where that is no sum: the loss needs all of it."""
    events = [e for e in recording.events if e.turn == 0 and e.phase == "forward"]
    used = max((i for i, e in enumerate(events) if e.kind == "use" and e.states & set(split)), default=0)
    if last not in events[used:] and not any(id(e) in exchanges for e in events[used:]):
        names = sorted(recording.states[i].name for i in events[used].states & set(split))
        text = f"what is computed with `{names[0]}` is split over ranks, and not put together before the loss"
        refuse_lines(recording.script, recording.source, [(text, events[used].line)])


def _begins(recording: Recording, blocks: list[_Block], exchanges: list[int]) -> list[bool]:
    """For each block that needs one: whether there is an exchange in backward between its own gradients and those of what comes before."""
    order = [e for e in recording.events if (e.kind == "pass" and e.turn == 0) or id(e) in exchanges]
    begins = []
    for number, block in enumerate(blocks):
        earlier = block.before.union(*(b.split | b.before for b in blocks[:number]))
        first = next((i for i, e in enumerate(order) if e.states & block.split and e.kind == "pass"), None)
        last = next((i for i, e in enumerate(order) if e.kind == "pass" and e.states & earlier and first is not None and i > first), None)
        if first is not None and last is not None:
            begins.append(any(id(e) in exchanges for e in order[first:last]))
    return begins


def averaged(parts: Sequence[ParameterSet], layers: Layers, size: int) -> tuple[ParameterSet, ParameterSet, Fraction] | None:
    """Parameters of which nothing is exchanged, and others that are reduced over the axis along which layers are split, to a multiple of
    what each of its ``size`` ranks has; that multiple. All ranks make the same gradients of these, where blocks exchange theirs: their mean
    is what each has."""
    copies = sorted((p for p in parts if not p.split), key=lambda p: len(p.chain.inner + p.chain.outer))
    if len(copies) != 2 or layers.sequence or not (layers.forward and layers.backward):
        return None
    bare, reduced = copies
    steps = (*reduced.chain.inner, *reduced.chain.outer)
    reduces = [step for step in steps if step.kind != "scale"]
    once = [(s.kind, s.axes) for s in reduces] == [("all_reduce", (layers.axis,))] and reduces[0].op in ("sum", "mean")
    alike = bare.chain == replace(reduced.chain, inner=(), outer=()) and bare.chain.clip is None and bare.final == reduced.final
    if not once or not alike:
        return None
    return bare, reduced, prod((s.factor for s in steps), start=Fraction(size if reduces[0].op == "sum" else 1))
