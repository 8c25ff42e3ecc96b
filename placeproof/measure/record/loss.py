"""What a loss is, read off the graph that autograd keeps of it: a mean or a sum over how many elements, and which factor is around it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.recording import Turn

#: Losses that reduce themselves: what autograd calls them, and the saved tensor that says over how many elements.
_LOSSES = {
    "MseLossBackward0": "_saved_self",
    "L1LossBackward0": "_saved_self",
    "SmoothL1LossBackward0": "_saved_self",
    "HuberLossBackward0": "_saved_self",
    "BinaryCrossEntropyBackward0": "_saved_self",
    "BinaryCrossEntropyWithLogitsBackward0": "_saved_self",
}
_THROUGH = (
    "AddBackward0",
    "ViewBackward0",
    "AliasBackward0",
    "CloneBackward0",
    "ToCopyBackward0",
    "SqueezeBackward0",
    "UnsqueezeBackward0",
)


def read_loss(loss: Tensor, line: int) -> Turn:
    """What a backward pass differentiates. A loss that is not read has a ``text`` that says where reading ended."""
    factor, node = Fraction(1), loss.grad_fn
    for _ in range(100):
        if node is None:
            return _unread("the loss has no graph", line)
        name = type(node).__name__
        if name.startswith("NllLoss"):
            return _counted(node, factor, line)
        if name in _LOSSES:
            return _reduced(node, factor, int(node._saved_reduction) == 2, getattr(node, _LOSSES[name]), line)  # type: ignore[attr-defined]
        if name in ("MeanBackward0", "MeanBackward1", "SumBackward0", "SumBackward1"):
            sizes = tuple(node._saved_self_sym_sizes)  # type: ignore[attr-defined]
            return _sized(sizes, factor, name.startswith("Sum"), line)
        if name in ("DivBackward0", "MulBackward0"):
            number = _other(node)
            if number is None:
                return _unread("the loss is multiplied or divided by another tensor", line)
            factor *= 1 / number if name == "DivBackward0" else number
        elif name == "NegBackward0":
            factor = -factor
        elif name not in _THROUGH:
            return _unread(f"the loss ends in `{name.removesuffix('Backward0')}`, neither a mean nor a sum", line)
        node = next((n for n, _ in node.next_functions if n is not None), None)
    return _unread("the graph of the loss is too deep", line)


def _unread(text: str, line: int) -> Turn:
    return Turn(factor=Fraction(1), summed=False, count=0, rows=0, line=line, text=text)


def _reduced(node: Any, factor: Fraction, summed: bool, over: Tensor, line: int) -> Turn:
    if int(node._saved_reduction) == 0:
        return _unread("the loss is not reduced", line)
    return _sized(tuple(over.shape), factor, summed, line)


def _counted(node: Any, factor: Fraction, line: int) -> Turn:
    """A loss of classes: targets that are ignored do not count."""
    targets, ignored, weights = node._saved_target, node._saved_ignore_index, node._saved_weight
    reduction = int(node._saved_reduction)
    if reduction == 1 and weights is not None:
        return _unread("the loss is a mean with the weights of its classes, of which targets have other sums on other ranks", line)
    read = _reduced(node, factor, reduction == 2, targets, line)
    with _disable_current_modes():
        return replace(read, count=int((targets != _signed(ignored)).sum())) if not read.text else read


def _signed(number: int) -> int:
    """A whole number as autograd keeps it, without its sign."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _sized(sizes: tuple[int, ...], factor: Fraction, summed: bool, line: int) -> Turn:
    count = 1
    for size in sizes:
        count *= int(size)
    return Turn(factor=factor, summed=summed, count=count, rows=int(sizes[0]) if sizes else 1, line=line)


def _other(node: Any) -> Fraction | None:
    """The number by which a loss is multiplied or divided."""
    for name in ("_saved_other", "_saved_self"):
        value: Any = getattr(node, name, None)
        if isinstance(value, Tensor) and type(value) is Tensor and value.numel() == 1 and not value.requires_grad:
            with _disable_current_modes():
                return rational(value.item())
        if isinstance(value, (int, float)):
            return rational(float(value))
    return None


def rational(value: float) -> Fraction | None:
    """A floating-point number as the simple fraction that it stands for; None for one that stands for none."""
    if not isfinite(value):
        return None
    near = Fraction(value).limit_denominator(1 << 20)
    close = near != 0 and abs(float(near) - value) <= 1e-12 * abs(value)
    single = near != 0 and float(torch.tensor(float(near), dtype=torch.float32)) == value
    return near if close or single else None
