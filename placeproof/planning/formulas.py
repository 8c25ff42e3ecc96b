"""Formulas, recorded: what stands for an array writes down what is worked out with it, by the same code as for arrays of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isinf
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from placeproof.collectives.time import TIMED_AS
from placeproof.planning.arrays import Array

#: What NumPy's functions are called in formulas.
_OPERATIONS: Mapping[Any, str] = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.true_divide: "/", np.mod: "mod", np.maximum: "max", np.minimum: "min",
    np.ceil: "ceil", np.floor: "floor", np.less: "<", np.less_equal: "<=", np.equal: "=",
}  # fmt: skip
#: Those that are said with others.
_SAID: Mapping[Any, Callable[..., Any]] = {
    np.greater: lambda a, b: np.less(b, a),
    np.greater_equal: lambda a, b: np.less_equal(b, a),
    np.not_equal: lambda a, b: 1 - np.equal(a, b),
    np.bitwise_and: np.minimum,
    np.bitwise_or: np.maximum,
    np.invert: lambda a: 1 - a,
    np.negative: lambda a: 0 - a,
}


@dataclass(kw_only=True)
class Log:
    """Formulas, each made of those before it, and none twice."""

    lines: list[list[Any]] = field(default_factory=list)
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def line(self, *said: Any) -> Recorded:
        """What stands for a formula."""
        if said not in self._numbers:
            self._numbers[said] = len(self.lines)
            self.lines.append([*said])
        return Recorded(self, self._numbers[said])

    def variable(self, name: str) -> Recorded:
        """An open number."""
        return self.line("variable", name)

    def number(self, value: Any) -> Recorded:
        """A number, exactly."""
        if isinstance(value, Recorded):
            return value
        known = np.asarray(value).item() if isinstance(value, np.ndarray | np.generic) else value
        return self.line("number", f"{known}" if isinstance(known, float) and isinf(known) else str(Fraction(known)))


class Recorded(NDArrayOperatorsMixin):
    """What stands for an array: the number of a formula."""

    def __init__(self, log: Log, number: int) -> None:
        self.log, self.index = log, number

    @property
    def value(self) -> Fraction | None:
        """The number that it is, if it is one."""
        op, *of = self.log.lines[self.index]
        return Fraction(of[0]) if op == "number" and not of[0].endswith("inf") else None

    def __array__(self) -> Any:
        raise TypeError("a formula is no array of numbers")

    def __len__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        if self.value is None:
            raise TypeError("an open formula is neither true nor false")
        return self.value != 0

    def clip(self, *, max: Any) -> Any:
        """The lesser of it and ``max``."""
        return np.minimum(self, max)

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **options: Any) -> Any:
        if method != "__call__" or options.keys() - {"out"}:  # `a += b` gives another formula
            return NotImplemented
        if function in _SAID:
            return _SAID[function](*map(self.log.number, given))
        if function is np.power:
            return _power(given[0], int(self.log.number(given[1]).value or 0))
        if function not in _OPERATIONS:
            return NotImplemented
        return _made(self.log, _OPERATIONS[function], [self.log.number(one) for one in given])

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        if function is np.where:
            condition, *each = map(self.log.number, given)
            if condition.value is not None:
                return each[0] if condition else each[1]
            return self.log.line("where", condition.index, *(one.index for one in each))
        if function in (np.broadcast_to, np.round):  # what is rounded is a whole number, and here it is exact
            return given[0]
        if function is np.any:
            return self.value is None or self.value != 0
        return NotImplemented


def _power(base: Any, exponent: int) -> Any:
    if exponent < 1:
        raise TypeError(f"a formula has no power {exponent}")
    return base if exponent == 1 else base * _power(base, exponent - 1)


def _made(log: Log, op: str, each: Sequence[Recorded]) -> Recorded:
    """A formula of others; a number, where these are numbers or leave the other one as it is."""
    known = [one.value for one in each]
    if all(value is not None for value in known):
        return log.number(_FOLDED[op](*known))
    same = {"+": (None, 0), "-": (None, 0), "*": (None, 1), "/": (None, 1)}.get(op)
    if same is not None and known[1] == same[1]:
        return each[0]
    if op in ("+", "*") and known[0] == (0 if op == "+" else 1):
        return each[1]
    if op in ("*", "/") and (known[0] == 0 or (op == "*" and known[1] == 0)):
        return log.number(0)
    return each[0] if op in ("max", "min") and each[0].index == each[1].index else log.line(op, *(one.index for one in each))


_FOLDED: Mapping[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b, "mod": lambda a, b: a % b,
    "max": max, "min": min, "ceil": lambda a: -(-a // 1), "floor": lambda a: a // 1,
    "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), "=": lambda a, b: int(a == b),
}  # fmt: skip


#: An exchange: its kind, axes, the axis whose ends it is between, and the order in which axes lie.
Asked: TypeAlias = tuple[str, tuple[str, ...], str | None, str]


@dataclass(frozen=True)
class RecordedTimes:
    """Seconds of exchanges, recorded, as :class:`placeproof.planning.tables.GroupTimes`. ``asked``: what exchanges are, in order."""

    log: Log
    asked: dict[Asked, int]
    order: str = "dp-pp"

    def seconds(self, kind: str, axes: tuple[str, ...], size: Array, pair: str | None = None) -> Array:
        """Of one call of an exchange about so many bytes."""
        key = (TIMED_AS.get(kind, kind), axes, pair, self.order)
        number = self.asked.setdefault(key, len(self.asked))
        return self.log.line("exchange", number, self.log.number(size).index)
