"""What each element of a tensor is made of, kept beside its storage: a whole number a number, which names a term of ``trace_nodes``.

Views share storage, so they share this. What only moves numbers is followed by doing the same to these numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from placeproof.measure.record.nodes import NOTHING, ZERO, Node, Nodes

#: Operations that move numbers and do nothing else to them.
MOVES = frozenset(
    (
        "_chunk_cat", "_foreach_copy_", "_to_copy", "alias_copy", "all_gather_copy_in", "cat", "chunk_cat", "clone", "constant_pad_nd",
        "copy_", "index_select", "lift_fresh_copy", "narrow_copy", "roll", "set_", "slice_scatter", "split_with_sizes_copy", "stack",
        "view_copy",
    )
)  # fmt: skip


def local(tensor: Tensor) -> Tensor:
    """The part of a distributed tensor that is here; any other tensor itself."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


class Shadows:
    """The terms of all tensors that were ever given some. They keep those tensors' storage alive, so that none takes its place."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self._of: dict[int, Tensor] = {}
        self._kept: list[Any] = []

    def known(self, tensor: Tensor) -> bool:
        """Whether a tensor's storage has terms."""
        return tensor.layout == torch.strided and tensor.untyped_storage()._cdata in self._of

    def of(self, tensor: Tensor) -> Tensor:
        """The terms of a tensor, as a view that can be written."""
        storage = tensor.untyped_storage()
        need = max(storage.nbytes() // tensor.element_size(), _extent(tensor))
        flat = self._of.get(storage._cdata)
        if flat is None or flat.numel() < need:
            larger = torch.full((need,), NOTHING, dtype=torch.int64)
            if flat is None:
                self._kept.append(storage)
            else:
                larger[: flat.numel()] = flat
            self._of[storage._cdata] = flat = larger
        return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def read(self, tensor: Tensor) -> Tensor:
        """The terms of a tensor, as they are now."""
        if not self.known(tensor):
            return torch.full(tensor.size(), NOTHING, dtype=torch.int64)
        return self.of(tensor).clone()

    def write(self, tensor: Tensor, terms: Tensor | int) -> None:
        """Give a tensor its terms, as many or one for all."""
        if isinstance(terms, int):
            self.of(tensor).fill_(terms)
        else:
            self.of(tensor).copy_(terms.expand(tensor.size()) if terms.numel() == 1 else terms.reshape(tensor.size()))

    def terms(self, tensor: Tensor) -> tuple[int, ...]:
        """The distinct terms of a tensor that say something, in the order of their numbers."""
        return tuple(int(n) for n in self.of(tensor).unique() if n > NOTHING) if self.known(tensor) else ()

    def moved(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """Follow an operation that moves numbers: do the same to the terms."""
        kept = {k: v for k, v in kwargs.items() if k not in ("dtype", "device", "layout", "pin_memory", "non_blocking", "memory_format")}
        result = func(*(self._mapped(a) for a in args), **{k: self._mapped(v) for k, v in kept.items()})
        written = func._schema.is_mutable
        if not written and isinstance(out, Tensor):
            self.write(out, result)

    def forget(self) -> None:
        """A new step begins: parameters are as before their update, what is zero stays so, and nothing is known of anything else."""
        nodes = self.nodes

        def again(number: int) -> int:
            if not nodes.is_parameter(number):
                return number if number == ZERO else NOTHING
            return nodes.add(Node(kind="param", index=min(nodes.states(number))))

        for flat in self._of.values():
            flat.copy_(mapped(again, flat))

    def _mapped(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.of(value)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
            return [self.of(v) for v in value]
        return value


def _extent(tensor: Tensor) -> int:
    """How many elements from the start of its storage a tensor reaches."""
    if tensor.numel() == 0:
        return 0
    reach: int = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
    return int(tensor.storage_offset()) + reach + 1


def mapped(function: Callable[..., int], *terms: Tensor) -> Tensor:
    """Apply a function of terms to tensors of them, element by element; it is called once for each combination that occurs."""
    spread = torch.broadcast_tensors(*terms)
    rows = torch.stack([t.reshape(-1) for t in spread], dim=1)
    distinct, where = torch.unique(rows, dim=0, return_inverse=True)
    made = torch.tensor([function(*(int(n) for n in row)) for row in distinct], dtype=torch.int64)
    return made[where].reshape(spread[0].size()) if rows.numel() else torch.zeros(spread[0].size(), dtype=torch.int64)
