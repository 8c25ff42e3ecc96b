"""Closed forms and times of exchanges at many points at once, in floating-point numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from placeproof.clusters import Cluster, Group
from placeproof.collectives.algorithms import ALGORITHMS
from placeproof.collectives.time import admitted, by_level, fastest, links, seconds

if TYPE_CHECKING:
    import sympy

#: An array of float64, or a number that stands for equal ones.
Array = Any


def evaluate(expr: Any, values: Mapping[str, Array], known: dict[Any, Array] | None = None) -> Array:
    """A closed form at the values of its symbols. ``known``: what was worked out at the same values, by expression.

    Raises KeyError for a symbol without a value, and TypeError for a function that no form has.
    """
    if not hasattr(expr, "args"):
        return float(expr) if isinstance(expr, int | Fraction) else expr
    memo = {} if known is None else known
    if expr not in memo:
        memo[expr] = _evaluated(expr, values, memo)
    return memo[expr]


def _evaluated(expr: sympy.Expr, values: Mapping[str, Array], memo: dict[Any, Array]) -> Array:
    if expr.is_Symbol:
        return values[expr.name]
    if expr.is_Number:
        return float(expr)
    each = [evaluate(arg, values, memo) for arg in expr.args]
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
    lines: tuple[tuple[tuple[float, float], ...], ...]

    def __call__(self, size: Array) -> Array:
        """Seconds of so many bytes."""
        if not self.lines:
            sizes, back = np.unique(np.asarray(size, dtype=float), return_inverse=True)
            return np.array([self._asked(s) for s in sizes])[back].reshape(np.shape(size))
        slowest = (reduce(np.maximum, [a + b * size for a, b in groups]) for groups in self.lines)
        return reduce(np.minimum, slowest)

    def _asked(self, size: float) -> float:
        return float(fastest(self.kind, self.groups, Fraction(size), self.cluster).seconds)


def exchange_time(kind: str, groups: Sequence[Group], cluster: Cluster) -> ExchangeTime:
    """The time of a collective in some groups of a cluster."""
    every, level = tuple(groups), links(cluster)
    if all(group.degree == 1 for group in every):
        return ExchangeTime(kind, every, cluster, (((0.0, 0.0),),))
    if kind == "send":
        used = {i for group in every for i in group.used}
        return ExchangeTime(kind, every, cluster, (tuple((float(level[i].alpha), float(level[i].beta)) for i in used),))
    fit = admitted(kind, every, cluster)
    closed = "chain" not in ALGORITHMS[kind] and all(by_level(one, group, Fraction(1), level) for one in fit for group in every)
    if not closed or not fit:
        return ExchangeTime(kind, every, cluster, ())

    def line(one: Any, group: Group) -> tuple[float, float]:
        nothing, byte = (seconds(one, group, Fraction(s), level, cluster.reduction) for s in (0, 1))
        return float(nothing), float(byte - nothing)

    return ExchangeTime(kind, every, cluster, tuple(tuple(line(one, group) for group in every) for one in fit))
