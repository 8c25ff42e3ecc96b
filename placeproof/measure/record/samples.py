"""Whether the losses of samples depend on one another: the step runs again with some samples replaced, with others, and with both.

A loss that is a sum over samples changes with both replaced by what it changes with each. Samples are replaced where a script makes or
reads them, so that what it computes of them before the model sees them is computed again, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from placeproof.measure.record.digests import digest
from placeproof.measure.record.loss import gradients_of, read_loss
from placeproof.measure.record.recording import UNCHANGED, UNSEEN, Recording, Turn
from placeproof.measure.record.shadow import local, storage, strided_of, written

#: Operations that make what is no sample: the same whatever the data are; and those that draw numbers in place.
_CONSTANT = ("arange", "empty", "eye", "fill_", "full", "linspace", "new_", "ones", "randperm", "scalar_tensor", "zero")
_DRAWN = ("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_")


def ways(rank: int, world: int) -> tuple[tuple[int, int], ...]:
    """Which samples are replaced: from which one on every how many. A loss that does not change with those of the first way may change with
    those of the second, of a rank that takes one of ``world`` samples."""
    return (0, 1), (rank, world)


class Enough(BaseException):
    """All losses that were to be read are read: a script may not catch it as an error of its own."""


@dataclass(slots=True, kw_only=True)
class Replaced:
    """What a run with some samples replaced came to: the losses with how they were read, which makers of tensors make the model's, and
    which make a single sample, that is put together with others later; and what modules were ``given``."""

    losses: list[Turn] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    model: frozenset[int] = frozenset()
    single: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Kind:
    """What a tensor is of: of the ``made``-th samples, of the ``model``, ``constant``, or of data that are not split by samples yet."""

    made: frozenset[int] = frozenset()
    model: bool = False
    constant: bool = False


class Replacing(TorchDispatchMode):
    """Replaces samples when they are made. ``rows``: of a micro-batch; ``most``: how many of these a tensor may hold; ``halves``: which
    samples are replaced, those of half 0 or 1 of a micro-batch, both or none; ``known``: of a run with none, whose makers of the model
    and of single samples are left alone; ``way``: of :func:`ways`."""

    def __init__(self, rows: Iterable[int], most: int, halves: frozenset[int], known: Replaced, way: tuple[int, int]) -> None:
        super().__init__()
        self.rows, self.most, self.halves, self.model, self.known = sorted(rows), most, halves, known.model, known.single
        self.single, self.way = known.single, way
        self.samples: frozenset[int] = frozenset()
        self.kinds: dict[int, tuple[StorageWeakRef, Kind]] = {}
        self.count, self.off, self.asked = 0, False, set[int]()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and replace samples that it makes."""
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            return NotImplemented
        if self.off:
            return func(*args, **(kwargs or {}))
        read = strided_of((args, kwargs))
        for tensor in read:
            if self._kind(tensor) is None:
                self._made(tensor)
        kinds = [kind for t in read if (kind := self._kind(t)) is not None]
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.rpartition("::")[2]
        constant = name.startswith(_CONSTANT) or (bool(kinds) and all(k.constant for k in kinds) and name not in _DRAWN)
        kind = Kind(frozenset().union(*(k.made for k in kinds)), any(k.model for k in kinds), constant)
        if self._puts_together(name, args, out):
            self.single |= kind.made
        if func.is_view:
            return tree_map(lambda t: self._part(t, read, kind), out)
        for tensor in (*strided_of(out), *strided_of(written(func, args))):
            if not (kind.model or kind.constant or kind.made) and not (name == "copy_" and self._a_row(tensor)):
                self._made(tensor)
            else:
                self._know(tensor, kind)
        return out

    def _puts_together(self, name: str, args: tuple[Any, ...], out: Any) -> bool:
        """Whether an operation puts single samples side by side, or one of them beside others."""
        if name in ("stack", "cat"):
            whole = out.dim() > 1 and out.shape[0] == len(args[0]) and (len(args) < 2 or args[1] == 0)
            return whole and out.shape[0] in self.rows
        return name == "copy_" and self._a_row(args[0])

    def _a_row(self, tensor: Tensor) -> bool:
        """Whether a tensor is no more than one sample's part of a larger one, which holds a micro-batch."""
        whole = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor.dim() == 1 and any(whole % n == 0 and tensor.numel() <= whole // n for n in self.rows)

    def _part(self, value: Any, read: Sequence[Tensor], kind: Kind) -> Any:
        """What is seen of a tensor: samples of their own where that is not split by them: other parts may have elements of these."""
        fresh = isinstance(value, Tensor) and value.layout == torch.strided and value.dim() > 1
        if not fresh or kind.model or kind.constant or kind.made or self._split(read[0]):
            return value
        with _disable_current_modes():
            own = value.clone()
        self._made(own)
        return own

    def _kind(self, tensor: Tensor) -> Kind | None:
        known = self.kinds.get(storage(tensor), (None, None))[1]
        if isinstance(tensor, nn.Parameter) or tensor.requires_grad:
            return Kind(known.made if known else frozenset(), model=True)
        return known

    def _know(self, tensor: Tensor, kind: Kind) -> None:
        before = self._kind(tensor) or kind
        known = Kind(before.made | kind.made, before.model or kind.model, before.constant and kind.constant)
        self.kinds[storage(tensor)] = (StorageWeakRef(tensor.untyped_storage()), known)

    def _split(self, tensor: Tensor) -> int:
        """How many samples a micro-batch has of those that a tensor holds; 0 if it is not split by samples."""
        size = tensor.shape[0] if tensor.dim() else 0
        return next((n for n in self.rows if size and size % n == 0 and self.most % (size // n) == 0), 0)

    def _made(self, tensor: Tensor) -> None:
        """A tensor of samples, perhaps: it was made of nothing that is split by them."""
        rows = self._split(tensor)
        if not rows:
            self._know(tensor, Kind())
            return
        self.count += 1
        if self.count in self.known:
            self._know(tensor, Kind())
            return
        self._know(tensor, Kind(frozenset((self.count,))))
        if self.count not in self.model:
            with _disable_current_modes(), torch.no_grad():
                self._replace(tensor, rows)

    def _replace(self, tensor: Tensor, rows: int) -> None:
        """Give samples another content: that of a sample that is never replaced, or, of two, that of the other one."""
        first, every = self.way
        own = range(first, rows, every)
        stay = 2 if len(own) > 3 else len(own) - 2  # of two samples, both have to be replaced by something else
        kept = own[len(own) - stay :] if every == 1 else [i for i in range(rows) if i not in own]
        replaced = own[: len(own) - stay] if every == 1 else own
        before = tensor.clone()
        for start in range(0, tensor.shape[0], rows):
            for number, i in enumerate(replaced):
                if number % 2 in self.halves:
                    instead = kept[-1 - number % len(kept)] if kept else replaced[number - 1]
                    tensor[start + i] = before[start + instead]

    def given(self, values: Any) -> None:
        """A module that no other one runs is given samples, perhaps put together of single ones, in place."""
        for tensor in strided_of(values):
            if tensor.dim() > 1 and self._kind(tensor) == Kind():
                self._made(tensor)
            kind = self._kind(tensor)
            self.samples |= kind.made if kind is not None and not kind.model else frozenset()

    def belongs(self, module: nn.Module) -> None:
        """A module is run: what its parameters and buffers were made of are no samples."""
        if id(module) not in self.asked:
            self.asked.add(id(module))
            kinds = [self._kind(local(t)) for t in (*nn.Module.parameters(module), *nn.Module.buffers(module))]  # Megatron has others
            self.model |= frozenset().union(*(k.made for k in kinds if k is not None))

    @property
    def found(self) -> Replaced:
        """Which makers are the model's: of what modules are given, none is, though a weight of a loss may be counted of it."""
        return Replaced(model=self.model - self.samples, single=self.single)


@contextmanager
def _unseen(mode: Replacing) -> Iterator[None]:
    """The mode looks away."""
    was, mode.off = mode.off, True
    try:
        yield
    finally:
        mode.off = was


@contextmanager
def watched(mode: Replacing, found: Replaced, turns: int, *, passed: int, piped: bool) -> Iterator[None]:
    """Modules are told to the mode when they are run, and what they are given is written down; losses are read but for those ``passed``
    first, and the last one ends the run; in a ``piped`` step, which other ranks have to end, too, the update does. Steps before leave
    parameters as they are."""
    backward, call = torch.autograd.backward, nn.Module.__call__

    def read(tensors: Any, *args: Any, **kwargs: Any) -> None:
        first = tensors if isinstance(tensors, Tensor) else next(iter(tensors))
        left[0] -= not mode.off
        if not mode.off and left[0] < 0 and len(found.losses) < turns and not (piped and gradients_of(args, kwargs)):
            with _disable_current_modes():
                found.losses.append(read_loss(first, 0))
            if len(found.losses) == turns and not piped:
                found.model, found.single = mode.found.model, mode.found.single
                raise Enough
        with _unseen(mode):
            backward(tensors, *args, **kwargs)

    inside, left = [0], [passed]

    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        mode.belongs(module)
        if not inside[0] and not mode.off:
            mode.given((args, kwargs))
            with _disable_current_modes():
                found.given += [digest(t) for t in strided_of((args, kwargs)) if not t.requires_grad]
        inside[0] += 1
        try:
            return call(module, *args, **kwargs)
        finally:
            inside[0] -= 1

    def updates() -> None:
        found.model, found.single = mode.found.model, mode.found.single
        if piped:
            raise Enough

    with ExitStack() as stack:
        stack.enter_context(_held(updates))
        stack.enter_context(mock.patch.object(torch.autograd, "backward", read))
        stack.enter_context(mock.patch.object(nn.Module, "__call__", called))
        stack.enter_context(mode)
        yield


@contextmanager
def _held(begins: Callable[[], None]) -> Iterator[None]:
    """Updates leave parameters as they are; each ``begins`` with a call. An optimizer of a script may not look whether there is a gradient:
    it has no parameters meanwhile."""
    held = list[list[tuple[dict[str, Any], Any]]]()

    def before(optimizer: optimizers.Optimizer, *_: Any) -> None:
        begins()
        held.append([(group, group["params"]) for group in optimizer.param_groups])
        for group, parameters in held[-1]:
            for parameter in parameters:
                parameter.grad = None
            if not type(optimizer).__module__.startswith("torch."):
                group["params"] = []

    def after(*_: Any) -> None:
        for group, parameters in held.pop():
            group["params"] = parameters

    with ExitStack() as stack:
        stack.callback(optimizers.register_optimizer_step_pre_hook(before).remove)
        stack.callback(optimizers.register_optimizer_step_post_hook(after).remove)
        yield


def dependent(runs: Sequence[Replaced], recorded: Recording) -> list[tuple[str, int]]:
    """What is wrong with losses, with their lines, of runs with no samples replaced, with each half, and with both. Of one sample alone,
    nothing else can depend on it."""
    wrong, places = [], recorded.constants
    if recorded.line and not any(r.losses for r in runs):
        return []  # the last stage has them
    for number, (turn, *losses) in enumerate(zip(recorded.turns, *(r.losses for r in runs), strict=True)):
        text = _wrong(losses) if recorded.rows.get(number, 0) != 1 else ""
        if any(t.numbers[i : i + 1] != turn.numbers[i : i + 1] for t in losses for i in places):
            text = text or "the loss is multiplied by a number that depends on samples"
        wrong += [(text, turn.line)] if text else []
    return wrong


def of_others(none: Replaced, theirs: Replaced, recorded: Recording) -> list[tuple[str, int]]:
    """What is wrong with losses, with their lines, where samples of another rank alone are replaced: nothing if that sends the own ones."""
    if none.given != theirs.given:
        return []
    text = "the loss of rank {} changes with samples of rank 0: the mean over ranks is not what all samples come to together"
    pairs = zip(recorded.turns, none.losses, theirs.losses, strict=True)
    lost = [turn.line for turn, one, other in pairs if abs(_value(one) - _value(other)) > abs(_value(one)) * 4 * one.rounding]
    return [(text.format(recorded.rank), line) for line in lost]


def _value(turn: Turn) -> float:
    """The sum that a loss is a multiple of; or the loss, of several."""
    return turn.value if turn.beside else float(turn.value / float(turn.factor)) * (1 if turn.summed else turn.count)


def _wrong(losses: Sequence[Turn]) -> str:
    if any(t.text for t in losses) or not all(isfinite(t.value) for t in losses):
        return f"{UNSEEN}: with other samples it is no number, or another loss"
    if losses[0].beside and len({(t.scale, t.counts) for t in losses}) > 1:
        return f"{UNSEEN}: with other samples its parts have other weights"
    none, one, other, both = map(_value, losses)
    size = sum(map(abs, (none, one, other, both)))
    if none in (one, other):
        return UNCHANGED
    if abs(one + other - none - both) > size * losses[0].rounding:
        return "the losses of samples depend on one another: the mean over ranks and micro-batches is not what all samples come to together"
    return ""
