"""What comparisons make of terms: every number is taken to be finite, and no norm is below zero. So checks for overflow decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isinf
from typing import Any

import torch
from torch import Tensor

from placeproof.measure.record.nodes import NOTHING, ZERO, Node, Nodes
from placeproof.measure.record.runs import Runs, mapped
from placeproof.measure.record.shadow import Shadows

_FALSE = ZERO


@dataclass(slots=True)
class Comparing:
    """Follows comparisons, and what chooses by them. What is false is zero; what is true has a term of its own."""

    nodes: Nodes
    shadows: Shadows

    @property
    def true(self) -> int:
        """The term of what is true."""
        return self.nodes.add(Node(kind="true"))

    def follow(self, name: str, args: tuple[Any, ...], out: Any) -> bool:
        """Give the result its terms; False where nothing is decided."""
        terms = self._decided(name, args)
        if terms is None or (terms.length and NOTHING in terms.distinct()):
            return False
        self.shadows.write(out, terms)
        return True

    def _decided(self, name: str, args: tuple[Any, ...]) -> Runs | None:
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is None:
            return None
        if name in ("any", "all") and len(args) == 1:
            return self._all(name, first)
        if name in ("where", "masked_fill"):
            return self._chosen(name, args)
        second = args[1] if len(args) > 1 else None
        if isinstance(second, Tensor) and name in ("logical_or", "bitwise_or", "logical_and", "bitwise_and"):
            return mapped(self._both(any if name.endswith("or") else all), *self._spread(first, second))
        rule = self._of_one(name, first, second)
        return None if rule is None else mapped(rule, self.shadows.read(first))

    def _of_one(self, name: str, first: Tensor, second: Any) -> Callable[[int], int] | None:
        """What is said of one number, which may be compared with another one."""
        if name in ("isnan", "isinf"):
            return lambda n: _FALSE if n != NOTHING else NOTHING
        if name in ("logical_not", "bitwise_not") and first.dtype == torch.bool:
            return lambda n: {_FALSE: self.true, self.true: _FALSE}.get(n, NOTHING)
        if name == "abs":
            return lambda n: n if self.nodes.is_norm(n) else NOTHING
        if isinstance(second, Tensor):
            return (lambda n: self.true if n != NOTHING else NOTHING) if name == "eq" and same_elements(first, second) else None
        if not isinstance(second, (int, float)):
            return None
        if name in ("eq", "ne") and isinf(second):
            return lambda n: NOTHING if n == NOTHING else self.true if name == "ne" else _FALSE
        if name in ("lt", "ge") and second <= 0:
            return lambda n: NOTHING if not self.nodes.is_norm(n) else self.true if name == "ge" else _FALSE
        return None

    def _all(self, name: str, first: Tensor) -> Runs:
        return Runs.same(self._both(any if name == "any" else all)(*self.shadows.read(first).distinct()), 1)

    def _both(self, rule: Callable[[list[bool]], bool]) -> Callable[..., int]:
        def both(*numbers: int) -> int:
            if not {*numbers} <= {_FALSE, self.true}:
                return NOTHING
            return self.true if rule([n == self.true for n in numbers]) else _FALSE

        return both

    def _chosen(self, name: str, args: tuple[Any, ...]) -> Runs | None:
        """What stays where a choice is decided: of ``where(which, a, b)`` one of both, of ``masked_fill(b, which, a)`` the first."""
        which, a, b = args if name == "where" and len(args) == 3 else (args[1], args[2], args[0]) if len(args) == 3 else (None, None, None)
        if not isinstance(which, Tensor):
            return None
        chosen = {n: {_FALSE: b, self.true: a}.get(n) for n in self.shadows.read(which).distinct()}
        (only, *others) = chosen.values()
        return (
            None if others or not isinstance(only, Tensor) else self._spread(only, *(t for t in (which, a, b) if isinstance(t, Tensor)))[0]
        )

    def _spread(self, *tensors: Tensor) -> list[Runs]:
        return [self.shadows.read(t) for t in torch.broadcast_tensors(*tensors)]


def same_elements(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same elements in the same order: equal terms do not say that numbers are equal."""
    return a.data_ptr() == b.data_ptr() and (a.dtype, a.size(), a.stride()) == (b.dtype, b.size(), b.stride())
