"""How many devices along an axis take the branches around a statement: a count of ranks, as a closed form."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from placeproof.programs import If

if TYPE_CHECKING:
    import sympy

#: An end of a range of ranks: (k, n) stands for k + n * N, with N the axis's degree and n 0 or 1.
End: TypeAlias = tuple[int, int]
#: Ranks from one end to before another, and how often they count.
Ranks: TypeAlias = tuple[End, End, int]

FIRST: End = (0, 0)
BEYOND: End = (0, 1)


def ranks(stmt: If, bound: End | sympy.Expr, taken: bool, degree: sympy.Expr | None = None) -> list[Any]:
    """The ranks on one side of a branch, as a sum of :data:`Ranks`; of ranges between expressions where the ``degree`` is given."""
    first, beyond = (FIRST, BEYOND) if degree is None else (0, degree)
    after = (bound[0] + 1, bound[1]) if isinstance(bound, tuple) else bound + 1
    sides: dict[str, list[Any]] = {
        "<": [(first, bound, 1)],
        "<=": [(first, after, 1)],
        ">": [(after, beyond, 1)],
        ">=": [(bound, beyond, 1)],
        "==": [(bound, after, 1)],
        "!=": [(first, beyond, 1), (bound, after, -1)],
    }
    return sides[stmt.op] if taken else [(first, beyond, 1), *((low, high, -sign) for low, high, sign in sides[stmt.op])]


def count(sides: list[list[Ranks]], degree: sympy.Expr, least: int) -> sympy.Expr:
    """How many ranks lie on all of some sides of branches, where the degree is at least a number."""
    import sympy

    total = sympy.Integer(0)
    for lows, highs, sign in _together(sides):
        total += sign * _length([FIRST, *lows], [BEYOND, *highs], degree, least)
    return sympy.expand(total) if not total.has(sympy.Max, sympy.Min) else total


def count_between(sides: list[list[Any]], degree: sympy.Expr) -> sympy.Expr:
    """As :func:`count`, where what ranks are compared with is any expression."""
    import sympy

    names = {s for side in sides for low, high, _ in side for end in (low, high, degree) for s in sympy.sympify(end).free_symbols}
    positive = {s: sympy.Dummy(s.name, positive=True) for s in names}

    def extreme(of: type[sympy.Max | sympy.Min], ends: list[Any]) -> sympy.Expr:
        return of(*(sympy.sympify(end).xreplace(positive) for end in ends))

    total = sympy.Integer(0)
    for lows, highs, sign in _together(sides):
        total += sign * sympy.Max(0, extreme(sympy.Min, [degree, *highs]) - extreme(sympy.Max, [0, *lows]))
    return total.xreplace({new: old for old, new in positive.items()})


def _together(sides: list[list[Any]]) -> Iterator[tuple[list[Any], list[Any], int]]:
    for chosen in itertools.product(*sides):
        sign = 1
        for *_, row in chosen:
            sign *= row
        yield [low for low, _, _ in chosen], [high for _, high, _ in chosen], sign


def _length(lows: list[End], highs: list[End], degree: sympy.Expr, least: int) -> sympy.Expr:
    """The number of ranks from the greatest of some ends to before the least of others."""
    import sympy

    if degree.is_Integer:
        n = int(degree)
        return sympy.Integer(max(0, min(k + c * n for k, c in highs) - max(k + c * n for k, c in lows)))
    low, high = _extreme(lows, greatest=True, least=least), _extreme(highs, greatest=False, least=least)
    at = {end: sympy.Integer(end[0]) + end[1] * degree for end in (*low, *high)}
    length = sympy.Min(*(at[e] for e in high)) - sympy.Max(*(at[e] for e in low))
    positive = all(a[1] <= b[1] and b[0] - a[0] + (b[1] - a[1]) * least >= 0 for a in low for b in high)
    return length if positive else sympy.Max(0, length)


def _extreme(ends: list[End], *, greatest: bool, least: int) -> list[End]:
    """The greatest, or the least, of some ends: one, or two where that depends on the degree."""
    choose = max if greatest else min
    fixed, moving = ([e for e in ends if e[1] == c] for c in (0, 1))
    if not fixed or not moving:
        return [choose(ends)]
    near, far = choose(fixed), choose(moving)
    if near[0] <= far[0] + least:  # whatever the degree
        return [far] if greatest else [near]
    return [near, far]
