"""Whether modules that exchange activations compute one function on all ranks, and whether backward gives its derivative, in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from placeproof.measure.record.samples import Enough
from placeproof.measure.recorder import NAMESPACES, TABLE

#: How far parameters are moved, relative to their size, until a difference is near the derivative; and how near.
_MOVES = (1e-2, 1e-3, 1e-4)
_NEAR = 2e-2
#: A module with what it is given.
_Run = Callable[[Any, Any], Any]
#: In how many directions each parameter is moved.
_DIRECTIONS = 2
_SEED = 1


@dataclass(slots=True)
class Checked:
    """What was found wrong, with lines of the script; ``inside``: a module is being run, or backward; ``turns``: backward passes so far."""

    line: Callable[[], int]
    wrong: list[tuple[str, int]] = field(default_factory=list)
    inside: int = 0
    turns: int = 0


@contextmanager
def checking(found: Checked, turns: int) -> Iterator[None]:
    """Check each call of a module that no other one calls. The last backward pass ends the run."""
    backward, call = torch.autograd.backward, nn.Module.__call__

    def counted(*args: Any, **kwargs: Any) -> None:
        found.turns += 1
        if found.turns == turns:
            raise Enough
        found.inside += 1
        backward(*args, **kwargs)
        found.inside -= 1

    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if found.inside or not torch.is_grad_enabled():
            return call(module, *args, **kwargs)
        found.inside += 1
        with torch.random.fork_rng(devices=()):
            _check(module, lambda a, k: call(module, *a, **k), args, kwargs, found)
        out = call(module, *args, **kwargs)
        found.inside -= 1
        return out

    with mock.patch.object(torch.autograd, "backward", counted), mock.patch.object(nn.Module, "__call__", called), _Outside(found):
        yield


class _Outside(TorchDispatchMode):
    """What is exchanged outside of all modules is not checked."""

    def __init__(self, found: Checked) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        row = TABLE.get(func._schema.name.rpartition("::")[2]) if func.namespace in NAMESPACES else None
        if row is not None and row.kind == "all_to_all" and not self.found.inside:
            text = "activations are exchanged outside of any module: whether all ranks compute the same function is not seen"
            self.found.wrong.append((text, self.found.line()))
        return func(*args, **(kwargs or {}))


def _check(module: nn.Module, run: _Run, args: Any, kwargs: Any, found: Checked) -> None:
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    shapes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shapes, [(tuple(t.shape), str(t.dtype)) for t in given])
    if any(s != shapes[0] for s in shapes):
        text = "ranks give this module tensors of other shapes: whether all compute one function of them is not seen"
    else:
        text = _same_function(run, args, kwargs) or _derivative(module, run, args, kwargs)
    found.wrong += [(text, found.line())] if text else []


def _results(run: _Run, args: Any, kwargs: Any) -> list[Tensor]:
    """What a module computes, always with the same random numbers."""
    torch.manual_seed(_SEED)
    return [t for t in tree_leaves(run(args, kwargs)) if isinstance(t, Tensor) and t.is_floating_point()]


def _same_function(run: _Run, args: Any, kwargs: Any) -> str:
    """What is wrong if ranks that all are given what one is do not compute what it does beside others that are given something else."""
    text = "ranks that are given the same samples do not compute the same: by other weights or random numbers, or what others are given"
    with torch.no_grad():
        own, lost = _results(run, args, kwargs), torch.zeros(())
        lost += not own
        for source in range(dist.get_world_size()):
            results = _results(run, *tree_map(lambda t, s=source: _sent(t, s), (args, kwargs)))
            lost += not all(torch.allclose(_sent(a, source), b, rtol=1e-4, atol=1e-6) for a, b in zip(own, results, strict=True))
    dist.all_reduce(lost)
    return text if float(lost) else ""


def _sent(value: Any, source: int) -> Any:
    """A tensor as a rank has it; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    copy = value.detach().clone().contiguous()
    dist.broadcast(copy, source)
    return copy


def _derivative(module: nn.Module, run: _Run, args: Any, kwargs: Any) -> str:
    """What is wrong if gradients are not those of all ranks' results, with weights at random, by the parameters of each rank."""
    inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.requires_grad]
    leaves = [*(p for p in module.parameters() if p.requires_grad), *inputs]
    results = _results(run, args, kwargs)
    torch.manual_seed(_SEED + 1 + dist.get_rank())
    weights = [torch.randn_like(t) * t.requires_grad for t in results]
    pairs = [(t, w) for t, w in zip(results, weights, strict=True) if t.requires_grad]
    with _unhooked(leaves):
        gradients = torch.autograd.grad([t for t, _ in pairs], leaves, [w for _, w in pairs], allow_unused=True)

    def weighed() -> list[Tensor]:
        return [t.double() * w for t, w in zip(_results(run, args, kwargs), weights, strict=True)]

    with torch.no_grad():
        wrong = [
            _disagrees(leaf, gradient, weighed, number)
            for leaf, gradient in zip(leaves, gradients, strict=True)
            for number in range(_DIRECTIONS)
        ]
    return max(wrong, default="")


def _disagrees(leaf: Tensor, made: Tensor | None, weighed: Callable[[], list[Tensor]], number: int) -> str:
    """What is wrong if results change with parameters, moved at random on all ranks at once, otherwise than gradients say. All ranks come
    to the same answer."""
    gradient = torch.zeros_like(leaf) if made is None else made
    torch.manual_seed(dist.get_rank() + dist.get_world_size() * (2 + number))
    size = max(float(leaf.square().mean().sqrt()), 1e-3)
    direction, before = torch.randn_like(leaf) * size, leaf.clone()
    expected, square = (gradient.double() * direction).sum(), (gradient.double().norm() * size) ** 2
    for move in _MOVES:
        leaf.data.copy_(before + move * direction)
        above = weighed()
        leaf.data.copy_(before - move * direction)
        change = sum(((a - b).sum() for a, b in zip(above, weighed(), strict=True)), start=torch.zeros((), dtype=torch.double))
        leaf.data.copy_(before)
        totals = torch.stack((change / (2 * move), expected, square, torch.tensor(float(made is not None), dtype=torch.double)))
        dist.all_reduce(totals)
        moved, told, usual, count = totals.tolist()
        if count and moved == told == usual == 0:
            return "nothing changes with a parameter of this module on any rank: give ranks samples that reach all of its experts"
        if abs(moved - told) <= _NEAR * max(abs(moved), abs(told), usual**0.5):
            return ""
    return "backward does not give the derivative of what ranks compute here: what forward exchanges, it does not exchange back"


@contextmanager
def _unhooked(leaves: Sequence[Tensor]) -> Iterator[None]:
    """What hooks do with gradients is followed, and is no part of the derivative."""
    hooks = [(h, dict(h)) for leaf in leaves if (h := leaf._backward_hooks)]
    for own, _ in hooks:
        own.clear()
    try:
        yield
    finally:
        for own, kept in hooks:
            own.update(kept)
