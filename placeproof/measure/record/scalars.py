"""Numbers of Python that are made of a norm, as ``norm.item()`` gives them: what is computed with them is made of that norm, too.

PyTorch is shown no such number, only its value. So numbers carry their terms from one operation of Python to the next, and where a tensor
is multiplied by one, or made of one, it is known by its value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch import Tensor
from torch.distributed.tensor import DTensor

from placeproof.measure.record.arithmetic import Arithmetic
from placeproof.measure.record.nodes import NOTHING, ZERO
from placeproof.measure.record.shadow import Shadows

#: Numbers of single precision are smaller.
_MOST = 2.0**127


class Made(float):
    """A number that is made of a norm: its ``term``, and what makes terms of what is computed with it."""

    __slots__ = ("arithmetic", "term")
    arithmetic: Arithmetic
    term: int

    def __add__(self, other: Any) -> Any:
        return self._with(float.__add__(self, other), "add", other)

    def __mul__(self, other: Any) -> Any:
        return self._with(float.__mul__(self, other), "mul", other)

    def __truediv__(self, other: Any) -> Any:
        return self._with(float.__truediv__(self, other), "div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(float.__rtruediv__(self, other), "rdiv", other)

    def __pow__(self, other: Any, modulo: None = None) -> Any:
        return self._with(float.__pow__(self, other), "pow", other)

    __radd__, __rmul__ = __add__, __mul__

    def _with(self, value: Any, name: str, other: Any) -> Any:
        if value is NotImplemented or not isinstance(other, (int, float)):
            return value
        term = self.arithmetic.of_numbers(name, self.term, float(other), other.term if isinstance(other, Made) else NOTHING)
        return made(self.arithmetic, value, term)

    def _compared(self, other: Any) -> None:
        if other == 1 and self.arithmetic.nodes[self.term].kind == "clip":
            self.arithmetic.numbers[1.0] = self.term  # the smaller one of both is a function of the norm, too

    def __lt__(self, other: Any) -> bool:
        self._compared(other)
        return float.__lt__(self, other)

    def __gt__(self, other: Any) -> bool:
        self._compared(other)
        return float.__gt__(self, other)

    __hash__ = float.__hash__


def made(arithmetic: Arithmetic, value: float, term: int) -> float:
    """A number with its term; as it is where nothing is known of it, or where others may have its value by accident."""
    if term <= ZERO or arithmetic.nodes[term].kind == "unknown" or not abs(value) < _MOST or value == round(value, 3):
        return float(value)
    number = Made(value)
    number.arithmetic, number.term = arithmetic, term
    for near in (value, *struct.unpack("f", struct.pack("f", value))):  # a tensor may have it in single precision
        arithmetic.numbers[near] = term
    return number


@contextmanager
def numbers(arithmetic: Arithmetic, shadows: Shadows) -> Iterator[None]:
    """Give numbers that leave PyTorch their terms."""
    item, sqrt = Tensor.item, math.sqrt

    def left(tensor: Tensor) -> Any:
        value = item(tensor)
        terms = shadows.terms(tensor) if isinstance(value, float) and not isinstance(tensor, DTensor) else ()
        return made(arithmetic, value, terms[0]) if len(terms) == 1 and arithmetic.of_norms(terms[0]) else value

    def root(value: Any) -> float:
        return value**0.5 if isinstance(value, Made) else sqrt(value)

    patched: Callable[..., Any] = mock.patch.object
    with patched(Tensor, "item", left), patched(math, "sqrt", root):
        yield
