"""Flat tensors: where buckets of weights end, and what of a weight belongs to whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import lcm, prod

from placeproof.core.shapes import Weight


def up(number: int, divisor: int) -> int:
    """The least multiple of the divisor that is not below the number."""
    return -(-number // divisor) * divisor


def filled(weights: Iterable[Weight], limit: int) -> list[list[Weight]]:
    """Buckets of at most ``limit`` elements, in order; a weight that has more is one by itself."""
    buckets: list[list[Weight]] = []
    elements = 0
    for weight in weights:
        if not buckets or elements + weight.elements > limit:
            buckets.append([])
            elements = 0
        buckets[-1].append(weight)
        elements += weight.elements
    return buckets


def passed(sizes: Iterable[int], limit: int) -> list[int]:
    """Elements of buckets that are closed as soon as they have more than ``limit``."""
    buckets: list[int] = []
    open_ = False
    for size in sizes:
        buckets[-1:] = [buckets[-1] + size] if open_ else [*buckets[-1:], size]
        open_ = buckets[-1] <= limit
    return buckets


def slices(start: int, elements: int, part: int) -> list[tuple[int, int]]:
    """The parts of ``part`` elements that ``elements`` of a flat tensor lie in, from ``start`` on: (owner, elements of it)."""
    parts = []
    at, end = start, start + elements
    while at < end:
        owner = at // part
        stop = min(end, (owner + 1) * part)
        parts.append((owner, stop - at))
        at = stop
    return parts


def buffers(shapes: Sequence[tuple[int, ...]], limit: int | None, parts: int, *, aligned: bool, even: int) -> list[int]:
    """Elements of the buckets of one buffer, which holds tensors in this order; a bucket ends once it has ``limit`` elements.

    ``aligned``: tensors begin at multiples of 64, and buckets end at multiples of the number of parts, of 128 and of ``even``
    (megatron-core==0.16.1:megatron/core/distributed/param_and_grad_buffer.py, ``_pad_start_of_param_if_needed``,
    ``_pad_end_of_bucket_if_needed``).
    """
    ends: list[int] = []
    begin = at = 0
    some = False
    for shape in shapes:
        at = (up(at, 64) if aligned else at) + prod(shape)
        some = True
        if limit is not None and at - begin >= limit:
            at = up(at, lcm(parts, 128, even)) if aligned else at
            ends.append(at - begin)
            begin, some = at, False
    if some:
        ends.append((up(at, lcm(parts, 128, even)) if aligned else at) - begin)
    return ends
