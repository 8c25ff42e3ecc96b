"""Ranks that branches compare and roots name: which numbers they are, whether there are such devices, and which devices take branches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from placeproof.core.diagnostics import Place, Problems
from placeproof.programs.ir import Binary, Expr, If, Number, Program, Ref, calls, statements
from placeproof.programs.ops import COMPARE

#: A condition on a rank: its axis, how it is compared, and with what.
Condition: TypeAlias = tuple[str, str, Expr]
#: What holds on the devices that come to a line, and what does not.
Path: TypeAlias = frozenset[tuple[Condition, bool]]


def _value(expr: Expr, axis: str, program: Program) -> tuple[Fraction, Fraction] | None:
    """A number that is compared with a rank along an axis, as (k, n): k plus n times the axis's degree, where that is not given. None where
    it depends on something else."""
    match expr:
        case Number(value=value):
            return value, Fraction(0)
        case Ref(name=name, group=None, index=None):
            named = next((a for a in program.axes if a.name == name), None)
            if named is not None and named.degree is not None:
                return Fraction(named.degree), Fraction(0)
            return (Fraction(0), Fraction(1)) if name == axis else None
        case Binary(op=op, left=left, right=right):
            one, other = _value(left, axis, program), _value(right, axis, program)
            return None if one is None or other is None else _combined(op, one, other)
    return None


def _combined(op: str, one: tuple[Fraction, Fraction], other: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction] | None:
    if op in "+-":
        sign = 1 if op == "+" else -1
        return one[0] + sign * other[0], one[1] + sign * other[1]
    if op == "*" and not (one[1] and other[1]):
        return one[0] * other[0], one[0] * other[1] + one[1] * other[0]
    if op == "/" and other[0] and not other[1]:
        return one[0] / other[0], one[1] / other[0]
    return None


def rank_bound(stmt: If, program: Program) -> tuple[int, int] | None:
    """What a rank is compared with, as (k, n): the whole number k + n * N, where n is 0 or 1 and N the axis's degree, unless that is given.
    None for anything else."""
    return _whole(stmt.bound, stmt.axis, program)


def _whole(bound: Expr, axis: str, program: Program) -> tuple[int, int] | None:
    line = _value(bound, axis, program)
    if line is None or any(x.denominator != 1 for x in line) or line[1] not in (0, 1):
        return None
    return int(line[0]), int(line[1])


def least_degrees(program: Program) -> dict[str, int]:
    """How many devices an axis has at least, of which one is named: as a root, or by a rank that is compared for equality."""
    least: dict[str, int] = {}

    def named(axis: str, count: int) -> None:
        least[axis] = max(least.get(axis, 1), count)

    for stmt in statements(program.body):
        if isinstance(stmt, If) and stmt.op in ("==", "!=") and (bound := rank_bound(stmt, program)) is not None:
            k, n = bound
            named(stmt.axis, -k if n else k + 1)
        for call in calls(stmt):
            root = call.option("root") or ""
            if root.isdigit() and len(call.axes) == 1:
                named(call.axes[0], int(root) + 1)
    return least


def check_ranks(program: Program, problems: Problems) -> None:
    """Record every rank that no device has, in a condition or as a root."""
    degrees = {name: _degree(program, name) for name in [f for a in program.axes for f in (a.name, *a.factors)]}
    for stmt in statements(program.body):
        if isinstance(stmt, If) and stmt.axis in degrees:
            _rank_exists(stmt, degrees[stmt.axis], program, problems)
        for call in calls(stmt):
            root, axis = call.option("root") or "", call.axes[0] if len(call.axes) == 1 else ""
            degree = degrees.get(axis)
            if root.isdigit() and degree is not None and int(root) >= degree:
                _no_device(axis, degree, root, call.place, problems)


def _degree(program: Program, name: str) -> int | None:
    """The degree of an axis or of one of its factors, where it is given."""
    axis = program.axis(name)
    if axis is None or name == axis.name or axis.inner is None:
        return None if axis is None else axis.degree
    if not isinstance(axis.inner, int):
        return None
    return axis.inner if name == axis.inner_name else None if axis.degree is None else axis.degree // axis.inner


def _rank_exists(stmt: If, degree: int | None, program: Program, problems: Problems) -> None:
    value = _value(stmt.bound, stmt.axis, program)
    if value is None:
        return
    k, n = value
    if n == 0 and k.denominator != 1:
        problems.add("PP305", "a rank is a whole number, and this is none", place=stmt.place, help="devices count from 0")
    elif stmt.op in ("==", "!="):
        if n == 0 and (k < 0 or (degree is not None and k >= degree)):
            _no_device(stmt.axis, degree, str(k), stmt.place, problems)
        elif n == 1 and k >= 0:
            problems.add("PP305", f"no device along `{stmt.axis}` has this rank", place=stmt.place, help=f"the last is `{stmt.axis} - 1`")


def _no_device(axis: str, degree: int | None, number: str, place: Place | None, problems: Problems) -> None:
    what = (
        f"no device along `{axis}` is number {number}"
        if degree is None
        else f"axis `{axis}` has {degree} devices, and none is number {number}"
    )
    problems.add("PP305", what, place=place, help="devices count from 0")


def covers(paths: Iterable[Path], within: Path, program: Program) -> bool:
    """Whether each device on the path ``within`` is on one of the others, too. False also where that is not known.

    Looked at are the ranks next to those that are compared, at the degree that is given, or at small ones and those next to all bounds.
    """
    others = tuple(paths)
    if any(path <= within for path in others):
        return True
    conditions = dict.fromkeys(c for path in (*others, within) for c, _ in path)
    bounds = {c: end for c in conditions if (end := _whole(c[2], c[0], program)) is not None}
    axes = dict.fromkeys(axis for axis, *_ in bounds)
    outcomes = [set(_outcomes({c: end for c, end in bounds.items() if c[0] == axis}, _degree(program, axis))) for axis in axes]
    every = (frozenset().union(*one) for one in itertools.product(*outcomes))
    return len(bounds) == len(conditions) and all(any(path <= one for path in others) for one in every if within <= one)


def _outcomes(bounds: Mapping[Condition, tuple[int, int]], degree: int | None) -> Iterator[Path]:
    """What holds on devices along an axis, and what does not."""
    far = {abs(k) for k, _ in bounds.values()} | {0}
    sizes = {a + b + more for a in far for b in far for more in range(1, 5)} if degree is None else {degree}
    for size in sizes:
        near = {k + n * size + more for k, n in bounds.values() for more in (-1, 0, 1)}
        for rank in {0, size - 1, *near} & set(range(size)):
            yield frozenset((c, COMPARE[c[1]](rank, k + n * size)) for c, (k, n) in bounds.items())
