"""Evaluating claims at a point, in exact rational arithmetic. It shares nothing with the lowering to solvers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from placeproof.prove.relations import Cases, Definition, Fact, Implication, Relation

if TYPE_CHECKING:
    import sympy

#: The deepest recursion that is followed.
DEPTH = 150


class UndefinedError(ArithmeticError):
    """A value that a claim does not determine: a division by zero, or a recursion that does not reach its start."""


#: What an arbitrary function is at a point: a number for its name and arguments.
Table = Callable[[str, tuple[Fraction, ...]], Fraction]


def drawn(seed: int) -> Table:
    """An arbitrary function, drawn at random: small rationals, the same ones for the same seed."""

    def at(name: str, args: tuple[Fraction, ...]) -> Fraction:
        digest = hashlib.blake2b(f"{seed}:{name}:{args}".encode(), digest_size=8).digest()
        return Fraction(int.from_bytes(digest[:4], "big") % 19 - 9, 1 + digest[5] % 3)

    return at


#: A value while it is computed. Most are whole, and whole numbers are quicker by far as integers.
_Number = Fraction | int

_FUNCTIONS: dict[str, Callable[..., _Number]] = {
    "Max": lambda *parts: max(parts),
    "Min": lambda *parts: min(parts),
    "floor": math.floor,
    "ceiling": math.ceil,
    "KroneckerDelta": lambda left, right, *_range: int(left == right),
    "sign": lambda x: (x > 0) - (x < 0),
    "Abs": abs,
}


def _plain(value: _Number) -> _Number:
    """The same number, an integer if it is whole."""
    return value.numerator if value.denominator == 1 else value


class Point:
    """Values of symbols and functions at which relations are evaluated."""

    def __init__(self, values: Mapping[str, Fraction], definitions: tuple[Definition, ...] = (), table: Table | None = None) -> None:
        self.values = dict(values)
        self._definitions = {d.name: d for d in definitions}
        self._table = table
        self._memory: dict[tuple[str, tuple[_Number, ...]], _Number] = {}

    def holds(self, fact: Fact | Cases) -> bool:
        """Whether a relation, an implication, or all of some cases are true. Raises UndefinedError where it divides by zero."""
        if isinstance(fact, Cases):
            return all(map(self.holds, fact.of))
        if isinstance(fact, Implication):
            return not all(self.holds(r) for r in fact.given) or all(self.holds(r) for r in fact.then)
        left, right = self.sides(fact)
        return {"==": left == right, "!=": left != right, "<=": left <= right, "<": left < right}[fact.op]

    def sides(self, relation: Relation) -> tuple[Fraction, Fraction]:
        """Both sides of a relation. Raises UndefinedError where it divides by zero."""
        for divisor in relation.divisors:
            if self.value(divisor) == 0:
                raise UndefinedError(f"{divisor} is zero")
        return self.value(relation.left), self.value(relation.right)

    def value(self, expr: sympy.Expr) -> Fraction:
        """An expression's value. Raises UndefinedError."""
        try:
            return Fraction(_evaluator(expr)(self, {name: _plain(value) for name, value in self.values.items()}, DEPTH))
        except RecursionError as error:
            raise UndefinedError(f"{expr} is defined by a recursion that is too deep to follow") from error

    def function(self, name: str, parts: list[_Number], depth: int) -> _Number:
        """What a function is at numbers, of which recursions may follow as many steps as ``depth``. Raises UndefinedError."""
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*parts)
        if name in self._definitions:
            return self._defined(self._definitions[name], tuple(parts), depth)
        if self._table is None:
            raise UndefinedError(f"{name} is an arbitrary function")
        return self._table(name, tuple(map(Fraction, parts)))

    def _defined(self, definition: Definition, args: tuple[_Number, ...], depth: int) -> _Number:
        key = (definition.name, args)
        if key in self._memory:
            return self._memory[key]
        values = dict(zip(definition.params, args, strict=True))
        start = _evaluator(definition.start)(self, values, depth)
        at = values[definition.on]
        if at < start or (at - start).denominator != 1 or depth <= 0:
            raise UndefinedError(f"{definition.name} is not defined at {definition.on} = {at}")
        value = _evaluator(definition.base if at == start else definition.step)(self, values, depth - 1)
        self._memory[key] = value
        return value


#: What computes an expression at a point, from values of its symbols.
_Evaluator = Callable[[Point, Mapping[str, _Number], int], _Number]


@lru_cache(maxsize=1 << 16)
def _evaluator(expr: Any) -> _Evaluator:
    """An expression as a Python function: it is evaluated at many points, and SymPy is slow to ask what it is."""
    if expr.is_Symbol:
        name = expr.name
        return lambda _point, values, _depth: values[name]
    if expr.is_Rational:
        number = int(expr.p) if expr.q == 1 else Fraction(int(expr.p), int(expr.q))
        return lambda _point, _values, _depth: number
    if not expr.args and expr.is_infinite:
        return _infinite
    parts = [_evaluator(a) for a in expr.args]
    if expr.is_Add:
        return lambda point, values, depth: sum([part(point, values, depth) for part in parts])
    if expr.is_Mul:
        return lambda point, values, depth: math.prod([part(point, values, depth) for part in parts])
    name = expr.func.__name__

    def function(point: Point, values: Mapping[str, _Number], depth: int) -> _Number:
        return point.function(name, [part(point, values, depth) for part in parts], depth)

    return _power(parts[0], parts[1], function) if expr.is_Pow else function


def _infinite(point: Point, values: Mapping[str, _Number], depth: int) -> _Number:
    raise UndefinedError("it is not finite")


def _power(base: _Evaluator, exponent: _Evaluator, otherwise: _Evaluator) -> _Evaluator:
    """A power with a whole exponent; ``otherwise``: what it is with another one."""

    def value(point: Point, values: Mapping[str, _Number], depth: int) -> _Number:
        number, times = base(point, values, depth), exponent(point, values, depth)
        if times.denominator != 1:
            return otherwise(point, values, depth)
        if number == 0 and times < 0:
            raise UndefinedError("a base of a negative power is zero")
        return _plain(Fraction(number) ** int(times))

    return value
