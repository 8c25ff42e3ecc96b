"""Experts: parameters that each rank of an axis has of its own, to which tokens of all ranks of it are sent by all-to-all."""

from __future__ import annotations

import re
from collections.abc import Mapping

from placeproof.measure.record.axes import Grid, ranks_of
from placeproof.measure.record.chain import Axes, refuse_lines
from placeproof.measure.record.nodes import COLLECTIVES, Nodes
from placeproof.measure.record.recording import Recording, Seen, State


def number_alike(recordings: Mapping[int, Recording]) -> None:
    """Number and call what each rank has of its own as rank 0 does, where activations are sent by all-to-all.

    Ranks may have made others of the experts that they dropped, and call an expert by its number among all: those that the model has come
    first, in its order, and have the names of rank 0, if no rank has two of these, and names in one place differ in numbers alone.
    """
    first = recordings[0]
    if not _sent(first):
        return
    for recording in recordings.values():
        unnamed = [recording.states[i].name == f"parameter {i}" for i in range(len(recording.states))]
        recording.renumber(sorted(range(len(unnamed)), key=unnamed.__getitem__))
        for i in range(unnamed.count(False), len(unnamed)):
            recording.states[i].name = f"parameter {i}"
    for other in recordings.values():
        pairs = [(a, b) for a, b in zip(first.states, other.states, strict=False) if a.name != b.name]
        common = {s.name for s in first.states} & {s.name for s in other.states}
        if all(_without_numbers(a) == _without_numbers(b) and not {a.name, b.name} & common for a, b in pairs):
            for a, b in pairs:
                b.name = a.name


def _sent(recording: Recording) -> list[Seen]:
    """Where activations are sent by all-to-all."""
    return [e for e in recording.events if e.kind == "all_to_all" and not e.states]


def _without_numbers(state: State) -> tuple[str, int]:
    return re.sub(r"\d+", "", state.name), state.numel


def read_experts(recordings: Mapping[int, Recording], grid: Grid) -> dict[int, Axes]:
    """The parameters that are experts, with the axis along which they lie; none where no activations are sent by all-to-all.

    An expert begins otherwise on each rank of the axis, and its gradient is not reduced over it. Raises InputError where it is not seen
    what a parameter is.
    """
    first = recordings[0]
    sent = _sent(first)
    if not sent:
        return {}
    spans = {grid.axes(e.group) for e in sent}
    axis = min(spans)[0]
    texts = []
    if len(spans) > 1 or len(min(spans)) > 1 or axis not in grid.sizes:
        texts = [("what is sent by all-to-all over several axes cannot be said", sent[0].line)]
    elif len({tuple((s.name, s.numel) for s in r.states) for r in recordings.values()}) > 1:
        texts = [("ranks exchange by all-to-all, and their models do not have the same parameters, or call them otherwise", sent[0].line)]
    refuse_lines(first.script, first.source, texts)
    kinds = {index: _kind(recordings, grid, axis, index) for index in first.updates}
    unclear = [(kind.format(first.states[i].name, axis), sent[0].line) for i, kind in kinds.items() if kind not in ("shared", "expert")]
    refuse_lines(first.script, first.source, unclear[:8])
    found: dict[int, Axes] = {i: (axis,) for i, kind in kinds.items() if kind == "expert"}
    if not found:
        text = "what is exchanged by `all_to_all` is followed where it sends tokens to experts, and no parameter here is an expert"
        refuse_lines(first.script, first.source, [(text, sent[0].line)])
    return found


def _kind(recordings: Mapping[int, Recording], grid: Grid, axis: str, index: int) -> str:
    """What a parameter is: an "expert", "shared" by all ranks of the axis, or else what is wrong with it."""
    terms = [(r.nodes, n) for r in recordings.values() for n in r.updates.get(index, ())]
    reduced = any(axis in grid.axes(ranks_of(k)) for nodes, n in terms for k in groups_of(nodes, n))
    groups = [grid.axes(g) for r in recordings.values() for g in r.states[index].synced]
    values = {(grid.place(rank, axis), r.states[index].digest) for rank, r in recordings.items()}
    if len({digest for _, digest in values}) == 1 or any(axis in axes for axes in groups):
        unclear = "`{}` begins alike on ranks of `{}`, and its gradient is not reduced over it: an expert, or a copy that is not reduced?"
        return "shared" if reduced else unclear
    if len(values) > grid.sizes[axis] or len({digest for _, digest in values}) < grid.sizes[axis] or groups:
        return "`{}` is an expert on ranks of `{}` whose copies do not begin alike on all axes, or are sent, or of which two begin alike"
    return "expert"


def groups_of(nodes: Nodes, number: int) -> set[str]:
    """The groups over which the gradient that a term is made of was exchanged, but for the norm that clips it, and what cannot be said."""
    node = nodes[number]
    below = node.of[:1] if node.kind == "clipped" else node.of if node.kind != "unknown" else ()
    own = set(node.axes) if node.kind in COLLECTIVES else set()
    return own.union(*(groups_of(nodes, n) for n in below))
