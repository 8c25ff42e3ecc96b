"""Copies of parameters that an optimizer has: whether they have the values that forward read, on this rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from placeproof.measure.record.nodes import ZERO, Nodes
from placeproof.measure.record.shadow import Shadows, local, storage

#: Where at most a part is looked for in one piece.
_STARTS = 4


def copied(
    owned: Tensor, forward: Mapping[int, tuple[int, Tensor]], shadows: Shadows, nodes: Nodes, *, values: bool
) -> Iterator[tuple[int, bool]]:
    """Of each parameter that an optimizer has a copy of: which one it is, and whether the copy has other values than what forward read.
    ``values``: these are compared at all. A copy may be a part, of another element type, or lie in another order, so that values alone
    are compared."""
    own = local(owned).detach()
    here = storage(own)
    read = {state: row for state, (place, row) in forward.items() if place != here}
    at, flat = 0, own.reshape(-1)
    for number, length in shadows.read(own).lengths():
        states = nodes.states(number) if number > ZERO and nodes.is_parameter(number) else ()
        for state in (s for s in states if s in read):
            part, of = flat[at : at + length], read[state]
            kind = min(part.dtype, of.dtype, key=lambda d: torch.finfo(d).bits)
            yield state, values and not _has(of.to(kind), part.to(kind))
        at += length


def _has(row: Tensor, part: Tensor) -> bool:
    """Whether a row has all values of a part: it is looked for in one piece first, which takes less than in any order."""
    starts = (row == part[0]).nonzero().flatten()[:_STARTS].tolist()
    return any(torch.equal(row[at : at + len(part)], part) for at in starts) or bool(torch.isin(part, row).all())


def read_whole(leaves: Iterable[Tensor], shadows: Shadows, nodes: Nodes) -> Iterator[tuple[int, tuple[int, Tensor]]]:
    """What forward read of parameters that were not gathered for it, and are there still, not updated."""
    for leaf in map(local, leaves):
        there = leaf.layout == torch.strided and bool(leaf.untyped_storage().nbytes())
        only = shadows.read(leaf).only if there else None
        if only is not None and only > ZERO and nodes[only].kind == "param":
            yield nodes[only].index, (storage(leaf), leaf.detach().reshape(-1))
