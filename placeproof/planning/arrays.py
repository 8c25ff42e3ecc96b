"""Closed forms and times of exchanges at many points at once, in floating-point numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from placeproof.clusters import Cluster, Group
from placeproof.collectives.algorithms import ALGORITHMS, Algorithm, Levelled
from placeproof.collectives.time import admitted, fastest, links, seconds

if TYPE_CHECKING:
    import sympy

#: Bytes between which a time is asked for.
_SIZES = (1, 1 << 20, 1 << 44)
#: An array of float64, or a number that stands for equal ones.
Array = Any
#: What is made of an exact number that stands beside arrays: a float; or what it is, where what is worked out is recorded.
Number: TypeAlias = Callable[[Any], Any]


def evaluate(expr: Any, values: Mapping[str, Array], known: dict[Any, Array] | None = None, number: Number = float) -> Array:
    """A closed form at the values of its symbols. ``known``: what was worked out at the same values, by expression. ``number``: what is
    made of its exact numbers.

    Raises KeyError for a symbol without a value, and TypeError for a function that no form has.
    """
    if not hasattr(expr, "args"):
        return number(expr) if isinstance(expr, int | Fraction) else expr
    memo = {} if known is None else known
    if expr not in memo:
        memo[expr] = _evaluated(expr, values, memo, number)
    return memo[expr]


def _evaluated(expr: sympy.Expr, values: Mapping[str, Array], memo: dict[Any, Array], number: Number) -> Array:
    if expr.is_Symbol:
        return values[expr.name]
    if expr.is_Rational:
        return number(Fraction(expr.p, expr.q))
    each = [evaluate(arg, values, memo, number) for arg in expr.args]
    if expr.is_Add:
        return reduce(np.add, each)
    if expr.is_Mul:
        return reduce(np.multiply, each)
    if expr.is_Pow:
        return 1 / each[0] if expr.args[1] == -1 else each[0] ** each[1]
    name = expr.func.__name__
    if name in ("Max", "Min"):
        return reduce(np.maximum if name == "Max" else np.minimum, each)
    if name in ("ceiling", "floor"):
        return (np.ceil if name == "ceiling" else np.floor)(each[0])
    if name == "Mod":
        return np.mod(each[0], each[1])
    raise TypeError(f"no array is made of {name}")


@dataclass(frozen=True)
class ExchangeTime:
    """How long a collective takes in the slowest of some groups by the fastest algorithm, as a function of the bytes it is about.

    ``lines``: for each algorithm, of each group the seconds of no bytes and of each byte. Empty where some algorithm has no closed form
    there: then each size is asked for by itself.
    """

    kind: str
    groups: tuple[Group, ...]
    cluster: Cluster
    lines: tuple[tuple[tuple[Fraction, Fraction], ...], ...]

    @cached_property
    def _floats(self) -> tuple[tuple[tuple[float, float], ...], ...]:
        return tuple(tuple((float(a), float(b)) for a, b in groups) for groups in self.lines)

    def __call__(self, size: Array) -> Array:
        """Seconds of so many bytes."""
        if not self.lines:
            sizes, back = np.unique(np.asarray(size, dtype=float), return_inverse=True)
            return np.array([self._asked(s) for s in sizes])[back].reshape(np.shape(size))
        slowest = (reduce(np.maximum, [a + b * size for a, b in groups]) for groups in self._floats)
        return reduce(np.minimum, slowest)

    def _asked(self, size: float) -> float:
        return float(fastest(self.kind, self.groups, Fraction(size), self.cluster).seconds)


def exchange_time(kind: str, groups: Sequence[Group], cluster: Cluster) -> ExchangeTime:
    """The time of a collective in some groups of a cluster."""
    every, level = tuple(groups), links(cluster)
    if all(group.degree == 1 for group in every):
        return ExchangeTime(kind, every, cluster, (((Fraction(0), Fraction(0)),),))
    if kind == "send":
        used = {i for group in every for i in group.used}
        return ExchangeTime(kind, every, cluster, (tuple((Fraction(level[i].alpha), Fraction(level[i].beta)) for i in used),))
    fit = [] if "chain" in ALGORITHMS[kind] else admitted(kind, every, cluster)

    def line(one: Algorithm | Levelled, group: Group) -> tuple[Fraction, Fraction] | None:
        """Seconds of no bytes and of each: rounds take the most of some lines each, so that they are convex in the bytes together, and
        where three points are on a line, all between them are."""
        low, middle, high = (seconds(one, group, Fraction(s), level, cluster.reduction) for s in _SIZES)
        byte = (high - low) / (_SIZES[2] - _SIZES[0])
        if low + byte * (_SIZES[1] - _SIZES[0]) != middle:
            return None
        return low - byte * _SIZES[0], byte

    lines = [[line(one, group) for group in every] for one in fit]
    if not lines or any(found is None for row in lines for found in row):
        return ExchangeTime(kind, every, cluster, ())
    return ExchangeTime(kind, every, cluster, tuple(tuple(found for found in row if found) for row in lines))
