"""What a device holds: bytes of parameters, gradients and optimizer state, and of what is saved for backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor


def local(tensor: Tensor) -> Tensor:
    """What this device holds of a tensor: the local part of a DTensor, and what an unfinished collective writes to."""
    while True:
        if isinstance(tensor, DTensor):
            tensor = tensor._local_tensor
        elif isinstance(tensor, AsyncCollectiveTensor):
            tensor = tensor.elem
        else:
            return tensor


def held(tensors: Iterable[Tensor]) -> int:
    """Bytes of the local parts of tensors: elements times width, without what a storage around them has to spare."""
    return sum(t.numel() * t.element_size() for t in map(local, tensors))


def allocated(tensors: Iterable[Tensor]) -> int:
    """Bytes of the distinct storages that the local parts lie in: with padding, and with neighbours in the same buffer."""
    storages = [local(tensor).untyped_storage() for tensor in tensors]
    return sum({s._cdata: s.nbytes() for s in storages}.values())


def state(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], list[Tensor]]:
    """The optimizer's tensors on this device: those with a number for each element of a parameter, and counters of steps."""
    inner = getattr(optimizer, "optim", optimizer)  # ZeroRedundancyOptimizer keeps the one of its own part
    tensors = [t for entry in inner.state.values() for t in entry.values() if isinstance(t, Tensor)]
    return [t for t in tensors if local(t).dim()], [t for t in tensors if not local(t).dim()]


class _Saved:
    """A tensor that the graph keeps for backward; gone when the graph lets go of it."""

    __slots__ = ("_kept", "_key", "tensor")

    def __init__(self, kept: Kept, key: int, tensor: Tensor) -> None:
        self._kept, self._key, self.tensor = kept, key, tensor

    def __del__(self) -> None:
        self._kept._release(self._key)


class Kept:
    """Counts what autograd saves for backward, as bytes of the distinct storages that are alive.

    A storage counts once, whole, and as long as any saved tensor lies in it: that is what keeping a view costs. Parameters do not
    count, nor what is gathered of them: every storage in which a parameter of a watched module lay when its forward began.
    ``now``: bytes at this moment. ``peak``: the most there were at once.
    """

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self._alive: dict[int, tuple[int, int]] = {}
        self._parameters: dict[int, torch.UntypedStorage] = {}

    @contextmanager
    def watching(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """Count what is saved inside of the block. Hooks of these modules have to be registered before: theirs gather parameters."""
        handles = []
        for module in modules:
            self._leave_out(module)
            handles += [part.register_forward_pre_hook(self._before) for part in module.modules()]
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, module: nn.Module, _: Any) -> None:
        self._leave_out(module)

    def _leave_out(self, module: nn.Module) -> None:
        """From now on, the storages of this module's parameters are no activations."""
        for part in module.modules():
            # FSDP without DTensors puts gathered parameters into the module as plain tensors.
            for value in (*part._parameters.values(), *part.__dict__.values()):
                if isinstance(value, Tensor):
                    storage = local(value).untyped_storage()
                    self._parameters[storage._cdata] = storage  # the reference keeps the address from being used again

    def _pack(self, tensor: Tensor) -> Tensor | _Saved:
        storage = local(tensor).untyped_storage()
        key = storage._cdata
        if key in self._parameters:
            return tensor
        size, users = self._alive.get(key, (storage.nbytes(), 0))
        if not users:
            self.now += size
            self.peak = max(self.peak, self.now)
        self._alive[key] = size, users + 1
        return _Saved(self, key, tensor)

    def _release(self, key: int) -> None:
        size, users = self._alive.pop(key)
        if users > 1:
            self._alive[key] = size, users - 1
        else:
            self.now -= size


def _unpack(saved: Any) -> Any:
    return saved.tensor if isinstance(saved, _Saved) else saved
