"""What each element of a tensor is made of, kept beside its storage: a whole number an element, which names a term of ``nodes``.

Views share storage, so they share this. A storage has runs of equal numbers, byte by byte, so that views of another element type share
it too. A gradient is a few runs, however large it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from placeproof.measure.record.axes import key
from placeproof.measure.record.moves import copies
from placeproof.measure.record.nodes import NOTHING, ZERO, Node, Nodes
from placeproof.measure.record.runs import Array, Runs, chained, mapped


def local(tensor: Tensor) -> Tensor:
    """The part of a distributed tensor that is here; any other tensor itself."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _groups(tensor: DTensor, kind: str) -> tuple[str, ...]:
    mesh = tensor.device_mesh
    which = [i for i, p in enumerate(tensor.placements) if getattr(p, f"is_{kind}")() and mesh.size(i) > 1]
    return tuple(key(dist.get_process_group_ranks(mesh.get_group(i))) for i in which)


def split_over(tensor: Tensor) -> tuple[str, ...] | None:
    """Over which groups a distributed tensor is split; None for any other tensor."""
    return _groups(tensor, "shard") if isinstance(tensor, DTensor) else None


def partial_over(tensor: Tensor) -> tuple[str, ...]:
    """Over which groups a distributed tensor is a sum that is still to be made."""
    return _groups(tensor, "partial") if isinstance(tensor, DTensor) else ()


def strided_of(values: Any) -> list[Tensor]:
    """The tensors among nested values that are strided."""
    return [t for t in tree_leaves(values) if isinstance(t, Tensor) and t.layout == torch.strided]


def storage(tensor: Tensor) -> int:
    """What tells where a tensor's numbers lie, 0 for one that has none side by side."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else 0


def place_of(tensor: Tensor) -> tuple[int, int, int]:
    """Where a tensor's numbers are, and how many."""
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()), tensor.numel()


def flat(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among some values."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors += flat(value)
    return tensors


def written(func: Any, args: tuple[Any, ...]) -> list[Any]:
    """What an operation writes of what it is given."""
    return [a for a, s in zip(args, func._schema.arguments, strict=False) if s.alias_info is not None and s.alias_info.is_write]


class Shadows:
    """The terms of all tensors that were ever given some. Their storage may end, but none takes its place."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._of: dict[int, Runs] = {}
        self._places: dict[int, StorageWeakRef] = {}

    def known(self, tensor: Tensor) -> bool:
        """Whether a tensor's storage has terms."""
        return tensor.layout == torch.strided and tensor.untyped_storage()._cdata in self._of

    def read(self, tensor: Tensor) -> Runs:
        """The terms of a tensor, as they are now, in the order of its elements."""
        if not self.known(tensor) or not tensor.numel():
            return Runs.same(NOTHING, tensor.numel())
        begin, length = _extent(tensor)
        whole = self._longer(tensor.untyped_storage()._cdata, begin + length).part(begin, length)
        if whole.only is not None:
            return Runs.same(whole.only, tensor.numel())
        begins, row = _rows(tensor)
        return whole.taken(begins - begin, row).narrowed(tensor.element_size(), NOTHING)

    def write(self, tensor: Tensor, terms: Runs | int) -> None:
        """Give a tensor its terms, as many, or one for all. Raises ValueError for another number of them, or a sparse tensor."""
        if tensor.layout != torch.strided:
            raise ValueError(f"what a tensor of the layout {tensor.layout} is made of is not followed")
        if isinstance(terms, int) or terms.length == 1:
            terms = Runs.same(terms if isinstance(terms, int) else int(terms.values[0]), tensor.numel())
        if terms.length != tensor.numel():
            raise ValueError(f"{terms.length} terms are no terms of {tensor.numel()} elements")
        if not terms.length or (terms.only == NOTHING and not self.known(tensor)):
            return
        storage = tensor.untyped_storage()
        if storage._cdata not in self._of:
            self._of[storage._cdata], self._places[storage._cdata] = Runs.same(NOTHING, 0), StorageWeakRef(storage)
        for dim in (d for d, (n, s) in enumerate(zip(tensor.size(), tensor.stride(), strict=True)) if n > 1 and s == 0):
            tensor = tensor.narrow(dim, 0, 1)  # all of these are one number
            terms = Runs.same(NOTHING if terms.only is None else terms.only, tensor.numel())
        begin, length = _extent(tensor)
        flat = self._longer(storage._cdata, max(storage.nbytes(), begin + length))
        begins, row = (np.array([begin]), length) if terms.only is not None and _dense(tensor) else _rows(tensor)
        self._of[storage._cdata] = flat.put(begins, row, terms.widened(tensor.element_size()))

    def terms(self, tensor: Tensor) -> tuple[int, ...]:
        """The distinct terms of a tensor that say something, in the order of their numbers."""
        return tuple(n for n in self.read(tensor).distinct() if n > NOTHING) if self.known(tensor) else ()

    def moved(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """Follow an operation that moves numbers: do the same to the terms."""
        name = func._schema.name.rpartition("::")[2]
        copied = copies(name, args, kwargs, out)
        if copied is None:
            self.write(kwargs.get("out", out), self._number_by_number(name, args))
            return
        read = [
            (into, self._spread(source, into) if isinstance(source, Tensor) else NOTHING if source is None else ZERO)
            for into, source in copied
        ]
        for into, terms in read:
            self.write(into, terms)

    def forget(self) -> None:
        """A new step begins: parameters are as before their update, what is zero stays so, and nothing is known of anything else."""
        nodes = self.nodes

        def again(number: int) -> int:
            if not nodes.is_parameter(number):
                return number if number == ZERO else NOTHING
            return nodes.add(Node(kind="param", index=min(nodes.states(number))))

        for place in [p for p, storage in self._places.items() if storage.expired()]:
            del self._of[place], self._places[place]
        for place, flat in self._of.items():
            self._of[place] = mapped(again, flat)

    def left(self) -> frozenset[int]:
        """The terms of all tensors that are still there."""
        there = (flat for place, flat in self._of.items() if not self._places[place].expired())
        return frozenset(int(n) for flat in there for n in flat.distinct() if n > ZERO)

    def _longer(self, place: int, length: int) -> Runs:
        """The terms of a storage of at least so many bytes: it may have grown, and what has shrunk may grow again."""
        flat = self._of[place]
        if flat.length < length:
            self._of[place] = flat = chained((flat, Runs.same(NOTHING, length - flat.length)))
        return flat

    def _spread(self, source: Tensor, into: Tensor) -> Runs:
        return self.read(source if source.numel() == into.numel() else source.expand(into.size()))

    def _number_by_number(self, name: str, args: tuple[Any, ...]) -> Runs:
        """The operation itself, on all terms of its first tensor."""
        source = args[0]
        terms = torch.from_numpy(self.read(source).each()).reshape(source.size())
        return Runs.listed(getattr(torch.ops.aten, name)(terms, *args[1:]).reshape(-1).numpy())


def _extent(tensor: Tensor) -> tuple[int, int]:
    """The first byte in its storage that a tensor has, and the number of bytes up to the last one."""
    reach = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True)) + 1
    return int(tensor.storage_offset()) * tensor.element_size(), int(reach) * tensor.element_size()


def _dense(tensor: Tensor) -> bool:
    """Whether a tensor's elements lie side by side, in whatever order."""
    row = 1
    for stride, size in sorted((s, n) for n, s in zip(tensor.size(), tensor.stride(), strict=True) if n != 1):
        if stride != row:
            return False
        row *= size
    return True


def _rows(tensor: Tensor) -> tuple[Array, int]:
    """Where in its storage a tensor's elements lie, in their order: the first bytes of rows of neighbours, and the bytes of a row."""
    dims = [(n, s) for n, s in zip(tensor.size(), tensor.stride(), strict=True) if n != 1]
    row = 1
    while dims and dims[-1][1] == row:
        row *= dims.pop()[0]
    begins = np.array([int(tensor.storage_offset())], dtype=np.int64)
    for size, stride in dims:
        begins = (begins[:, None] + np.arange(size) * stride).reshape(-1)
    return begins * tensor.element_size(), row * tensor.element_size()
