"""One exchange between devices as a running program makes it: what a prediction and a measurement are compared in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Exchange:
    """One call of a collective, or one message, as one device sees it.

    ``kind``: the collective's name in a step program (``all_gather``, ``send``, ...). ``axes``: the mesh axes that its group spans,
    in the order of the mesh. ``bytes``: of the tensor that the call is about, whatever travels: what an all-gather ends with, what a
    reduce-scatter begins with, the tensor of an all-reduce, a broadcast or a message, a device's own input of an all-to-all.
    ``op``: how a reduction combines ("sum", "mean", "max"), empty where data only move. ``phase``: "forward", "backward" or "update".
    """

    kind: str
    axes: tuple[str, ...]
    bytes: int
    op: str = ""
    phase: str = ""


def tally(exchanges: Iterable[Exchange]) -> Counter[tuple[str, tuple[str, ...], int]]:
    """How often each (kind, axes, bytes) occurs: equal tallies are the same traffic, in whatever order."""
    return Counter((e.kind, e.axes, e.bytes) for e in exchanges)
