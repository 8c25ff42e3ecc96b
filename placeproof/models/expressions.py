"""Sizes as expressions of symbols, such as ``h/a`` or ``L - L_dense``: worked out exactly with whatever numbers are given."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

#: A whole number, or a SymPy expression.
Amount: TypeAlias = Any

#: Longer expressions are refused: no size is so long, and the reader must not run out of stack.
MOST_CHARACTERS = 200
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """Whole numbers and symbols, joined by ``+ - * /`` and parentheses. ``names``: its symbols, each once, in the order of the text."""

    text: str
    names: tuple[str, ...]
    node: ast.expr = field(compare=False, repr=False)

    def at(self, values: Mapping[str, Amount]) -> Amount:
        """Its value: a whole number where all values are, a SymPy expression where one is.

        Raises KeyError where a symbol has no value, and ValueError where whole numbers give a fraction or are divided by 0.
        """
        try:
            result = _value(self.node, values)
        except ZeroDivisionError:
            raise ValueError(f"`{self.text}` divides by 0") from None
        if not isinstance(result, Fraction):
            return result
        if result.denominator != 1:
            raise ValueError(f"`{self.text}` is {result}, no whole number")
        return result.numerator

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=512)
def expression(text: str) -> Expression:
    """An expression from its text. Raises ValueError that says what is not understood."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"an expression has at most {MOST_CHARACTERS} characters")
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"`{text}` is no expression of symbols") from None
    names: dict[str, None] = {}
    _check(node, text, names)
    return Expression(text=text.strip(), names=tuple(names), node=node)


def _check(node: ast.expr, text: str, names: dict[str, None]) -> None:
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check(left, text, names)
            _check(right, text, names)
        case ast.Name(id=name):
            names[name] = None
        case ast.Constant(value=value) if type(value) is int:
            pass
        case _:
            raise ValueError(f"`{ast.unparse(node)}` in `{text}` is neither a symbol, a whole number, nor + - * / of these")


def _value(node: ast.expr, values: Mapping[str, Amount]) -> Amount:
    """Whole numbers as fractions, so that only the result has to be whole."""
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.Name(id=name):
            value = values[name]
            return Fraction(value) if isinstance(value, int) else value
        case ast.Constant(value=int(number)):
            return Fraction(number)
    raise AssertionError(node)
