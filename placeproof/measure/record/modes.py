"""PyTorch's modes that show a follower what is done: every operation, and every function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.follow import Follower
from placeproof.measure.record.shadow import flat, written


class Dispatched(TorchDispatchMode):
    """Shows the follower every operation on plain tensors."""

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self.follower = follower

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation, and follow it."""
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            return NotImplemented  # it comes back as operations on local tensors
        name = "" if func.is_view else self.follower.underway.meets(flat((*args, *(kwargs or {}).values())), flat(written(func, args)))
        if name:
            text, own = f"`{func._schema.name.rpartition('::')[2]}` is given what `{name}` still works on", self.follower.recording
            refuse_lines(own.script, own.source, [(text, self.follower.line())], help="wait for it before: `work.wait()`")
        self.follower.begins(func, args, kwargs or {})
        out = func(*args, **(kwargs or {}))
        self.follower.operation(func, args, kwargs or {}, out)
        return out


class Called(TorchFunctionMode):
    """Shows the follower every tensor that a function of torch reads and that gets a gradient."""

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self.follower = follower

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Call the function, and note the leaves of a result that autograd will differentiate."""
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, Tensor) and getattr(func, "__name__", "") == "__get__":  # a shape, or whether it gets a gradient
            return out
        self.follower.function((*args, *(kwargs or {}).values()), out)
        return out
