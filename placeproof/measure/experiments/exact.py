"""Whether training steps were exact in floating point: no sum in them, in whatever order it is added up, could have been rounded.

All numbers of a tensor are whole multiples of its grain, the largest power of two that divides them. The terms of a sum are then whole
multiples of one grain as well, and so is every partial sum. If the absolute values of the terms add up to less than 2^53 grains, every
partial sum of them is a float64: in any order, on any number of devices, with fused multiplications or without. Factors that are powers
of two, by which averages over devices differ, change grain and sum alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

#: Bits of a float64's significand.
SIGNIFICAND = 53
#: Grains below this power of two would come near to what float64 cannot hold.
_LEAST_EXPONENT = -500

_Number: TypeAlias = Tensor | float | int
#: The most that the absolute values of the terms of a sum add up to, and the exponent of their grain; None where nothing is added.
_Size: TypeAlias = tuple[float, int] | None


def grain(x: _Number) -> int | None:
    """The exponent of the largest power of two that divides all numbers of ``x``; None where all of them are 0."""
    values = torch.as_tensor(x, dtype=torch.float64).flatten()
    mantissa, exponent = torch.frexp(values[values != 0])
    if not mantissa.numel():
        return None
    whole = (mantissa * 2.0**SIGNIFICAND).to(torch.int64)
    lowest = torch.frexp((whole & -whole).double())[1] - 1
    return int((lowest + exponent - SIGNIFICAND).min())


def _most(x: _Number) -> _Number:
    return x.abs() if isinstance(x, Tensor) else abs(x)


def _product(a: _Number, b: _Number, times: Callable[[Any, Any], Any]) -> _Size:
    first, other = grain(a), grain(b)
    if first is None or other is None:
        return None
    return float(torch.as_tensor(times(_most(a), _most(b))).max()), first + other


def _mm(a: Tensor, b: Tensor) -> _Size:
    return _product(a, b, torch.mm)


def _mul(a: _Number, b: _Number) -> _Size:
    return _product(a, b, lambda x, y: x * y)


def _add(a: _Number, b: _Number, alpha: float = 1) -> _Size:
    product = _mul(b, alpha)
    grains = [g for g in (grain(a), product and product[1]) if g is not None]
    return (float(torch.as_tensor(_most(a) + _most(b) * abs(alpha)).max()), min(grains)) if grains else None


def _div(a: _Number, b: _Number) -> _Size:
    if torch.frexp(torch.as_tensor(b, dtype=torch.float64))[0].abs().ne(0.5).any():
        raise ValueError("a division by something other than a power of two is not exact")
    return _mul(a, 1 / b)


def _sum(a: Tensor, *_: Any, **__: Any) -> _Size:
    grain_size = grain(a)
    return None if grain_size is None else (float(a.abs().sum()), grain_size)


def _mean(a: Tensor, *_: Any, **__: Any) -> _Size:
    _div(1.0, float(a.numel()))
    return _sum(a)


def _nothing(*_: Any, **__: Any) -> _Size:
    return None


#: What each operation adds up; those that move, choose or compare numbers add up nothing.
_RULES: Mapping[str, Callable[..., _Size]] = {
    "mm": _mm,
    "mul": _mul,
    "mul_": _mul,
    "add": _add,
    "add_": _add,
    "sub": _add,
    "div": _div,
    "sum": _sum,
    "mean": _mean,
    **dict.fromkeys(
        (
            "t",
            "view",
            "_unsafe_view",
            "expand",
            "detach",
            "clone",
            "zeros_like",
            "ones_like",
            "relu",
            "threshold_backward",
            "abs",
            "sgn",
            "sign",
        ),
        _nothing,
    ),
}


class Exactness(TorchDispatchMode):
    """Inside of the block, counts in ``bits`` how many bits the longest sum needed, if its terms were added up in the worst order.

    Up to 53, all was exact. Raises ValueError at an operation that it does not know: what was not looked at is not exact.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func.namespace == "profiler":  # an optimizer says that it begins, and that it ends
            return func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in _RULES:
            raise ValueError(f"whether `{name}` is exact is not known")
        size = _RULES[name](*args, **(kwargs or {}))
        if size is not None:
            bound, exponent = size
            if exponent < _LEAST_EXPONENT:
                raise ValueError(f"`{name}` computes with numbers near the least that float64 holds")
            self.bits = max(self.bits, int(torch.frexp(torch.tensor(bound, dtype=torch.float64))[1]) - exponent)
        return func(*args, **(kwargs or {}))
