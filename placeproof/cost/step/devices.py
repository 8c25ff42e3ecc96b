"""The kinds of devices that the branches of a program make: on which of them each condition on a rank holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from placeproof.core.diagnostics import refuse
from placeproof.core.mesh import Axis
from placeproof.cost.step.amounts import Amounts
from placeproof.programs import If, Program, render_expression, statements
from placeproof.programs.ops import COMPARE

if TYPE_CHECKING:
    import sympy

#: A condition on a rank: its axis, how it is compared, and with what.
Condition: TypeAlias = tuple[str, str, str]
#: By condition, whether it holds on these devices.
Holds: TypeAlias = Mapping[Condition, bool]

#: The most kinds of devices that are told apart, and the most ranks of an axis that are looked at one by one.
MOST_KINDS, MOST_RANKS = 256, 4096


def condition(stmt: If) -> Condition:
    """The condition of a branch."""
    return stmt.axis, stmt.op, render_expression(stmt.bound)


def branches(program: Program) -> dict[Condition, If]:
    """The conditions of a program, each with a branch that has it."""
    return {condition(s): s for s in reversed(list(statements(program.body))) if isinstance(s, If)}


def kinds(program: Program, amounts: Amounts) -> tuple[Holds, ...]:
    """The kinds of devices of which there are some, at some degrees above 1.

    Raises InputError where they are more than :data:`MOST_KINDS`.
    """
    conditions = branches(program)
    if not conditions:
        return ({},)
    bounds = {c: amounts.scalar(s.bound) for c, s in conditions.items()}
    degrees = {f: amounts.degree(f) for a in program.axes for f in (a.name, a.inner_name, *a.factors)}
    seen: dict[tuple[bool, ...], None] = {}
    for numbers in _numbers(bounds, degrees):
        by_axis = [list(_along(axis, program, bounds, degrees, numbers)) for axis in program.axes]
        for outcomes in itertools.product(*by_axis):
            holds = {c: yes for outcome in outcomes for c, yes in outcome}
            seen.setdefault(tuple(holds[c] for c in conditions))
            if len(seen) > MOST_KINDS:
                message = f"the branches of `{program.name}` make more than {MOST_KINDS} kinds of devices: their costs are not derived"
                place = next(iter(conditions.values())).place
                refuse("PP310", message, place=place, help="merge branches with the same condition")
    return tuple(dict(zip(conditions, outcome, strict=True)) for outcome in seen)


def holding_at(rank: int, axis: str, program: Program, amounts: Amounts) -> Holds:
    """What holds on the devices with a rank along an axis, from its end where it is negative. Open degrees are large ones."""
    own = program.axis(axis)
    bounds = {c: amounts.scalar(s.bound) for c, s in branches(program).items() if program.axis(c[0]) is own}
    degree = amounts.degree(axis)
    open_ones = {s for expr in (degree, *bounds.values()) for s in expr.free_symbols}
    numbers = dict.fromkeys(open_ones, MOST_RANKS)
    place = rank if rank >= 0 else int(_at(degree, numbers)) + rank
    return {c: bool(COMPARE[c[1]](place, _at(bound, numbers))) for c, bound in bounds.items()}


def _numbers(bounds: Mapping[Condition, sympy.Expr], degrees: Mapping[str, sympy.Expr]) -> Iterator[dict[sympy.Symbol, int]]:
    """Numbers for what is open in degrees and bounds: some equal ones, and some of which one is larger."""
    open_ones = sorted({s for expr in (*bounds.values(), *degrees.values()) for s in expr.free_symbols}, key=str)
    beyond = [int(b) + 2 for b in bounds.values() if b.is_number and b > 2]
    for size in (3, 2, 4, 12, *(max(b, 2) for b in beyond)):
        alike = dict.fromkeys(open_ones, size)
        yield alike
        for symbol in open_ones if len(open_ones) > 1 else ():
            yield {**alike, symbol: 4 * size}
            yield {**dict.fromkeys(open_ones, 1), symbol: size + 1}


def _along(
    own: Axis,
    program: Program,
    every: Mapping[Condition, sympy.Expr],
    degrees: Mapping[str, sympy.Expr],
    numbers: Mapping[sympy.Symbol, int],
) -> Iterator[tuple[tuple[Condition, bool], ...]]:
    """What holds on the ranks of an axis: each combination once."""
    size, inner = (_at(degrees[f], numbers) for f in (own.name, own.inner_name))
    if size.denominator != 1 or inner.denominator != 1:
        return
    mine = [c for c in every if program.axis(c[0]) is own]
    bounds = {c: _at(every[c], numbers) for c in mine}
    looked = range(int(size) if mine else 1)
    if size > MOST_RANKS:
        near = {int(b) + d for b in bounds.values() for d in (-1, 0, 1)}
        looked = sorted(r for r in {0, int(size) - 1, *near} if 0 <= r < size)  # type: ignore[assignment]
    seen = set()
    for rank in looked:
        at = {own.name: rank, own.outer_name: rank // int(inner), own.inner_name: rank % int(inner)}
        outcome = tuple((c, bool(COMPARE[c[1]](at[c[0]], bounds[c]))) for c in mine)
        if outcome not in seen:
            seen.add(outcome)
            yield outcome


def _at(expr: sympy.Expr, numbers: Mapping[sympy.Symbol, int]) -> Fraction:
    """The value of a bound or a degree. It is asked for often, and SymPy's own substitution takes long."""
    if expr.is_Symbol:
        return Fraction(numbers[expr])
    if expr.is_Rational:
        return Fraction(int(expr.p), int(expr.q))
    args = [_at(a, numbers) for a in expr.args]
    if expr.is_Add or expr.is_Mul:
        return sum(args, Fraction(0)) if expr.is_Add else math.prod(args, start=Fraction(1))
    return Fraction(args[0] ** args[1]) if expr.is_Pow else (min if expr.func.__name__ == "Min" else max)(args)
