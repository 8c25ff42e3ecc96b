"""Numbers of less than double precision, which a script asks for by name, are of double precision instead: they are compared so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

#: Types of less than double precision.
_LESS = (torch.float32, torch.float16, torch.bfloat16)


class Doubled(TorchDispatchMode):
    """Makes tensors of double precision where less is asked for, or comes from elsewhere, as from an array of NumPy."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, with operands of double precision where it does not take those of both."""
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            return NotImplemented
        named = {
            name: torch.float64 if isinstance(value, torch.dtype) and value in _LESS else value for name, value in (kwargs or {}).items()
        }
        if func.namespace == "aten" and func._schema.name.startswith("aten::_amp_"):
            return _in_single(func, args, named)
        if func.namespace != "aten" or func._schema.is_mutable:
            return func(*args, **named)
        try:
            out = func(*args, **named)
        except RuntimeError:
            out = func(*tree_map(_wide, args), **tree_map(_wide, named))
        return out if func.is_view and func is not torch.ops.aten.lift_fresh.default else tree_map(_wide, out)


def _in_single(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run an operation that has its numbers beside tensors, as how losses are scaled, in single precision alone."""
    numbers = {id(a): (a, a.float()) for a in args if isinstance(a, Tensor) and a.dtype == torch.float64}
    out = func(*(numbers[id(a)][1] if id(a) in numbers else a for a in args), **kwargs)
    for whole, own in numbers.values():
        whole.copy_(own)
    return next((whole for whole, own in numbers.values() if own is out), out)


def _wide(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.dtype in _LESS else value
