"""Layers that are split by hand, of which each rank makes its own part: parameters that are no copies, and no parts of what was seen whole.

They begin otherwise on each rank of an axis over which activations are summed in forward, and their gradients are not reduced over it; and
the bias of a layer whose weight is one, if it is constant, ends otherwise. So does a copy that is initialised unlike. Numbers tell the two
apart (``derivative.py``): one device that has all parts side by side has to have one loss, on all ranks, whose derivative by each part is
what that part's rank makes, and no two ranks make the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from placeproof.measure.record.axes import Grid, ranks_of
from placeproof.measure.record.chain import Axes, refuse_lines
from placeproof.measure.record.experts import groups_of
from placeproof.measure.record.recording import Recording, State


def read_divided(recordings: Mapping[int, Recording], grid: Grid) -> dict[int, Axes]:
    """The parameters of which each rank of an axis has its own part, with that axis. Raises InputError where some are alike."""
    first = recordings[0]
    own: dict[int, Axes] = {}
    for axis in (a for a, size in grid.sizes.items() if size > 1 and _summed(first, grid, a)):
        matrices = {i for i in first.updates if first.states[i].dim > 1 and _unlike(recordings, grid, axis, i)}
        beside = {i for n in matrices for i in _biases(first, n)}
        biases = {i for i in beside for left in (False, True) if _unlike(recordings, grid, axis, i, left=left)}
        own |= dict.fromkeys(matrices | biases, (axis,))
    mixed = {_kind(first.states[i]) for i in own} & {_kind(first.states[i]) for i in {*first.updates} - {*own}}
    text = "`{}` begins otherwise on each rank, and others like it begin alike: parts of one tensor, or copies that are none?"
    refuse_lines(first.script, first.source, [(text.format(first.states[i].name), 0) for i in own if _kind(first.states[i]) in mixed][:8])
    return own


def _summed(recording: Recording, grid: Grid, axis: str) -> bool:
    """Whether activations are summed over an axis in forward, and nothing between layers is split: there copies are used apart, too."""
    inside = [e for e in recording.events if e.group and e.phase == "forward" and not e.states and grid.axes(e.group) == (axis,)]
    kinds = [e.kind for e in inside if e.turn == 0]
    last = max((n for n, kind in enumerate(kinds) if kind == "all_reduce"), default=-1)
    return last >= 0 and not {"reduce_scatter", "all_gather", "all_to_all"} & {*kinds[:last]} and "reduce_scatter" not in kinds


def _unlike(recordings: Mapping[int, Recording], grid: Grid, axis: str, index: int, *, left: bool = False) -> bool:
    """Whether a parameter that a rank has whole begins otherwise on each rank of an axis, and is not reduced over it; or is ``left`` so."""
    if any(index >= len(r.states) for r in recordings.values()):
        return False
    states = {rank: r.states[index] for rank, r in recordings.items()}
    values = {(grid.place(rank, axis), s.left if left else s.digest) for rank, s in states.items()}
    neighbour = recordings.get(grid.neighbour(axis))
    if neighbour is None or neighbour.samples != recordings[0].samples:  # ranks with samples of their own have copies
        return False
    if any(s.split is not None or s.gathered or s.part < s.numel or s.constant != left for s in states.values()):
        return False
    if any(axis in grid.axes(group) for s in states.values() for group in s.synced):
        return False
    terms = [(r.nodes, n) for r in recordings.values() for n in r.updates.get(index, ())]
    reduced = any(axis in grid.axes(ranks_of(k)) for nodes, n in terms for k in groups_of(nodes, n))
    return not reduced and 1 < len({digest for _, digest in values}) == len(values) == len({place for place, _ in values})


def _biases(recording: Recording, index: int) -> list[int]:
    """The bias of a layer that has a weight beside it and nothing else: what else a module has may be a copy, as the scale of a norm is."""
    module, _, name = recording.states[index].name.rpartition(".")
    own = {s.name.rpartition(".")[2]: i for i, s in enumerate(recording.states) if s.name.rpartition(".")[0] == module}
    return [own["bias"]] if name == "weight" and own.keys() == {"weight", "bias"} else []


def _kind(state: State) -> tuple[str, int]:
    """What parameters in one place of blocks that are alike have in common."""
    return re.sub(r"\d+", "", state.name), state.numel
