"""Whether gradients that stages of a pipeline make are derivatives of its losses, in numbers: parameters of all are moved at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.loss import gradients_of
from placeproof.measure.record.samples import Enough

#: How far parameters are moved, relative to the smallest move that all stages bear; and how near a difference has to be.
_MOVES = (1e-2, 1e-3, 1e-4)
_NEAR = 2e-2
#: How far away from where parameters are all of this is looked at, relative to their size.
_ASIDE = 0.1
_SEED = 3


@dataclass(slots=True, kw_only=True)
class Ran:
    """A run of a step. ``losses``: how many were read, and what they add up to; ``leaves``: parameters that were read, with the sums of
    their gradients; ``moved``: by a step in this direction, for each."""

    moved: Sequence[Tensor] = ()
    losses: int = 0
    total: float = 0.0
    leaves: list[tuple[Tensor, Tensor]] = field(default_factory=list)


@contextmanager
def moving(ran: Ran, turns: int, passes: int) -> Iterator[None]:
    """Move parameters when a module with them is run, beside a way off that is the same in all runs. ``turns`` losses and ``passes`` of
    this rank are read; the update ends the run."""
    backward, call, seen, count = torch.autograd.backward, nn.Module.__call__, set[int](), [0]

    def read(tensors: Any, *args: Any, **kwargs: Any) -> None:
        count[0] += 1
        if ran.losses < turns and not gradients_of(args, kwargs):
            ran.total += float(tensors if isinstance(tensors, Tensor) else next(iter(tensors)))
            ran.losses += 1
        backward(tensors, *args, **kwargs)

    def met(leaf: Tensor) -> None:
        seen.add(id(leaf))
        total = torch.zeros_like(leaf, dtype=torch.double)
        number = len(ran.leaves)
        ran.leaves.append((leaf.detach().clone(), total))
        leaf.data.add_(_aside(leaf, number))
        if number < len(ran.moved):
            leaf.data.add_(ran.moved[number].to(leaf.dtype))

        def made(gradient: Tensor) -> None:
            if count[0] <= passes:
                total.add_(gradient)

        leaf.register_hook(made)

    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes(), torch.no_grad():
            for leaf in (p for p in module.parameters() if p.requires_grad and id(p) not in seen):
                met(leaf)
        return call(module, *args, **kwargs)

    def updates(*_: Any) -> None:
        raise Enough

    with ExitStack() as stack:
        stack.callback(optimizers.register_optimizer_step_pre_hook(updates).remove)
        stack.enter_context(mock.patch.object(torch.autograd, "backward", read))
        stack.enter_context(mock.patch.object(nn.Module, "__call__", called))
        yield


def _aside(leaf: Tensor, number: int) -> Tensor:
    """A way off at random: where parameters are simple numbers, functions that are made of pieces may be between two of these."""
    generator = torch.Generator().manual_seed(_SEED * number + dist.get_rank())
    return torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype) * leaf.square().mean().sqrt() * _ASIDE


def disagrees(run: Callable[[Sequence[Tensor]], Ran], line: Sequence[int]) -> str:
    """What is wrong with gradients of a pipeline, whose ranks are these. ``run``: the step with parameters moved. All ranks call this."""
    leaves = run(()).leaves
    gradient = _flat([g for _, g in leaves])
    torch.manual_seed(_SEED + dist.get_rank())
    direction = torch.randn_like(gradient)
    size = float(gradient.norm()) / max(gradient.numel(), 1) ** 0.5 * float(_flat([p for p, _ in leaves]).square().mean().sqrt())
    sizes = _of_all(size)
    if not min(sizes):
        return "a stage makes no gradient that is not zero"
    direction *= min(sizes) / float(gradient.square().mean().sqrt())
    told, usual = _over(line, float(gradient @ direction)), _over(line, float((gradient * direction).square().sum())) ** 0.5
    text = ""
    for move in _MOVES:
        above, below = (run(_parts(direction * sign * move, [p for p, _ in leaves])).total for sign in (1, -1))
        moved = _over(line, (above - below) / (2 * move))
        near = abs(moved - told) <= _NEAR * max(abs(moved), abs(told), usual)
        if all(_of_all(float(near))):
            return ""
        text = f"losses do not change with the parameters of all stages as gradients say ({moved:.4g} and not {told:.4g})"
    return text


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """All elements, one after another."""
    return torch.cat([t.detach().double().reshape(-1) for t in tensors] or [torch.zeros(0)])


def _parts(whole: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    return [part.reshape(p.shape) for part, p in zip(whole.split([p.numel() for p in like]), like, strict=True)]


def _of_all(value: float) -> list[float]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _over(line: Sequence[int], value: float) -> float:
    """The sum over the ranks of a pipeline."""
    found = _of_all(value)
    return sum(found[rank] for rank in line)
