"""What a loss is, read off the graph that autograd keeps of it: a mean or a sum over how many elements, and which factor is around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import takewhile
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.factor import Divisor, rational
from placeproof.measure.record.recording import Turn

#: Losses that reduce themselves: what autograd calls them, and the saved tensor that says over how many elements.
_LOSSES = {
    "MseLossBackward0": "_saved_self",
    "L1LossBackward0": "_saved_self",
    "SmoothL1LossBackward0": "_saved_self",
    "HuberLossBackward0": "_saved_self",
    "MultiMarginLossBackward0": "_saved_self",
    "MultilabelMarginLossBackward0": "_saved_self",
    "SoftMarginLossBackward0": "_saved_self",
    "BinaryCrossEntropyBackward0": "_saved_self",
    "BinaryCrossEntropyWithLogitsBackward0": "_saved_self",
}
#: What leaves the elements of a loss as they are.
_THROUGH = (
    "AliasBackward0",
    "CloneBackward0",
    "ExpandBackward0",
    "SqueezeBackward0",
    "SqueezeBackward1",
    "ToCopyBackward0",
    "UnsafeViewBackward0",
    "UnsqueezeBackward0",
    "ViewBackward0",
    "_DDPSinkBackward",
)
#: Of what a penalty on weights is made.
_OF_WEIGHTS = frozenset(
    (
        *_THROUGH,
        *("AbsBackward0", "AccumulateGrad", "AddBackward0", "CatBackward0", "DivBackward0", "ExpBackward0", "LinalgVectorNormBackward0"),
        *("LogBackward0", "MeanBackward0", "MulBackward0", "NegBackward0", "NormBackward0", "NormBackward1", "PowBackward0"),
        *("ReshapeAliasBackward0", "SelectBackward0", "SoftplusBackward0", "SqrtBackward0", "StackBackward0", "SubBackward0"),
        *("SumBackward0", "SumBackward1", "TBackward0"),
    )
)
_REDUCTIONS = ("MeanBackward0", "MeanBackward1", "SumBackward0", "SumBackward1")
#: By which a loss is multiplied, from the outside in; what a loss is divided by is turned over.
Numbers = tuple[Fraction, ...]
#: How many operations may stand around a loss.
_DEEP = 400


def gradients_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor | None]:
    """The gradients with which a call of ``torch.autograd.backward`` begins; none for losses."""
    given = args[0] if args else kwargs.get("grad_tensors")
    each = [given] if given is None or isinstance(given, Tensor) else list(given)
    return each if any(g is not None for g in each) else []


def read_loss(loss: Tensor, line: int) -> Turn:
    """What a backward pass differentiates. A loss that is not read has a ``text`` that says where reading ended."""
    if loss.grad_fn is None:
        return unread("the loss has no graph", line)
    graph = (loss.grad_fn, loss.output_nr)
    terms = [replace(t, scaled=_scaled(graph)) for t in _terms(graph, (), line, _DEEP)]
    if any(t.summed for t in terms) and len({(t.summed, t.count, t.rows) for t in terms if not t.fixed}) > 1:
        terms = [_as_mean(t) for t in terms]
    first = max(terms, key=lambda t: (bool(t.text), not t.fixed, abs(t.factor)))
    if first.fixed:
        return unread("the loss is made of parameters alone", line)
    # what is made of parameters alone is the same for each sample: its own mean
    others = [replace(t, count=first.count, rows=first.rows) if t.fixed else t for t in terms if t is not first]
    with _disable_current_modes():
        first = replace(first, value=float(loss), rounding=256 * _rounding(loss))
    if first.text or not others:
        return first
    if any(t.summed or first.summed for t in others) and len({(t.summed, t.count, t.rows) for t in terms}) > 1:
        return unread("the loss adds up means and sums, or sums over other numbers of elements", line)
    beside = tuple((t.factor / first.factor, t.count, t.rows) for t in others)
    common = tuple(takewhile(lambda numbers: len({*numbers}) == 1, zip(*(t.numbers for t in terms), strict=False)))
    apart = tuple(n for t in terms for n in t.numbers[len(common) :])
    several = sum(not t.fixed for t in terms) > 1
    return replace(first, beside=beside, common=tuple(numbers[0] for numbers in common), apart=apart, several=several)


def _as_mean(term: Turn) -> Turn:
    """A sum that is divided by its samples, or its elements, is a multiple of their mean."""
    place = next((i for i, n in enumerate(term.numbers) if isinstance(n, Divisor) and 1 / n in (term.rows, term.count)), None)
    if not term.summed or term.text or place is None:
        return term
    times = Fraction(term.count) * term.numbers[place]
    numbers = (*term.numbers[:place], *((times,) if times != 1 else ()), *term.numbers[place + 1 :])
    return replace(term, summed=False, factor=prod(numbers, start=Fraction(1)), numbers=numbers)


def _rounding(loss: Tensor) -> float:
    """That of the type in which samples are added up: what multiplies their sum may be of a finer one."""
    left, eps = [loss.grad_fn], float(torch.finfo(loss.dtype).eps)
    while left:
        node: Any = left.pop()
        eps = max(eps, *(torch.finfo(made.dtype).eps for made in node._input_metadata if made.dtype.is_floating_point), 0.0)
        if type(node).__name__ in (*_THROUGH, *_MULTIPLIED, "AddBackward0", "NegBackward0", "SubBackward0"):
            left += [below for below, _ in node.next_functions if below is not None]
    return eps


def _terms(result: tuple[Any, int], numbers: Numbers, line: int, deep: int) -> Iterator[Turn]:
    """The means and sums that a loss is the sum of, each with the numbers around it. ``result``: a node of the graph, and which result."""
    node, number = result
    name = type(node).__name__
    if not deep:
        yield unread("the graph of the loss is too deep", line)
    elif _fixed(node):
        yield replace(_sized((), numbers, False, line), fixed=True)
    elif name.startswith("NllLoss"):
        yield _counted(node, numbers, line)
    elif name in _LOSSES:
        yield _reduced(node, numbers, int(node._saved_reduction) == 2, getattr(node, _LOSSES[name]), line)
    elif name in _REDUCTIONS:
        yield from _over(node, numbers, line, deep)
    elif name == "AddBackward0" and (classes := _smoothed(node)) is not None:
        yield _counted(classes, numbers, line)
    elif name == "DivBackward1" and (sizes := _likely(node)):
        yield replace(_sized(sizes, numbers, False, line), count=prod(sizes) // sizes[1])
    elif name in ("AddBackward0", "SubBackward0"):
        second = (rational(float(node._saved_alpha)) or Fraction(0)) * (-1 if name == "SubBackward0" else 1)
        for part, branch in zip((Fraction(1), second), node.next_functions, strict=True):
            if branch[0] is not None:
                yield from _terms(branch, _with(numbers, part), line, deep - 1)
    elif (weighted := _weighted(node, name)) is not None:
        yield from _terms(weighted, numbers, line, deep - 1)
    elif (around := _around(node, name)) is None:
        yield unread(_WHERE.get(name, f"the loss ends in `{name.removesuffix('Backward0')}`, neither a mean nor a sum"), line)
    else:
        yield from _terms(_below(node, number), _with(numbers, around), line, deep - 1)


def _fixed(node: Any) -> bool:
    """Whether a result is made of parameters and numbers alone, as a penalty on weights is."""
    left, seen = [node], set[Any]()
    while left:
        one = left.pop()
        if one in seen:
            continue
        seen.add(one)
        name, below = type(one).__name__, [b for b, _ in one.next_functions]
        if None in below or name not in _OF_WEIGHTS or (name == "AccumulateGrad" and not isinstance(one.variable, nn.Parameter)):
            return False  # an operand that is in no graph may be made of samples
        left += below
    return True


def _smoothed(node: Any) -> Any:
    """The part of a loss with smoothed labels that is of the classes: the other one is over the same targets. None for another sum."""
    parts = [below for below, _ in node.next_functions]
    if [type(part).__name__ for part in parts] != ["MulBackward1", "MulBackward1"]:
        return None
    classes, rest = (_below(part)[0] for part in parts)
    if not type(classes).__name__.startswith("NllLoss"):
        return None
    count, divided = _counted(classes, (), 0).count, None
    if type(rest).__name__ == "DivBackward0":
        divided, rest = _other(rest), _below(rest)[0]
    alike = True
    for name in ("SumBackward0", "MaskedFillBackward0", "NegBackward0", "SumBackward1"):
        alike &= type(rest).__name__ == name
        rest = _below(rest)[0] if rest is not None else None
    alike &= rest is _below(classes)[0]
    means = int(classes._saved_reduction) == 1
    return classes if alike and means == (divided is not None) and (not means or divided == count) else None


def _likely(node: Any) -> tuple[int, ...]:
    """The sizes of what a loss of likelihoods of all classes adds up, if it is divided by the number of its targets."""
    negated = _below(node)[0]
    summed: Any = _below(negated)[0] if type(negated).__name__ == "NegBackward0" else None
    if type(summed).__name__ != "SumBackward0" or type(_below(summed)[0]).__name__ != "MulBackward0":
        return ()
    sizes = tuple(int(n) for n in summed._saved_self_sym_sizes)
    return sizes if len(sizes) > 1 and node._saved_other * sizes[1] == prod(sizes) else ()


def _scaled(result: tuple[Any, int]) -> bool:
    """Whether numbers are around a loss, though they may come to 1."""
    node, number = result
    while (name := type(node).__name__) in _THROUGH:
        node, number = _below(node, number)
    return name in _MULTIPLIED


_MULTIPLIED = ("DivBackward0", "DivBackward1", "MulBackward0", "MulBackward1")
_WHERE = dict.fromkeys(_MULTIPLIED, "the loss is multiplied or divided by another tensor")


def _below(node: Any, number: int = 0) -> tuple[Any, int]:
    """What the result of a node that has one operand in the graph is made of."""
    if type(node).__name__ == "_DDPSinkBackward":  # it hands on what it gets, each by itself
        return node.next_functions[number]  # type: ignore[no-any-return]
    return next((b for b in node.next_functions if b[0] is not None), (None, 0))


def _around(node: Any, name: str) -> Fraction | None:
    """By what a node multiplies its one operand in the graph; None where it does something else."""
    if name in _THROUGH:
        return Fraction(1)
    if name in ("NegBackward0", "RsubBackward1"):
        return Fraction(-1)
    inside = [i for i, (below, _) in enumerate(node.next_functions) if below is not None]
    if name not in _MULTIPLIED or len(inside) != 1 or (name == "DivBackward0" and inside != [0]):
        return None
    number = _other(node)
    return None if not number else number if name.startswith("Mul") else Divisor(1 / number)


def _weighted(node: Any, name: str) -> tuple[Any, int] | None:
    """What a node multiplies by a single number of the model, or divides by one, as a learned weight of a task: it is the same for all
    samples."""
    if name not in ("MulBackward0", "DivBackward0") or any(below is None for below, _ in node.next_functions):
        return None
    for place, weight in ((0, 1), (1, 0)):
        single = all(n == 1 for n in node.next_functions[weight][0]._input_metadata[node.next_functions[weight][1]].shape)
        if single and _fixed(node.next_functions[weight][0]) and (place == 0 or name == "MulBackward0"):
            return node.next_functions[place]  # type: ignore[no-any-return]
    return None


def _over(node: Any, numbers: Numbers, line: int, deep: int) -> Iterator[Turn]:
    """A mean or a sum: of losses of their own that were stacked, or over samples, or of what was taken over all samples before."""
    sizes, summed, inner = tuple(node._saved_self_sym_sizes), type(node).__name__.startswith("Sum"), _below(node)[0]
    while inner is not None and type(inner).__name__ in ("AliasBackward0", "CloneBackward0", "ToCopyBackward0"):
        inner = _below(inner)[0]
    name = type(inner).__name__
    if name == "StackBackward0" and sizes == (len(inner.next_functions),):
        for branch in inner.next_functions:
            if branch[0] is not None:
                yield from _terms(branch, _with(numbers, Fraction(1, 1 if summed else sizes[0])), line, deep - 1)
    elif name in _REDUCTIONS and _over_samples(inner):
        yield from _over(inner, numbers, line, deep - 1)
    else:
        read = _sized(sizes, numbers, summed, line)
        yield replace(read, count=_masked(_below(node), read.count)) if summed else read


def _masked(result: tuple[Any, int], count: int) -> int:
    """How many elements of a sum count: of those that are multiplied by zeros and ones, or filled with a number where a mask is."""
    node, number = result
    while type(node).__name__ in (*_THROUGH, "NegBackward0"):
        node, number = _below(node, number)
    name, mask = type(node).__name__, None
    with _disable_current_modes():
        if name.startswith("MaskedFill"):
            mask = (~node._saved_mask).to(torch.int8)
        elif name == "MulBackward0":
            mask = next((m for m in (node._saved_other, node._saved_self) if isinstance(m, Tensor) and m.grad_fn is None), None)
        if mask is None or mask.numel() < 2 or mask.requires_grad or not ((mask == 0) | (mask == 1)).all():
            return count
        counted: int = int(mask.sum()) * (count // mask.numel())
        return counted


def _over_samples(node: Any) -> bool:
    """Whether a mean or a sum is, among others, over the first dimension, or over all."""
    rank, over = len(node._saved_self_sym_sizes), getattr(node, "_saved_dim", ())
    return not over or any(_signed(int(d)) % rank == 0 for d in over)


def unread(text: str, line: int) -> Turn:
    """A backward pass of which it is not known what it differentiates."""
    return Turn(factor=Fraction(1), summed=False, count=0, rows=0, line=line, text=text)


def _reduced(node: Any, numbers: Numbers, summed: bool, over: Tensor, line: int) -> Turn:
    if int(node._saved_reduction) == 0:
        return unread("the loss is not reduced", line)
    return _sized(tuple(over.shape), numbers, summed, line)


def _counted(node: Any, numbers: Numbers, line: int) -> Turn:
    """A loss of classes: targets that are ignored do not count."""
    targets, ignored, weights = node._saved_target, node._saved_ignore_index, node._saved_weight
    reduction = int(node._saved_reduction)
    if reduction == 1 and weights is not None:
        return unread("the loss is a mean with the weights of its classes, of which targets have other sums on other ranks", line)
    read = _reduced(node, numbers, reduction == 2, targets, line)
    with _disable_current_modes():
        return replace(read, count=int((targets != _signed(ignored)).sum())) if not read.text else read


def _signed(number: int) -> int:
    """A whole number as autograd keeps it, without its sign."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _sized(sizes: tuple[int, ...], numbers: Numbers, summed: bool, line: int) -> Turn:
    count = 1
    for size in sizes:
        count *= int(size)
    factor, rows = prod(numbers, start=Fraction(1)), int(sizes[0]) if sizes else 1
    return Turn(factor=factor, summed=summed, count=count, rows=rows, line=line, numbers=numbers)


def _with(numbers: Numbers, number: Fraction) -> Numbers:
    return numbers if number == 1 else (*numbers, number)


def _other(node: Any) -> Fraction | None:
    """The number by which a loss is multiplied or divided."""
    for name in ("_saved_other", "_saved_self"):
        value: Any = getattr(node, name, None)
        if isinstance(value, Tensor) and type(value) is Tensor and value.numel() == 1 and value.grad_fn is None:
            with _disable_current_modes():
                return rational(value.item())
        if isinstance(value, (int, float)):
            return rational(float(value))
    return None
