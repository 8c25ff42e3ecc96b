"""How tensors are cut into parts, and what the parts weigh: elements, exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from placeproof.core.shapes import Weight

Shape = tuple[int, ...]


def local_shape(weight: Weight, degree: int) -> Shape:
    """The shape of a weight's part where an axis of ``degree`` devices splits the hidden dimension evenly."""
    if weight.split is None:
        return weight.shape
    return tuple(size // degree if dim == weight.split else size for dim, size in enumerate(weight.shape))


def _rest(shape: Shape) -> int:
    return prod(shape[1:])


def padded(cut: str, shapes: Sequence[Shape], parts: int) -> int:
    """Elements of some tensors as a collective carries them: each padded, or all together as one flat tensor."""
    if cut == "rows":
        return sum(-(-shape[0] // parts) * parts * _rest(shape) for shape in shapes)
    every = sum(prod(shape) for shape in shapes)
    return -(-every // parts) * parts if cut == "flat" else every


def rows(shape: Shape, parts: int, part: int) -> int:
    """The rows of a tensor that belong to one of ``parts`` devices."""
    most = -(-shape[0] // parts)
    return max(0, min(most, shape[0] - part * most))


def own(cut: str, shapes: Sequence[Shape], parts: int, part: int) -> int:
    """Elements of some tensors that belong to one of ``parts`` devices. Padding is counted where it lies within one flat tensor."""
    if cut == "rows":
        return sum(rows(shape, parts, part) * _rest(shape) for shape in shapes)
    every = sum(prod(shape) for shape in shapes)
    if cut == "flat":
        return -(-every // parts)
    return (part + 1) * every // parts - part * every // parts


def dealt(shapes: Sequence[Shape], parts: int) -> list[int]:
    """Who gets which whole tensor: the largest first, each to the device that has least so far, the first of several."""
    owners, elements = [0] * len(shapes), [0] * parts
    for index in sorted(range(len(shapes)), key=lambda i: -prod(shapes[i])):
        owners[index] = min(range(parts), key=elements.__getitem__)
        elements[owners[index]] += prod(shapes[index])
    return owners


def buckets(weights: Sequence[Weight], size: Callable[[Weight], int], first: int, rest: int) -> list[list[Weight]]:
    """Weights in the order in which they come, each bucket closed as soon as it holds its limit, in bytes."""
    groups: list[list[Weight]] = []
    filled, limit = 0, first
    for weight in weights:
        if not groups or filled >= limit:
            limit = first if not groups else rest
            groups.append([])
            filled = 0
        groups[-1].append(weight)
        filled += size(weight)
    return groups
