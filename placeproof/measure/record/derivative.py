"""Whether gradients that ranks make are derivatives of their losses, in numbers: parameters are moved at random, of all stages of a
pipeline at once, or of all parts of layers that are split."""

from __future__ import annotations

import re
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
#: Up to which part of themselves losses, and gradients, of two ranks are the same.
_SAME = 1e-4
_SEED = 3


@dataclass(slots=True, kw_only=True)
class Ran:
    """A run of a step. ``losses``: how many were read, and what they add up to; ``leaves``: parameters that were read, with the sums of
    their gradients; ``names``: of these; ``moved``: by a step in this direction, for each. ``place``: of ranks, with which directions of a
    parameter differ; by default each rank has its own."""

    moved: Sequence[Tensor] = ()
    place: Callable[[str], int] = lambda _: dist.get_rank()
    losses: int = 0
    total: float = 0.0
    leaves: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


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

    def met(name: str, leaf: Tensor) -> None:
        seen.add(id(leaf))
        total = torch.zeros_like(leaf, dtype=torch.double)
        number = len(ran.leaves)
        ran.leaves.append((leaf.detach().clone(), total))
        ran.names.append(name.removeprefix("module."))
        leaf.data.add_(_aside(leaf, _SEED * number + ran.place(ran.names[-1])))
        if number < len(ran.moved):
            leaf.data.add_(ran.moved[number].to(leaf.dtype))

        def made(gradient: Tensor) -> None:
            if count[0] <= passes:
                total.add_(gradient)

        leaf.register_hook(made)

    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes(), torch.no_grad():
            for name, leaf in ((n, p) for n, p in module.named_parameters() if p.requires_grad and id(p) not in seen):
                met(name, leaf)
        return call(module, *args, **kwargs)

    def updates(*_: Any) -> None:
        raise Enough

    with ExitStack() as stack:
        stack.callback(optimizers.register_optimizer_step_pre_hook(updates).remove)
        stack.enter_context(mock.patch.object(torch.autograd, "backward", read))
        stack.enter_context(mock.patch.object(nn.Module, "__call__", called))
        yield


def _aside(leaf: Tensor, seed: int) -> Tensor:
    """A way off at random: where parameters are simple numbers, functions that are made of pieces may be between two of these."""
    generator = torch.Generator().manual_seed(seed)
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


def disagrees_in_parts(run: Callable[[Sequence[Tensor]], Ran], place: Callable[[str], int], line: Sequence[int]) -> str:
    """What is wrong with gradients of layers that are split, as derivatives of a loss that these ranks have in common. ``place``: of a part
    of its rank's own, from 1; 0 for copies. Parameters in one place of blocks that are alike are moved at once. All ranks call this."""
    base = run(())
    kinds = [(re.sub(r"\d+", "", name), tuple(p.shape)) for name, (p, _) in zip(base.names, base.leaves, strict=True)]
    if len({str(kinds) for kinds in _of_ranks(kinds)}) > 1:
        return "ranks that split layers call their parameters otherwise"
    own = [place(name) > 0 for name in base.names]
    along = [_aside(torch.ones_like(p), n).double() for n, (p, _) in enumerate(base.leaves)]
    made = [float((g * d).sum()) for (_, g), d in zip(base.leaves, along, strict=True)]
    for name, is_own, sums in zip(base.names, own, zip(*_of_ranks(made), strict=True), strict=True):
        theirs = [sums[rank] for rank in line]
        if any(_of_all(float(is_own and max(theirs) - min(theirs) <= _SAME * max(map(abs, theirs))))):
            return f"ranks make the same gradient of `{name}`, of which each has its own"
    losses = [_of_all(base.total)[rank] for rank in line]
    if any(_of_all(float(max(losses) - min(losses) > _SAME * max(map(abs, losses))))):
        return "ranks that split layers have other losses where parameters are moved: something that each has of its own is no part"
    texts = (_kind_disagrees(run, base, [k == kind for k in kinds], own, line) for kind in dict.fromkeys(kinds))
    return next(filter(None, texts), "")


def _kind_disagrees(
    run: Callable[[Sequence[Tensor]], Ran], base: Ran, chosen: Sequence[bool], own: Sequence[bool], line: Sequence[int]
) -> str:
    """What is wrong with the gradients of these parameters."""
    sizes = [float(p.square().mean().sqrt()) or _ASIDE for p, _ in base.leaves]
    seeds = [_SEED * (n + 1) + base.place(name) for n, name in enumerate(base.names)]
    direction = [
        _aside(torch.ones_like(p), seed).double() / _ASIDE * size * take
        for (p, _), seed, size, take in zip(base.leaves, seeds, sizes, chosen, strict=True)
    ]
    each = [(g * d) for (_, g), d in zip(base.leaves, direction, strict=True)]

    def over(numbers: Sequence[Tensor]) -> float:
        """The sum over all logical parameters: parts of all ranks of the line, and copies of this one."""
        parts = sum(float(n.sum()) for n, part in zip(numbers, own, strict=True) if part)
        return _over(line, parts) + sum(float(n.sum()) for n, part in zip(numbers, own, strict=True) if not part)

    told, usual = over(each), over([n.square() for n in each]) ** 0.5
    name, text = next(n for n, take in zip(base.names, chosen, strict=True) if take), ""
    for move in _MOVES:
        above, below = (run([d * sign * move for d in direction]).total for sign in (1, -1))
        moved = (above - below) / (2 * move)
        near = abs(moved - told) <= _NEAR * max(abs(moved), abs(told), usual)
        if all(_of_all(float(near))):
            return ""
        text = f"the loss does not change with `{name}` of all ranks as gradients say ({moved:.4g} and not {told:.4g})"
    return text


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    """All elements, one after another."""
    return torch.cat([t.detach().double().reshape(-1) for t in tensors] or [torch.zeros(0)])


def _parts(whole: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    return [part.reshape(p.shape) for part, p in zip(whole.split([p.numel() for p in like]), like, strict=True)]


def _of_ranks(value: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _of_all(value: float) -> list[float]:
    return _of_ranks(value)


def _over(line: Sequence[int], value: float) -> float:
    """The sum over the ranks of a pipeline."""
    found = _of_all(value)
    return sum(found[rank] for rank in line)
