"""How much of attention's work each device has where a sequence is cut into pieces over devices.

Source: Brandon et al. 2023, "Striped Attention", section 2; Megatron-LM's context parallelism gives each device one piece of the head
and one of the tail of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

#: The tokens of each device.
Cut = Sequence[Sequence[int]]


def contiguous(tokens: int, devices: int) -> Cut:
    """One piece a device."""
    size = tokens // devices
    return [range(d * size, (d + 1) * size) for d in range(devices)]


def zigzag(tokens: int, devices: int) -> Cut:
    """Two pieces a device: the d-th from the head and the d-th from the tail."""
    size = tokens // (2 * devices)
    pieces = [range(n * size, (n + 1) * size) for n in range(2 * devices)]
    return [[*pieces[d], *pieces[2 * devices - 1 - d]] for d in range(devices)]


def busiest(cut: Cut, causal: bool = True) -> int:
    """Pairs of a query and a key that the busiest device computes; with ``causal`` a query sees no later key."""
    tokens = sum(len(own) for own in cut)
    return max(sum(query + 1 if causal else tokens for query in own) for own in cut)
